"""Which modules to keep in float: trials of growing sets, several at once, stopped early.

Modules are ranked by how much noise is gone if one alone is float (the simulation of
`edgewise.inspect`). Trial k compiles the model with the first k of them in float and compares
its file with the float model. It goes in rounds: in each, trials are compiled at once; those
that are clearly below the target on a quarter of the data are stopped there; the search ends
with the round that reaches the target, or that brings nothing more. Rounds do not depend on how
many workers there are: the same trials everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgewise.scale.drive import Job
from edgewise.scale.plan import Combination
from edgewise.scale.task import Outcome
from edgewise.scale.tasks import StageFailed, Tasks, known_data, one

ROUND = 3
"""Trials at once."""
MARGIN_DB = 3.0
"""So far below the target on a quarter of the data, a trial is given up."""
GAIN_DB = 0.5
"""A round that brings less ends a search without a target."""
TOLERANCE_DB = 1.0
"""Without a target: the smallest set that is so close to the best."""
_LEAST = 4
"""Batches on which a trial may be given up."""


@dataclass(frozen=True)
class Trial:
    """A set of modules in float. sqnr_db: None if it did not compile or run; `stopped`: on how
    many batches it was given up, 0 if it saw all."""

    keep_float: tuple[str, ...]
    sqnr_db: float | None
    size_bytes: int | None = None
    stopped: int = 0
    error: str = ""


@dataclass(frozen=True)
class Found:
    """The combination with its modules in float, and the trials in the order of their sets."""

    combination: Combination
    trials: tuple[Trial, ...]
    reached: bool


def choose(tasks: Tasks, combination: Combination, model: Any, calibration: Any) -> Job[Found]:
    """The search as a job. StageFailed if no trial came through."""
    search = combination.setting.search
    assert search is not None
    data = yield from known_data(tasks, combination.model.evaluation[0], pairs=True)
    ranked = yield from one("search", tasks.sensitivity(combination, model, calibration, data))
    names = [name for name, _, _ in ranked["modules"]][: search.limit]
    always = combination.setting.keep_float
    sets = [(*always, *names[:count]) for count in range(len(names) + 1)]
    trials: list[Trial] = []
    for start in range(0, len(sets), ROUND):
        best = _best(trials)
        chosen = [_with(combination, kept) for kept in sets[start : start + ROUND]]
        trials += yield from _round(tasks, chosen, model, calibration, data, search.target_db)
        if search.target_db is not None and _best(trials) >= search.target_db:
            break
        if search.target_db is None and start and _best(trials) < best + GAIN_DB:
            break
    picked = pick(trials, search.target_db)
    if picked is None:
        message = f"no trial came through: {trials[0].error}"
        raise StageFailed("search", Outcome("", "error", error=message))
    reached = search.target_db is None or _ratio(picked) >= search.target_db
    return Found(_with(combination, picked.keep_float), tuple(trials), reached)


def pick(trials: Sequence[Trial], target_db: float | None) -> Trial | None:
    """The smallest set that reaches the target; else the best, or close to it without one."""
    whole = [t for t in trials if t.sqnr_db is not None and not t.stopped]
    if not whole:
        return max((t for t in trials if t.sqnr_db is not None), key=_ratio, default=None)
    best = max(map(_ratio, whole))
    enough = best - TOLERANCE_DB if target_db is None else min(target_db, best)
    return next(trial for trial in whole if _ratio(trial) >= enough)


def _round(
    tasks: Tasks,
    chosen: Sequence[Combination],
    model: Any,
    calibration: Any,
    data: Mapping[str, Any],
    target_db: float | None,
) -> Job[list[Trial]]:
    built = yield [tasks.build(c, model, calibration) for c in chosen]
    made = {i: outcome.value for i, outcome in enumerate(built) if outcome.ok}
    trials = {
        i: Trial(chosen[i].setting.keep_float, None, error=outcome.error)
        for i, outcome in enumerate(built)
        if not outcome.ok
    }
    enough = -math.inf if target_db is None else target_db - MARGIN_DB
    few = (data.get("limit") or 0) // 4  # nobody may know how many there are
    # On a quarter of the data first, where that can tell; then (0) on all.
    for batches in (few, 0) if target_db is not None and few >= _LEAST else (0,):
        if not made:
            break
        seen = {**data, "limit": batches} if batches else data
        running = list(made)
        outcomes = yield [
            tasks.evaluate(made[i]["program"], model, seen, ["sqnr"], "trial") for i in running
        ]
        for i, outcome in zip(running, outcomes, strict=True):
            ratio = outcome.value["figures"]["SQNR dB"] if outcome.ok else None
            if batches and ratio is not None and ratio >= enough:
                continue
            stopped = 0 if ratio is None else batches
            size = made.pop(i)["size_bytes"]
            kept = chosen[i].setting.keep_float
            trials[i] = Trial(kept, ratio, size, stopped, outcome.error)
    return [trials[i] for i in sorted(trials)]


def _with(combination: Combination, kept: tuple[str, ...]) -> Combination:
    return replace(combination, setting=replace(combination.setting, keep_float=kept))


def _ratio(trial: Trial) -> float:
    return -math.inf if trial.sqnr_db is None else trial.sqnr_db


def _best(trials: Sequence[Trial]) -> float:
    return max((_ratio(trial) for trial in trials if not trial.stopped), default=-math.inf)
