"""A part of the conformance suite, small enough for every run: `make conformance` has all."""

from __future__ import annotations

import sys
from pathlib import Path

import declared
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from exceptions import EXCEPTIONS, ON_EXECUTORCH
from on_executorch import Executorch
from runner import Outcome, check
from samples import Call, table
from suite import Result, run, stale

import edgewise
from edgewise.emit.kernel_accuracy import Bound, accuracy
from operators import BACKWARD, FORWARD


@pytest.mark.parametrize("part", range(8))
def test_samples_agree_with_eager(part: int) -> None:
    """One call of each operator in float32, or its first type, spread over eight tests."""
    failures = []
    for operator in [*FORWARD, *BACKWARD][part::8]:
        supported = (
            {torch.float32} if operator in BACKWARD else table()[operator].supported_dtypes("cpu")
        )
        dtype = torch.float32 if torch.float32 in supported else torch.int64
        failures += [
            r.describe()
            for r in run(operator, 1, [dtype])
            if r.outcome.kind == "failed" and r.excused is None
        ]
    assert failures == []


@pytest.mark.peer
def test_samples_agree_on_executorch() -> None:
    """Of operators that have others in their place in files for it."""
    there = Executorch()
    failures = [
        result.describe()
        for operator in ("add", "cumsum", "gather", "remainder", "roll", "scatter", "sum", "unfold")
        for result in run(
            operator, 3, [torch.float32, torch.int32], there.run, exceptions=ON_EXECUTORCH
        )
        if result.outcome.kind == "failed" and result.excused is None
    ]
    there.close()
    assert failures == []


@pytest.mark.peer
def test_a_process_that_ends_is_told_and_followed_by_another() -> None:
    there, call = Executorch(), Call(torch.neg, (torch.ones(2),), {})
    assert check([call], execute=there.run) == [Outcome("passed")]
    there._process.kill()
    (outcome,) = check([call], execute=there.run)
    assert outcome == Outcome("failed", "RuntimeError: ExecuTorch's process ended")
    assert check([call], execute=there.run) == [Outcome("passed")]
    there.close()


@pytest.mark.parametrize("entry", sorted(EXCEPTIONS), ids=str)
def test_exceptions_still_fail(entry: tuple[str, str]) -> None:
    operator, kind = entry
    dtype = torch.float32 if kind == "*" else getattr(torch, kind)
    assert stale(run(operator, 8, [dtype]), [entry]) == []


def test_a_stale_exception_is_found() -> None:
    call = Call(torch.neg, (torch.ones(2),), {})
    passed = Result("neg", torch.float32, call, Outcome("passed"), "no reason")
    assert stale([passed], [("neg", "*")]) == [("neg", "*")]


def test_a_wrong_result_is_found() -> None:
    """A call whose results change from run to run cannot agree."""
    seen: list[int] = []

    def grows(x: torch.Tensor) -> torch.Tensor:
        seen.append(0)
        return x + len(seen)

    (outcome,) = check([Call(grows, (torch.ones(2),), {})])
    assert outcome.kind == "failed"
    assert "values differ" in outcome.reason


@pytest.mark.parametrize(
    ("got", "exact", "count", "away"),
    [
        ([1.0, -0.0, float("nan")], [1.0, 0.0, float("nan")], 0, None),
        ([1.0, 2.0000002], [1.0, 2.0], 1, None),
        ([1.0, 2.000001], [1.0, 2.0], 1, 4.0),
        ([float("inf")], [3.0], 9, float("inf")),
        ([1.0], [float("nan")], 9, float("inf")),
        ([3e-45], [0.0], 1, 2.0),
    ],
)
def test_what_is_further_off_than_declared_is_found(
    got: list[float], exact: list[float], count: int, away: float | None
) -> None:
    y, want = torch.tensor(got), torch.tensor(exact)
    found = declared.worst(y, want, want.double(), Bound(count))
    assert (found[1] if found else None) == away


def test_results_of_one_kernel_have_its_row() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.exp(x).reshape(-1), torch.exp(x) + 1

    exported = torch.export.export(Two(), (torch.ones(2, 3),))
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[])
    one, several = declared.rows(edge.exported_program().graph)
    assert one == accuracy("aten::exp.out")
    assert several is None


def test_every_operator_is_in_the_table_of_samples() -> None:
    assert sorted(set(FORWARD) - set(table())) == []
    assert len(FORWARD) == len(set(FORWARD))
