"""Jobs that ask for tasks: what is known is answered from the store, the rest is run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from edgewise.scale.engine import Engine
from edgewise.scale.store import Store
from edgewise.scale.task import Outcome, Task

T = TypeVar("T")
Job = Generator[Sequence[Task], list[Outcome], T]
"""Yields tasks that may run at once, is sent their outcomes, and returns a result."""

Again = Callable[[Task, Outcome], bool]
"""Whether a task is run again although the store has an outcome of it."""


@dataclass
class _Open(Generic[T]):
    """A job that waits for outcomes."""

    job: Job[T]
    outcomes: list[Outcome | None] = field(default_factory=list)
    has_begun: bool = False

    @property
    def is_ready(self) -> bool:
        return all(outcome is not None for outcome in self.outcomes)


class Drive(Generic[T]):
    """Runs jobs on an engine, some at a time, so that neither tasks nor results pile up.

    A task that several jobs ask for runs once. Every outcome is in the store before its job
    goes on: whoever starts again with the same jobs finds it there.
    """

    def __init__(self, engine: Engine, store: Store, again: Again | None = None) -> None:
        self._engine = engine
        self._store = store
        self._again = again or (lambda task, outcome: False)
        self._known = store.keys()
        self._waiting: dict[str, list[tuple[_Open[T], int]]] = {}
        self._ran: set[str] = set()
        self.executed = 0
        """Tasks that this run has run; the others were known."""
        self.open_jobs = 0
        """Jobs that have begun and not finished."""

    def run(self, jobs: Iterable[Job[T]]) -> Iterator[T]:
        """Results as jobs finish."""
        source = iter(jobs)
        finished: deque[T] = deque()
        room = 2 * self._engine.slots + 2
        while True:
            for job in islice(source, room - self.open_jobs):
                self.open_jobs += 1
                self._advance(_Open(job), finished)
            if self.open_jobs == 0:
                return
            if not finished:
                self._receive(finished)
            while finished:
                self.open_jobs -= 1
                yield finished.popleft()

    def _receive(self, finished: deque[T]) -> None:
        outcome = self._engine.next()
        self.executed += 1
        if outcome.status != "lost":
            self._store.keep(outcome)
            self._known.add(outcome.key)
            self._ran.add(outcome.key)
        for waiting, index in self._waiting.pop(outcome.key):
            waiting.outcomes[index] = outcome
            if waiting.is_ready:
                self._advance(waiting, finished)

    def _advance(self, opened: _Open[T], finished: deque[T]) -> None:
        """Sends a job what it waits for, until it waits for what must be run."""
        while opened.is_ready:
            try:
                given = [outcome for outcome in opened.outcomes if outcome is not None]
                tasks = opened.job.send(given) if opened.has_begun else next(opened.job)
                opened.has_begun = True
            except StopIteration as stop:
                finished.append(stop.value)
                return
            opened.outcomes = [None] * len(tasks)
            for index, task in enumerate(tasks):
                opened.outcomes[index] = self._recall(task)
                if opened.outcomes[index] is None:
                    self._ask(task, opened, index)

    def _recall(self, task: Task) -> Outcome | None:
        key = task.key
        if key not in self._known:
            return None
        outcome = self._store.standing(task)
        if outcome is not None and key not in self._ran and self._again(task, outcome):
            return None
        return outcome

    def _ask(self, task: Task, opened: _Open[T], index: int) -> None:
        waiting = self._waiting.setdefault(task.key, [])
        waiting.append((opened, index))
        if len(waiting) == 1:
            self._engine.submit(task)
