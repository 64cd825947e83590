"""Jobs and what they ask for: known, run once, kept; and the search that is made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from edgewise.scale.drive import Drive
from edgewise.scale.plan import Combination, DataSpec, ModelSpec, Plan, Search, Setting
from edgewise.scale.searching import Trial, choose, pick
from edgewise.scale.store import Store
from edgewise.scale.task import Limits, Outcome, Task
from edgewise.scale.tasks import StageFailed, Tasks


class InProcess:
    """An engine that answers tasks from a function, the last first."""

    slots = 2

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.queue: deque[Task] = deque()
        self.seen: list[Any] = []
        self.longest = 0

    def share(self, data: bytes) -> Any:
        raise NotImplementedError

    def submit(self, task: Task) -> None:
        self.queue.append(task)
        self.longest = max(self.longest, len(self.queue))

    def next(self) -> Outcome:
        task = self.queue.pop()
        self.seen.append(task.arguments["x"])
        return self.answer(task)

    def close(self) -> None:
        pass


def ok(task: Task) -> Outcome:
    return Outcome(task.key, "ok", task.arguments["x"] * 10)


def task(x: int, **more: Any) -> Task:
    return Task("m:f", {"x": x}, **more)


def job(*rounds: list[int]) -> Generator[list[Task], list[Outcome], list[Any]]:
    """Asks for the tasks of each round; returns all values."""
    values = []
    for numbers in rounds:
        outcomes = yield [task(x) for x in numbers]
        values += [o.value if o.ok else o.status for o in outcomes]
    return values


def test_jobs_get_what_they_asked_for_in_their_order(tmp_path: Path) -> None:
    engine = InProcess(ok)
    drive: Drive[list[Any]] = Drive(engine, Store(tmp_path))
    results = list(drive.run([job([1, 2, 3], [4]), job([], [2, 5]), job([3], [3], [1])]))
    assert sorted(results) == [[10, 20, 30, 40], [20, 50], [30, 30, 10]]
    assert sorted(engine.seen) == [1, 2, 3, 4, 5], "what two ask for runs once"
    assert drive.executed == 5


def test_what_is_known_is_not_run(tmp_path: Path) -> None:
    first = Drive[list[Any]](InProcess(ok), Store(tmp_path))
    list(first.run([job([1, 2], [3])]))
    engine = InProcess(ok)
    again = Drive[list[Any]](engine, Store(tmp_path))
    assert list(again.run([job([1, 2], [3, 4])])) == [[10, 20, 30, 40]]
    assert engine.seen == [4]


def test_stopped_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    def stopped(one: Task) -> Outcome:
        if one.arguments["x"] == 3:
            raise KeyboardInterrupt
        return ok(one)

    first = InProcess(stopped)
    with pytest.raises(KeyboardInterrupt):
        list(Drive[list[Any]](first, Store(tmp_path)).run([job([1], [2], [3], [4])]))
    second = InProcess(ok)
    found = list(Drive[list[Any]](second, Store(tmp_path)).run([job([1], [2], [3], [4])]))
    assert found == [[10, 20, 30, 40]]
    assert (first.seen, second.seen) == ([1, 2, 3], [3, 4])


@pytest.mark.parametrize(
    ("status", "limits", "retry", "runs_again"),
    [
        ("error", Limits(5), False, False),
        ("error", Limits(5), True, True),
        ("crash", Limits(5), False, False),
        ("time", Limits(5), False, False),
        ("time", Limits(6), False, True),
        ("lost", Limits(5), False, True),
    ],
)
def test_failures_are_results(
    tmp_path: Path, status: Any, limits: Limits, retry: bool, runs_again: bool
) -> None:
    def fails(one: Task) -> Outcome:
        return Outcome(one.key, status, error="why", limits=one.limits)

    def asks(limits: Limits) -> Generator[list[Task], list[Outcome], str]:
        (outcome,) = yield [task(1, limits=limits)]
        return outcome.status

    assert list(Drive[str](InProcess(fails), Store(tmp_path)).run([asks(Limits(5))])) == [status]
    engine = InProcess(ok)
    drive = Drive[str](engine, Store(tmp_path), lambda _, outcome: retry and not outcome.ok)
    assert list(drive.run([asks(limits)])) == ["ok" if runs_again else status]


def test_queues_stay_short(tmp_path: Path) -> None:
    engine = InProcess(ok)
    made = 0

    def jobs() -> Any:
        nonlocal made
        for x in range(200):
            made += 1
            yield job([x], [x + 1000])

    drive: Drive[list[Any]] = Drive(engine, Store(tmp_path))
    for count, _ in enumerate(drive.run(jobs())):
        assert made - count <= 2 * engine.slots + 3
    assert made == 200
    assert engine.longest <= 2 * engine.slots + 2


def search_plan(target: float | None, limit: int = 6) -> tuple[Tasks, Combination]:
    data = DataSpec("e", "z.py:e", limit=40, version="1")
    model = ModelSpec("m", "z.py:m", evaluation=(data,))
    setting = Setting("s", "int8", search=Search(target, limit))
    plan = Plan((model,), ("xnnpack",), (setting,), ("sqnr",))
    return Tasks(plan), Combination(model, "xnnpack", setting, None)


@pytest.mark.parametrize(
    ("ratios", "target", "kept", "sizes", "stopped"),
    [
        # The first round reaches the target: nothing of the second is tried.
        ([20.0, 28.0, 31.0, 35.0], 30.0, 2, [0, 1, 2], [10, 0, 0]),
        # Those far below the target are given up on a quarter of the data.
        ([10.0, 12.0, 20.0, 26.0, 31.0], 30.0, 4, [0, 1, 2, 3, 4, 5], [10, 10, 10, 10, 0, 0]),
        # Without a target: until a round brings nothing; the smallest set near the best.
        ([20.0, 30.0, 34.5, 34.6, 34.7, 34.8], None, 2, [0, 1, 2, 3, 4, 5], [0] * 6),
        # Not reached: the best that was tried.
        ([10.0, 12.0, 20.0, 26.0, 27.5, 28.0, 28.5], 30.0, 6, list(range(7)), [10] * 4 + [0] * 3),
    ],
)
def test_search(
    ratios: list[float], target: float | None, kept: int, sizes: list[int], stopped: list[int]
) -> None:
    values = ratios + [ratios[-1]] * 8

    def answer(one: Task) -> Outcome:
        stage = one.function.rpartition(":")[2]
        if stage == "sensitivity":
            return Outcome(one.key, "ok", {"modules": [[f"l{i}", "Linear", 0.1] for i in range(9)]})
        if stage == "build":
            count = len(one.arguments["quantize"]["keep_float"])
            return Outcome(one.key, "ok", {"program": str(count), "size_bytes": 100 + count})
        value = values[int(one.arguments["program"])]
        return Outcome(one.key, "ok", {"figures": {"SQNR dB": value}})

    tasks, combination = search_plan(target)
    search = choose(tasks, combination, {"model": "x"}, None)
    asked = next(search)
    try:
        while True:
            asked = search.send([answer(one) for one in asked])
    except StopIteration as stop:
        found = stop.value
    assert [len(t.keep_float) for t in found.trials] == sizes
    assert [t.stopped for t in found.trials] == stopped
    assert found.combination.setting.keep_float == tuple(f"l{i}" for i in range(kept))
    assert found.reached == (target is None or ratios[-1] >= target)


def test_a_search_without_a_trial_says_why() -> None:
    tasks, combination = search_plan(30.0)
    search = choose(tasks, combination, {"model": "x"}, None)
    (ranking,) = next(search)
    modules = {"modules": [["l", "Linear", 1.0]]}
    builds = search.send([Outcome(ranking.key, "ok", modules)])
    with pytest.raises(StageFailed, match=r"no trial came through: \[compile\] no"):
        search.send([Outcome(one.key, "error", error="[compile] no") for one in builds])


def test_the_trial_that_is_picked() -> None:
    trials = [Trial((), 10.0, stopped=4), Trial(("a",), 29.0), Trial(("a", "b"), 33.0)]
    assert pick(trials, 30.0) is trials[2]
    assert pick(trials, 28.0) is trials[1]
    assert pick(trials, 40.0) is trials[2]
    assert pick(trials[:1], 40.0) is trials[0]
    assert pick([Trial((), None, error="no")], None) is None
