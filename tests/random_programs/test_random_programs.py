"""Programs of random operators compute what eager PyTorch does, lowered in each way.

More of them: `python tests/random_programs WAY... --seeds 1000:2000`.
"""

from __future__ import annotations

import importlib.util

import pytest
from random_ways import WAYS, fault

COUNTS = {
    "kernels": 40,
    "kernels, open sizes": 10,
    "kernels, chosen rows": 10,
    "kernels, on executorch": 20,
    "kernels, open sizes, on executorch": 10,
    "kernels, by executorch": 4,
    "xnnpack": 60,
    "xnnpack, open sizes": 30,
    "xnnpack, chosen rows": 20,
    "xnnpack, on executorch": 20,
    "xnnpack, open sizes, on executorch": 10,
    "xnnpack, by executorch": 4,
    "xnnpack, open sizes, by executorch": 4,
    "xnnpack, int8": 20,
    "xnnpack, int8, open sizes": 6,
    "xnnpack, int8, on executorch": 10,
    "xnnpack, int8, by executorch": 4,
    "ethos-u55": 20,
    "ethos-u65": 10,
    "ethos-u85": 20,
    "ethos-u55, int16": 10,
    "ethos-u85, int16": 10,
    "neutron": 20,
}
AT_ONCE = 20


# Others that were wrong once, and are not told by a smaller case elsewhere.
ONCE_WRONG = {
    "kernels, chosen rows": 2096,  # a part of known sizes, in rows that are as long as data say
    "ethos-u55, int16": 1346,  # a transfer over what two convolutions before still read
}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name.endswith("executorch"):
        return [pytest.mark.peer]
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
            seeds = range(first, min(first + AT_ONCE, count))
            found.append(pytest.param(name, seeds, marks=marks, id=f"{name}-{first}"))
    return found


def test_each_way_is_tried() -> None:
    assert set(COUNTS) == set(WAYS)


@pytest.mark.parametrize(("name", "seeds"), _cases())
def test_it_computes_what_eager_does(name: str, seeds: range) -> None:
    way = WAYS[name]()
    found = [fault(seed, way) for seed in seeds]
    assert not any(found), "\n" + "\n".join(filter(None, found))
    assert found.count(None) <= len(seeds) // 2


@pytest.mark.parametrize(
    ("name", "seed"),
    [pytest.param(name, seed, marks=_marks(name)) for name, seed in ONCE_WRONG.items()],
)
def test_it_is_right_again(name: str, seed: int) -> None:
    assert fault(seed, WAYS[name]()) == ""
