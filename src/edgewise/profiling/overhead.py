"""What recording itself costs."""

from __future__ import annotations

from edgewise.profiling.summary import MethodSummary
from edgewise.runtime import _native


def overhead(summary: MethodSummary) -> float:
    """Microseconds that recording adds to a run: its events by what one costs on this machine,
    measured now. benchmarks/profiling.py measures it on whole models."""
    events = sum(len(run.events) for run in summary.runs.runs)
    cost = min(_native.profile_cost() for _ in range(5))  # the others were disturbed
    return events / max(len(summary.runs.runs), 1) * cost / 1e3
