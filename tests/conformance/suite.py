"""All calls of an operator and their outcomes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import samples
import torch
from exceptions import EXCEPTIONS, reason
from runner import Execute, Outcome, check
from samples import Call

from operators import BACKWARD, RANDOM


@dataclass(frozen=True)
class Result:
    """One call, with the reason why it may fail if there is one."""

    operator: str
    dtype: torch.dtype
    call: Call
    outcome: Outcome
    excused: str | None

    def describe(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{self.operator}, {kind}: {self.outcome.reason} <- {self.call.describe()[:200]}"


def run(
    operator: str,
    limit: int,
    dtypes: Sequence[torch.dtype] = samples.DTYPES,
    execute: Execute | None = None,
    exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS,
) -> list[Result]:
    """At most `limit` calls for each type. Calls that torch cannot export are left out. execute: on
    another runtime."""
    results = []
    for dtype in dtypes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if operator in BACKWARD:
                target = getattr(torch.ops.aten, operator).default
                calls = samples.backward_calls(target, BACKWARD[operator], dtype, limit)
            else:
                calls = samples.calls(operator, dtype, limit)
        outcomes = check(calls, operator in RANDOM, execute)
        results += [
            Result(operator, dtype, call, outcome, reason(operator, dtype, exceptions))
            for call, outcome in zip(calls, outcomes, strict=True)
            if outcome.kind != "not exported"
        ]
    return results


def stale(results: Sequence[Result], entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The entries of the exceptions none of whose calls failed."""
    failing = {
        (r.operator, kind)
        for r in results
        if r.outcome.kind == "failed"
        for kind in ("*", str(r.dtype).removeprefix("torch."))
    }
    return [entry for entry in entries if entry not in failing]
