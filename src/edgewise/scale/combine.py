"""A combination's way through the stages, and the row that comes of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from edgewise.scale.drive import Job
from edgewise.scale.plan import Combination
from edgewise.scale.searching import choose
from edgewise.scale.tasks import StageFailed, Tasks, known_data, one, value_of

Row = dict[str, Any]
"""A line of the result: plain data by column."""

MEASURED = frozenset(
    {"latency_ms", "latency_p90_ms", "lower_seconds", "peak_bytes", "host", "seconds"}
)
"""Columns that differ between runs and machines; all others are functions of the plan."""


def row_of(tasks: Tasks, combination: Combination) -> Job[Row]:
    """The combination's job. Whatever goes wrong in a stage is the row's result."""
    row: Row = {
        "model": combination.model.name,
        "backend": combination.backend,
        "quantize": combination.setting.name,
        "calibration": combination.calibration.name if combination.calibration else None,
        "status": "ok",
        "stage": None,
        "error": None,
    }
    try:
        yield from _fill(tasks, combination, row)
    except StageFailed as failed:
        outcome = failed.outcome
        row |= {"status": outcome.status, "stage": failed.stage, "error": outcome.error}
    return row


def _fill(tasks: Tasks, combination: Combination, row: Row) -> Job[None]:
    model = yield from one("load", tasks.load(combination.model))
    row["parameters"] = model["parameters"]
    calibration = yield from known_data(tasks, combination.calibration, pairs=False)
    if combination.setting.search is not None:
        found = yield from choose(tasks, combination, model, calibration)
        combination = found.combination
        row["keep_float"] = list(combination.setting.keep_float)
        row["trials"] = [
            {**asdict(trial), "keep_float": list(trial.keep_float)} for trial in found.trials
        ]
    (built,) = yield [tasks.build(combination, model, calibration)]
    made = value_of("build", built)
    row |= {**made, "peak_bytes": built.peak_bytes, "host": built.host}
    sets = combination.model.evaluation
    data = []
    for spec in sets:
        data.append((yield from known_data(tasks, spec, pairs=True)))
    asked = [
        tasks.evaluate(made["program"], model, one, tasks.plan.metrics, combination.name)
        for one in data
    ]
    # A simulator's time says nothing of the device.
    measured = tasks.plan.latency is not None and not combination.on_npu
    if measured:
        asked.append(tasks.measure(made["program"], model, combination.name))
    outcomes = yield asked
    for spec, outcome in zip(sets, outcomes, strict=False):
        prefix = f"{spec.name}: " if len(sets) > 1 else ""
        figures = value_of("evaluate", outcome)["figures"]
        row |= {prefix + name: figure for name, figure in figures.items()}
    if measured:
        value = value_of("measure", outcomes[-1])
        row |= {name: value[name] for name in ("latency_ms", "latency_p90_ms")}
