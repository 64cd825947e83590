"""A combination's way through the stages, and the row that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.scale.drive import Job
from edgewise.scale.plan import Combination, DataSpec, ModelSpec, Plan, Setting
from edgewise.scale.sources import content
from edgewise.scale.task import Outcome, Task
from edgewise.scale.versions import versions

Row = dict[str, Any]
"""A line of the result: plain data by column."""

MEASURED = frozenset(
    {"latency_ms", "latency_p90_ms", "lower_seconds", "peak_bytes", "host", "seconds"}
)
"""Columns that differ between runs and machines; all others are functions of the plan."""


class StageFailed(Exception):
    """What a stage was told instead of a value."""

    def __init__(self, stage: str, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.stage, self.outcome = stage, outcome


@dataclass(frozen=True)
class Tasks:
    """The tasks of a plan, by what earlier ones found. cpu: of whatever measures."""

    plan: Plan
    cpu: str = ""

    def load(self, model: ModelSpec) -> Task:
        root = self.plan.root
        arguments: dict[str, Any] = {
            "source": model.source,
            "arguments": dict(model.arguments),
            "inputs": model.inputs,
            "content": content(model.source, root),
        }
        if model.inputs:
            arguments["inputs_content"] = content(model.inputs, root)
        return self._task("load", arguments, model.name)

    def data(self, spec: DataSpec, pairs: bool) -> Task:
        found = content(spec.source, self.plan.root)
        arguments = {**_data(spec), "content": found, "pairs": pairs}
        return self._task("data", arguments, spec.name)

    def build(self, combination: Combination, model: Any, calibration: Any) -> Task:
        setting = combination.setting
        arguments = {
            "model": model,
            "backend": combination.backend,
            "quantize": _quantize(setting),
            "calibration": calibration,
        }
        return self._task("build", arguments, combination.name)

    def evaluate(
        self, program: str, model: Any, data: Any, metrics: Sequence[str], label: str
    ) -> Task:
        root = self.plan.root
        arguments = {
            "program": program,
            "model": model,
            "data": data,
            "metrics": list(metrics),
            "content": {name: content(name, root) for name in metrics if ":" in name},
        }
        return self._task("evaluate", arguments, label)

    def sensitivity(
        self, combination: Combination, model: Any, calibration: Any, data: Any
    ) -> Task:
        arguments = {
            "model": model,
            "backend": combination.backend,
            "quantize": _quantize(combination.setting),
            "calibration": calibration,
            "data": data,
        }
        return self._task("sensitivity", arguments, combination.name)

    def measure(self, program: str, model: Any, label: str) -> Task:
        latency = self.plan.latency
        assert latency is not None
        arguments = {
            "program": program,
            "model": model,
            "threads": latency.threads,
            "seconds": latency.seconds,
            "cpu": self.cpu,
        }
        return self._task("measure", arguments, label, exclusive=True)

    def _task(
        self, stage: str, arguments: Mapping[str, Any], label: str, exclusive: bool = False
    ) -> Task:
        return Task(
            f"edgewise.scale.stages:{stage}",
            arguments,
            limits=self.plan.limits,
            exclusive=exclusive,
            versions=versions(),
            label=f"{stage} {label}",
        )


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
        row |= {
            "status": failed.outcome.status,
            "stage": failed.stage,
            "error": failed.outcome.error,
        }
    return row


def _fill(tasks: Tasks, combination: Combination, row: Row) -> Job[None]:
    model = yield from one("load", source_task(tasks.load, combination.model, "load"))
    row["parameters"] = model["parameters"]
    calibration = yield from known_data(tasks, combination.calibration, pairs=False)
    if combination.setting.search is not None:
        from edgewise.scale.searching import choose

        found = yield from choose(tasks, combination, model, calibration)
        combination = found.combination
        row["keep_float"] = list(combination.setting.keep_float)
        row["trials"] = found.trials
    (built,) = yield [tasks.build(combination, model, calibration)]
    made = _value("build", built)
    row |= {
        "size_bytes": made["size_bytes"],
        "delegates": made["delegates"],
        **{f"delegated_{quantity}": share for quantity, share in made["delegated"].items()},
        "refused": made["refused"],
        "npu_cycles": made.get("npu_cycles"),
        "npu_ms": made.get("npu_ms"),
        "lower_seconds": made["lower_seconds"],
        "peak_bytes": built.peak_bytes,
        "host": built.host,
        "program": made["program"],
        "report": made["report"],
    }
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
        figures = _value("evaluate", outcome)["figures"]
        row |= {prefix + name: figure for name, figure in figures.items()}
    if measured:
        value = _value("measure", outcomes[-1])
        row |= {name: value[name] for name in ("latency_ms", "latency_p90_ms")}


def one(stage: str, task: Task) -> Job[Any]:
    """The value of a task. StageFailed if there is none."""
    (outcome,) = yield [task]
    return _value(stage, outcome)


def known_data(tasks: Tasks, spec: DataSpec | None, pairs: bool) -> Job[Any]:
    """What later stages are told of a data set: where it is, and its fingerprint."""
    if spec is None:
        return None
    if spec.version:
        return {**_data(spec), "data": f"version {spec.version}"}
    task = source_task(lambda one: tasks.data(one, pairs), spec, "data")
    found = yield from one("data", task)
    return {**_data(spec), "data": found["data"]}


def source_task(make: Any, spec: Any, stage: str) -> Task:
    """A task that reads a source. StageFailed if its file is not there."""
    try:
        task: Task = make(spec)
        return task
    except OSError as failure:
        raise StageFailed(stage, Outcome("", "error", error=str(failure))) from failure


def _value(stage: str, outcome: Outcome) -> Any:
    if not outcome.ok:
        raise StageFailed(stage, outcome)
    return outcome.value


def _data(spec: DataSpec) -> dict[str, Any]:
    return {"source": spec.source, "arguments": dict(spec.arguments), "limit": spec.limit}


def _quantize(setting: Setting) -> dict[str, Any]:
    return {
        "scheme": setting.scheme,
        "group_size": setting.group_size,
        "keep_float": list(setting.keep_float),
    }
