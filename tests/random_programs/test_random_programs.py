"""Programs of random operators compute what eager PyTorch does, lowered in each way.

More of them: `python tests/random_programs WAY... --seeds 1000:2000`.
"""

from __future__ import annotations

import importlib.util

import pytest
from random_ways import WAYS, fault

COUNTS = {
    "kernels": 60,
    "kernels, open sizes": 40,
    "xnnpack": 120,
    "xnnpack, open sizes": 80,
    "xnnpack, int8": 40,
    "ethos-u55": 40,
    "ethos-u65": 20,
    "ethos-u85": 40,
    "ethos-u55, int16": 20,
    "ethos-u85, int16": 20,
    "neutron": 40,
}
AT_ONCE = 20


# Others that were wrong once, and are not told by a smaller case elsewhere.
ONCE_WRONG = {
    "ethos-u55, int16": 1346,  # a transfer over what two convolutions before still read
}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name == "neutron":
        missing = importlib.util.find_spec("ai_edge_litert") is None
        return [pytest.mark.litert, pytest.mark.skipif(missing, reason="extra [neutron]")]
    missing = name.startswith("ethos-u") and importlib.util.find_spec("ethosu") is None
    return [pytest.mark.skipif(missing, reason="extra [ethosu]")]


def _cases() -> list[object]:
    found: list[object] = []
    for name, count in COUNTS.items():
        marks = _marks(name)
        for first in range(0, count, AT_ONCE):
            found.append(pytest.param(name, first, marks=marks, id=f"{name}-{first}"))
    return found


def test_each_way_is_tried() -> None:
    assert set(COUNTS) == set(WAYS)


@pytest.mark.parametrize(("name", "first"), _cases())
def test_it_computes_what_eager_does(name: str, first: int) -> None:
    way = WAYS[name]()
    found = [fault(seed, way) for seed in range(first, first + AT_ONCE)]
    assert not any(found), "\n" + "\n".join(filter(None, found))


@pytest.mark.parametrize(
    ("name", "seed"),
    [pytest.param(name, seed, marks=_marks(name)) for name, seed in ONCE_WRONG.items()],
)
def test_it_is_right_again(name: str, seed: int) -> None:
    assert not fault(seed, WAYS[name]())
