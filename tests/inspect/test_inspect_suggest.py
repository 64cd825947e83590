"""Which modules to keep in float: found by simulation, measured natively."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise.accuracy.metrics import decibels
from edgewise.accuracy.sensitivity import simulate
from edgewise.accuracy.suggestion import Measured, Suggestion
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.inspect import compare, suggest
from edgewise.quantize.schemes import scheme_of
from examples.models import MODELS

X = [torch.randn(8, 32, generator=torch.Generator().manual_seed(i)) for i in range(4)]


class Net(nn.Module):
    """Four linear layers, of which `bad` has weights of very different sizes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.bad, self.c, self.d = (nn.Linear(32, 32) for _ in range(4))
        with torch.no_grad():
            self.bad.weight[:, 3] += 20
            self.a.weight[3] = 0
            self.a.bias[3] = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.d(self.c(self.bad(self.a(x).relu()).relu()).relu())


SCHEMES = ["int8", "int8-dynamic", "int8-weight", "int4-dynamic", "int4-weight"]


def given(scheme: str) -> Any:
    return X if scheme == "int8" else None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_simulation_foretells_what_runs(scheme: str) -> None:
    """The outputs' ratio within 1.5 dB, everything quantized and with one module in float."""
    model = Net()
    batches = [(x,) for x in X]
    simulation = simulate(
        model, (X[0],), scheme_of(scheme), XNNPACKQuantizer, batches, given(scheme)
    )
    assert simulation.candidates == ["a", "bad", "c", "d"]
    for kept in ([], ["bad"], ["d"], ["bad", "c"]):
        program = edgewise.compile(
            model,
            X[0],
            quantize=scheme,
            calibration=given(scheme),
            keep_float=kept,
            verbose=False,
        )
        measured = compare(model, program, X, layers=False).sqnr_db
        assert decibels(simulation.noise(kept)) == pytest.approx(measured, abs=1.5), kept


@pytest.mark.parametrize("scheme", ["int8", "int8-weight", "int4-weight"])
def test_the_worst_module_is_kept_first(scheme: str) -> None:
    model = Net()
    found = suggest(model, X[0], quantize=scheme, calibration=given(scheme), batches=X, limit=2)
    assert found.sensitivities[0].module == "bad"
    assert found.sensitivities[0].type == "Linear"
    assert [len(step.keep_float) for step in found.steps] == [0, 1, 2]
    assert found.steps[1].keep_float == ["bad"]
    assert found.steps[1].sqnr_db > found.steps[0].sqnr_db + 3
    assert all(step.bytes > 0 and step.ms > 0 for step in found.steps)
    assert "bad" in found.keep_float
    program = edgewise.compile(
        model,
        X[0],
        quantize=scheme,
        calibration=given(scheme),
        keep_float=found.keep_float,
        verbose=False,
    )
    assert len(program.buffer) == found.chosen.bytes
    measured = compare(model, program, X, layers=False).sqnr_db
    assert measured == pytest.approx(found.chosen.sqnr_db, abs=1e-6)


def test_it_stops_at_the_target() -> None:
    model = Net()
    easy = suggest(model, X[0], quantize="int8-weight", batches=X, target_db=3.0)
    assert (easy.keep_float, len(easy.steps), easy.reached) == ([], 1, True)
    first = easy.steps[0].sqnr_db
    one = suggest(model, X[0], quantize="int8-weight", batches=X, target_db=first + 1)
    assert (one.keep_float, len(one.steps), one.reached) == (["bad"], 2, True)
    never = suggest(model, X[0], quantize="int8-weight", batches=X, target_db=140, limit=1)
    assert not never.reached
    assert "the target of 140 dB is not reached" in str(never)


def test_at_most_half_of_the_modules_are_kept() -> None:
    found = suggest(Net(), X[0], quantize="int8-weight", batches=X, limit=9)
    assert len(found.steps) == 3


def test_modules_that_stay_in_float_in_any_case() -> None:
    found = suggest(Net(), X[0], quantize="int8-weight", batches=X, limit=1, keep_float=["bad"])
    assert "bad" not in [one.module for one in found.sensitivities]
    assert all(step.keep_float[0] == "bad" for step in found.steps)
    assert found.keep_float[0] == "bad"


def test_calibration_may_be_a_generator() -> None:
    found = suggest(Net(), X[0], quantize="int8", calibration=(x for x in X), limit=0)
    assert len(found.steps) == 1


def test_embeddings_and_attention() -> None:
    spec = MODELS["bert_small"]
    found = suggest(spec.build(), spec.example_inputs(0), quantize="int4-dynamic", limit=1)
    kinds = {one.type for one in found.sensitivities}
    assert kinds == {"Linear", "Embedding"}
    # The pooler's tanh alone decides over the worst output.
    assert found.keep_float == ["pooler.dense"]


def step(kept: list[str], ratio: float) -> Measured:
    return Measured(kept, ratio, 1000, 0.5)


def suggestion(*ratios: float, target: float | None = None) -> Suggestion:
    names = ["a", "b", "c", "d"]
    steps = [step(names[:i], ratio) for i, ratio in enumerate(ratios)]
    return Suggestion("int8", steps, [], 4000, 1.0, target)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (suggestion(30, 30.5, 30.9), []),
        (suggestion(30, 35, 35.5), ["a"]),
        (suggestion(30, 29, 36), ["a", "b"]),
        (suggestion(30, 35, 40, target=34), ["a"]),
        (suggestion(30, 35, 33, target=50), ["a"]),
    ],
)
def test_what_is_chosen(found: Suggestion, kept: list[str]) -> None:
    assert found.keep_float == kept
    assert str(found).splitlines()[-1] == f"keep_float={kept}"
    data = json.loads(found.to_json())
    assert data["keep_float"] == kept
    assert len(data["steps"]) == len(found.steps)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be at least 0; got -1"):
        suggest(Net(), X[0], quantize="int8-weight", limit=-1)
    with pytest.raises(ValueError, match="int8 needs calibration data"):
        suggest(Net(), X[0], quantize="int8")
    with pytest.raises(ValueError, match="batches must hold at least one"):
        suggest(Net(), X[0], quantize="int8-weight", batches=[])
