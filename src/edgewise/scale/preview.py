"""What a sweep would do: its combinations, what each needs, how far it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgewise.registry import backend_for
from edgewise.scale.combine import row_of
from edgewise.scale.plan import Combination, Plan
from edgewise.scale.store import Store
from edgewise.scale.tasks import Tasks
from edgewise.scale.versions import cpu


@dataclass(frozen=True)
class Preview:
    """stage: the first that would be run; "" if all is known. needs: data and the machine.
    problem: why it cannot come to anything, as far as that is known beforehand; "" if it can."""

    combination: Combination
    stage: str
    needs: tuple[str, ...]
    problem: str


def preview(plan: Plan, store: Store) -> Iterator[Preview]:
    """In the order of the plan. Runs nothing."""
    tasks = Tasks(plan, cpu())
    known = store.keys()
    for combination in plan.combinations:
        yield Preview(
            combination,
            _first_unknown(tasks, combination, store, known),
            tuple(_needs(plan, combination)),
            combination.impossible or _not_installed(combination.backend),
        )


def _first_unknown(tasks: Tasks, combination: Combination, store: Store, known: set[str]) -> str:
    job = row_of(tasks, combination)
    try:
        asked = next(job)
        while True:
            outcomes = []
            for task in asked:
                outcome = store.standing(task) if task.key in known else None
                if outcome is None:
                    return task.function.rpartition(":")[2]
                outcomes.append(outcome)
            asked = job.send(outcomes)
    except StopIteration:
        return ""


def _needs(plan: Plan, combination: Combination) -> Iterator[str]:
    if combination.calibration is not None:
        yield f"calibration{_count(combination.calibration.limit)}"
    runs = "simulated" if combination.on_npu else "native"
    for spec in combination.model.evaluation:
        yield f"{spec.name}{_count(spec.limit)} {runs}"
    if plan.latency is not None and not combination.on_npu:
        yield "latency alone"


def _count(limit: int | None) -> str:
    return "" if limit is None else f" x {limit}"


def _not_installed(target: str) -> str:
    backend = backend_for(target)
    return backend.missing(target) if backend is not None else ""
