"""A whole plan: every combination's row, kept, shown and written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.scale.combine import Row, row_of
from edgewise.scale.drive import Drive
from edgewise.scale.engine import Engine
from edgewise.scale.local import LocalEngine
from edgewise.scale.plan import Plan
from edgewise.scale.plan_file import make_plan, read_plan
from edgewise.scale.rows import Tables
from edgewise.scale.store import Store
from edgewise.scale.task import Context, Outcome, Task
from edgewise.scale.tasks import Tasks
from edgewise.scale.versions import cpu

PRELOAD = (
    "edgewise.scale.stages",
    "edgewise.scale.warm:backends",
    "edgewise.report",
    "edgewise.scale.warm:lowering",
)
"""What workers do once; tasks are forked behind it."""
_REFRESH = 5.0
"""Seconds between writing the tables while rows come in."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is. seconds_left: from the rows so far; None before the first."""

    done: int
    total: int
    seconds_left: float | None


@dataclass(frozen=True)
class SweepResult:
    """rows: in the order of the plan. executed: tasks that were run, not known before."""

    rows: list[Row]
    location: str
    executed: int

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row["status"] != "ok"]


def sweep(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    ray: str | None = None,
    workers: int | None = None,
    retry_errors: bool = False,
    reload: bool = False,
    parquet: bool = False,
    on_row: Callable[[Row, Progress], None] | None = None,
) -> SweepResult:
    """Runs what is not known yet; writes `rows.jsonl` (or Parquet) and `index.html`.

    plan: one, a mapping as in a plan's file, or the file's path. out: a folder, or a location of
    fsspec; None: the plan's. ray: the address of a cluster; None: `workers` processes here, one
    for each CPU by default. engine: instead of both; its context must name this store.
    retry_errors: rows that failed are tried again. reload: models and data are made anew, for
    functions that read what the plan does not see. on_row: called as rows finish. PlanError for
    a plan that cannot be run; KeyboardInterrupt leaves whole files.
    """
    if not isinstance(plan, Plan):
        plan = make_plan(plan) if isinstance(plan, Mapping) else read_plan(plan)
    store = Store(location_of(plan, out))
    combinations = plan.combinations
    tables = Tables(plan, store, parquet=parquet)
    rows: dict[int, Row] = {}
    started = written = time.monotonic()

    def again(task: Task, outcome: Outcome) -> bool:
        is_source = task.function.endswith((":load", ":data"))
        return (retry_errors and not outcome.ok) or (reload and is_source)

    def jobs(tasks: Tasks) -> Iterator[Any]:
        for index, combination in enumerate(combinations):
            yield _numbered(index, row_of(tasks, combination))

    with engine_for(plan, store, engine, ray, workers) as chosen:
        drive: Drive[tuple[int, Row]] = Drive(chosen, store, again)
        try:
            for index, row in drive.run(jobs(Tasks(plan, cpu()))):
                rows[index] = row
                now = time.monotonic()
                if now - written > _REFRESH:
                    tables.write(_ordered(rows), len(combinations))
                    written = time.monotonic()
                if on_row is not None:
                    # What is being worked on counts half.
                    reached = len(rows) + drive.open_jobs / 2
                    left = (now - started) / reached * (len(combinations) - reached)
                    on_row(row, Progress(len(rows), len(combinations), max(0.0, left)))
        finally:
            tables.write(_ordered(rows), len(combinations))
    return SweepResult(_ordered(rows), store.location, drive.executed)


def location_of(plan: Plan, out: str | os.PathLike[str] | None = None) -> str | os.PathLike[str]:
    """Where results go: `out`, else where the plan says, from its own folder."""
    if out is not None:
        return out
    return plan.out if "://" in plan.out else str(Path(plan.root, plan.out))


@contextmanager
def engine_for(
    plan: Plan, store: Store, engine: Engine | None, ray: str | None, workers: int | None
) -> Iterator[Engine]:
    """The one that is given, or one that is closed at the end: of this machine, or of a cluster,
    whose workers are brought the plan's folder. RuntimeError if those have other versions of
    packages, or do not see the store."""
    if engine is not None:
        yield engine
        return
    context = Context(store.location, plan.root)
    if not ray:
        with LocalEngine(workers, context=context, preload=PRELOAD) as here:
            yield here
        return
    from edgewise.scale.ray_engine import RayEngine

    excluded = [".git", ".venv", "__pycache__"]
    if store.is_local:
        inside = os.path.relpath(store.location, plan.root)
        excluded += [] if inside.startswith("..") else [inside]
    with RayEngine(
        ray, context=context, preload=PRELOAD, working_dir=plan.root, excludes=excluded
    ) as there:
        there.check(store)
        yield there


def _numbered(index: int, job: Any) -> Any:
    row = yield from job
    return index, row


def _ordered(rows: Mapping[int, Row]) -> list[Row]:
    return [rows[index] for index in sorted(rows)]
