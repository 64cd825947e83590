"""The tasks of a plan, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgewise.scale.drive import Job
from edgewise.scale.plan import Combination, DataSpec, ModelSpec, Plan
from edgewise.scale.sources import content
from edgewise.scale.task import Outcome, Task
from edgewise.scale.versions import versions


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
        arguments: dict[str, Any] = {
            "source": model.source,
            "arguments": dict(model.arguments),
            "inputs": model.inputs,
            "content": self._content("load", model.source),
        }
        if model.inputs:
            arguments["inputs_content"] = self._content("load", model.inputs)
        return self._task("load", model.name, **arguments)

    def data(self, spec: DataSpec, pairs: bool) -> Task:
        found = self._content("data", spec.source)
        return self._task("data", spec.name, **_data(spec), content=found, pairs=pairs)

    def build(self, combination: Combination, model: Any, calibration: Any) -> Task:
        return self._task("build", combination.name, **_lowering(combination, model, calibration))

    def evaluate(
        self, program: str, model: Any, data: Any, metrics: Sequence[str], label: str
    ) -> Task:
        return self._task(
            "evaluate",
            label,
            program=program,
            model=model,
            data=data,
            metrics=list(metrics),
            content={name: self._content("evaluate", name) for name in metrics if ":" in name},
        )

    def sensitivity(
        self, combination: Combination, model: Any, calibration: Any, data: Any
    ) -> Task:
        lowering = _lowering(combination, model, calibration)
        return self._task("sensitivity", combination.name, **lowering, data=data)

    def measure(self, program: str, model: Any, label: str) -> Task:
        latency = self.plan.latency
        assert latency is not None
        return self._task(
            "measure", label, program=program, model=model, **asdict(latency), cpu=self.cpu
        )

    def _content(self, stage: str, source: str) -> str:
        """Of the source's file. StageFailed if it is not there."""
        try:
            return content(source, self.plan.root)
        except OSError as failure:
            raise StageFailed(stage, Outcome("", "error", error=str(failure))) from failure

    def _task(self, stage: str, label: str, **arguments: Any) -> Task:
        return Task(
            f"edgewise.scale.stages:{stage}",
            arguments,
            limits=self.plan.limits,
            exclusive=stage == "measure",
            versions=versions(),
            label=f"{stage} {label}",
        )


def one(stage: str, task: Task) -> Job[Any]:
    """The value of a task. StageFailed if there is none."""
    (outcome,) = yield [task]
    return value_of(stage, outcome)


def known_data(tasks: Tasks, spec: DataSpec | None, pairs: bool) -> Job[Any]:
    """What later stages are told of a data set: where it is, and its fingerprint."""
    if spec is None:
        return None
    if spec.version:
        return {**_data(spec), "data": f"version {spec.version}"}
    found = yield from one("data", tasks.data(spec, pairs))
    return {**_data(spec), "data": found["data"]}


def value_of(stage: str, outcome: Outcome) -> Any:
    if not outcome.ok:
        raise StageFailed(stage, outcome)
    return outcome.value


def _data(spec: DataSpec) -> dict[str, Any]:
    return {"source": spec.source, "arguments": dict(spec.arguments), "limit": spec.limit}


def _lowering(combination: Combination, model: Any, calibration: Any) -> dict[str, Any]:
    setting = combination.setting
    return {
        "model": model,
        "backend": combination.backend,
        "quantize": {
            "scheme": setting.scheme,
            "group_size": setting.group_size,
            "keep_float": list(setting.keep_float),
        },
        "calibration": calibration,
    }
