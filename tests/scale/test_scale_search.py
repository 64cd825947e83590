"""The search for modules to keep in float, for a model in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scale_models import Deep
from sweep_zoo import Small

import edgewise
from edgewise.scale import LocalEngine, search
from edgewise.scale.mixed_precision import SearchResult
from edgewise.scale.sweeping import PRELOAD
from edgewise.scale.task import Context


def data(count: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 24, generator=generator) for _ in range(count)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = tmp_path_factory.mktemp("store")
    with LocalEngine(2, context=Context(str(store), os.getcwd()), preload=PRELOAD) as made:
        yield made, store


def found(engine: Any, **options: Any) -> SearchResult:
    torch.manual_seed(0)
    made, store = engine
    given = {"quantize": "int8", "calibration": data(8, 1), "evaluation": data(24, 2), **options}
    return search(Deep(), data(1, 1)[0], engine=made, out=store, **given)


def test_the_fewest_modules_for_the_target(engine: Any) -> None:
    plain = found(engine, limit=2)
    target = max(t.sqnr_db for t in plain.trials if t.sqnr_db is not None) - 0.1
    result = found(engine, limit=2, target_db=target)
    assert result.reached
    # `outlier` has one weight that is a thousand times as large as the others.
    assert result.keep_float[0] == "outlier"
    whole = [t for t in result.trials if not t.stopped]
    before = [t for t in whole if len(t.keep_float) < len(result.keep_float)]
    assert all(t.sqnr_db is not None and t.sqnr_db < target for t in before)
    assert "<- chosen" in result.table()
    torch.manual_seed(0)
    model, program = Deep(), edgewise.load(result.buffer)
    with torch.no_grad():
        pairs = [(model(x).double(), torch.from_numpy(program(x))) for x in data(24, 2)]
    signal = sum(float(want.square().sum()) for want, _ in pairs)
    noise = sum(float((want - got).square().sum()) for want, got in pairs)
    measured = 10 * math.log10(signal / noise)
    (chosen,) = [t for t in result.trials if t.keep_float == result.keep_float]
    assert measured == pytest.approx(chosen.sqnr_db, abs=1e-3)


def test_a_target_out_of_reach(engine: Any) -> None:
    result = found(engine, limit=1, target_db=150.0)
    assert not result.reached
    assert any(t.stopped for t in result.trials)


def test_what_is_kept_is_found_again(engine: Any) -> None:
    _, store = engine
    first = found(engine, limit=1)
    before = {p.name for p in Path(store, "results").iterdir()}
    assert found(engine, limit=1) == first
    assert {p.name for p in Path(store, "results").iterdir()} == before


class Local(Small):
    pass


Local.__module__ = "__main__"
BATCH = torch.zeros(1, 1, 6, 6)
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "no module": (lambda x: x, {}, TypeError, r"\[search\] model must be a torch.nn.Module"),
    "defined in a script": (Local(), {}, TypeError, "defined in the running script; try"),
    "no calibration": (Small(), {"calibration": None}, ValueError, "int8 needs calibration"),
    "no evaluation": (Small(), {"evaluation": []}, ValueError, "at least one batch; got none"),
    "no limit": (Small(), {"limit": 0}, ValueError, "limit must be at least 1; got 0"),
    "on an NPU": (
        Small(),
        {"backend": "ethos-u55-128", "quantize": "int8-dynamic"},
        ValueError,
        "only int8",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refused(case: tuple[Any, dict[str, Any], type[Exception], str]) -> None:
    model, options, error, message = case
    given = {"quantize": "int8", "calibration": [BATCH], "evaluation": [BATCH], **options}
    with pytest.raises(error, match=message):
        search(model, BATCH, **given)


def test_a_model_that_does_not_lower_says_why(engine: Any) -> None:
    made, store = engine
    batches = [torch.zeros(2, 3)] * 2
    with pytest.raises(RuntimeError, match=r"\[search\]"):
        search(
            too_narrow(),
            batches[0],
            quantize="int8",
            calibration=batches,
            evaluation=batches,
            engine=made,
            out=store,
        )


def too_narrow() -> torch.nn.Module:
    """Its linear layer takes other widths than the example has."""
    return torch.nn.Sequential(torch.nn.Linear(7, 2))
