"""`quantize="auto"`: what is tried, what is taken, and that it can be made again."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from edgewise import Budget
from edgewise.inspect.record import find_record
from edgewise.tuning import Choice, Trial
from edgewise.tuning.candidates import candidates_for
from edgewise.tuning.measuring import keeps

BATCHES = [(torch.randn(8, 16, generator=torch.Generator().manual_seed(i)),) for i in range(6)]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )


def chosen(budget: Budget | None = None, **options: Any) -> tuple[Any, dict[str, Any]]:
    program = edgewise.compile(
        net(),
        BATCHES[0],
        quantize="auto",
        calibration=iter(BATCHES),
        budget=budget,
        verbose=False,
        **options,
    )
    found = program.delegation_report().choice
    assert found is not None
    return program, found


def test_the_first_way_that_keeps_the_budget_is_taken() -> None:
    program, found = chosen()
    assert found["reached"]
    assert len(found["trials"]) == 1
    assert found["trials"][0]["cosine"] >= 0.99
    assert found["settings"] == {"quantize": "int8", "methods": None, "keep_float": []}
    assert program.delegation_report().scheme == "int8"


def test_a_way_is_made_again_from_its_settings(tmp_path: Path) -> None:
    """Also from what the record beside the file says."""
    program, found = chosen(Budget(sqnr_db=46))
    assert len(found["trials"]) > 1
    again = edgewise.compile(
        net(), BATCHES[0], calibration=BATCHES, verbose=False, **found["settings"]
    )
    assert again.buffer == program.buffer
    program.save(tmp_path / "net.pte", record=True)
    record = find_record(tmp_path / "net.pte")
    assert record is not None
    assert any(line.lstrip().startswith("*") for line in record.tried)
    told = {name: json.loads(text) for name, text in record.quantization.items()}
    recorded = edgewise.compile(net(), BATCHES[0], calibration=BATCHES, verbose=False, **told)
    assert recorded.buffer == program.buffer


def test_metrics_are_asked_of_both() -> None:
    """One that only the float program satisfies ends there; it is told what the model has."""
    model = net()
    (x,) = BATCHES[0]
    wanted = model(x).detach()
    seen = []

    def metric(run: Callable[..., Any]) -> float:
        got = run(x)
        assert isinstance(got, torch.Tensor)
        seen.append(type(run))
        return 1.0 if torch.allclose(got, wanted, atol=1e-5) else 0.5

    program, found = chosen(Budget(metric=metric, drop=0.01))
    assert found["baseline"] == 1.0
    assert found["reached"]
    assert found["settings"] == {"quantize": None}
    names = [trial["quantize"] for trial in found["trials"]]
    assert names[0] == "int8"
    assert names[-1] is None
    assert len(seen) == len(names) + 1
    got = torch.as_tensor(edgewise.load(program.buffer)(x))
    assert torch.allclose(got, wanted, atol=1e-5)


def test_size_alone_takes_the_most_accurate_that_fits() -> None:
    whole = len(edgewise.compile(net(), BATCHES[0], verbose=False).buffer)
    _, found = chosen(Budget(size=whole - 1))
    trials = [Trial(**trial) for trial in found["trials"]]
    fitting = [t for t in trials if t.size is not None and t.size < whole and not t.error]
    taken = trials[found["chosen"]]
    assert taken in fitting
    assert taken.cosine == max(t.cosine for t in fitting if t.cosine is not None)
    assert any(t.quantize is None and not t.kept for t in trials)


def test_what_cannot_be_kept_is_told() -> None:
    with pytest.warns(UserWarning, match="nothing of .* keeps the budget; took"):
        _, found = chosen(Budget(cosine=0.9, size=100))
    assert not found["reached"]
    with pytest.warns(UserWarning, match="nothing of 1 ways"):
        _, found = chosen(Budget(sqnr_db=1000, seconds=1e-3))
    assert len(found["trials"]) == 1


def test_a_way_that_is_far_off_is_stopped() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, found = chosen(Budget(sqnr_db=60, seconds=1e-3))
    assert found["trials"][0]["stopped"] == 4


@pytest.mark.parametrize(
    ("trial", "budget", "kept"),
    [
        (Trial("int8", None, cosine=0.99), Budget(cosine=0.99), True),
        (Trial("int8", None, cosine=0.98), Budget(cosine=0.99), False),
        (Trial("int8", None, cosine=float("nan")), Budget(cosine=0.99), False),
        (Trial("int8", None, cosine=None), Budget(cosine=0.99), False),
        (Trial("int8", None, metric=0.996), Budget(metric=len), True),  # type: ignore[arg-type]
        (Trial("int8", None, metric=0.994), Budget(metric=len), False),  # type: ignore[arg-type]
        (Trial("int8", None, size=10, latency=2.0), Budget(size=10, latency=2.5), True),
        (Trial("int8", None, size=11, latency=2.0), Budget(size=10, latency=2.5), False),
        (Trial("int8", None, size=10, latency=2.6), Budget(size=10, latency=2.5), False),
        (Trial("int8", None, cosine=1.0, error="no"), Budget(cosine=0.9), False),
        (Trial("int8", None, cosine=1.0, stopped=4), Budget(cosine=0.9), False),
    ],
)
def test_budgets(trial: Trial, budget: Budget, kept: bool) -> None:
    assert keeps(trial, 1.0, budget) is kept


def test_losses_of_negative_metrics_count_the_same_way() -> None:
    assert keeps(Trial("int8", None, metric=-10.04), -10.0, Budget(metric=len))  # type: ignore[arg-type]
    assert not keeps(Trial("int8", None, metric=-10.06), -10.0, Budget(metric=len))  # type: ignore[arg-type]


def test_npus_get_static_ways_alone() -> None:
    for backend in ("ethos-u55-128", "neutron-imxrt700-reference"):
        assert {one.scheme for one in candidates_for(backend)} == {"int8"}
        assert not any(one.sensitive for one in candidates_for(backend))


def test_tables_are_read_at_once() -> None:
    trials = (
        Trial("int8", None, cosine=0.9, size=1000, latency=1.0, seconds=1, stopped=4),
        Trial("int8", ("smooth",), ("a", "b"), 1.0, 0.99, size=2000, added=("smooth",), kept=True),
        Trial("int8-dynamic", None, error="ValueError: no"),
    )
    text = Choice(trials, 1, reached=True, baseline=0.5).table()
    assert "stopped after 4 batches" in text
    assert "*  int8 + smooth + 2 modules in float" in text
    assert "the float model's metric: 0.5000" in text
    assert text.endswith("in float: a, b")


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no data": ({"quantize": "auto"}, ValueError, "needs calibration data; got none"),
    "methods": ({"quantize": "auto", "methods": ["smooth"]}, ValueError, "chooses methods itself"),
    "not auto": (
        {"quantize": "int8", "budget": Budget()},
        ValueError,
        "budget is for quantize='auto'",
    ),
    "float": ({"budget": Budget()}, ValueError, "budget is for quantize"),
    "type": ({"quantize": "auto", "budget": 0.99}, TypeError, "must be an edgewise.Budget"),
    "backend": (
        {"quantize": "auto", "backend": "none"},
        ValueError,
        "needs a backend that computes in integers",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit(case: str) -> None:
    options, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        edgewise.compile(net(), BATCHES[0], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cosine": 1.5}, "cosine must lie in -1 to 1; got 1.5"),
        ({"drop": -0.1}, "drop must lie in 0 to 1"),
        ({"size": 0}, "size must be above 0"),
        ({"latency": float("nan")}, "latency must be above 0"),
    ],
)
def test_conditions_that_nothing_can_keep(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**options)
