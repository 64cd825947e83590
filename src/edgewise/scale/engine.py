"""Where tasks run: one small interface, with two implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from edgewise.scale.task import Outcome, Task, digest


@dataclass(frozen=True)
class Shared:
    """Bytes that many tasks are sent; `handle` is the engine's."""

    digest: str
    handle: Any


class Engine(Protocol):
    """Runs tasks in processes of their own; their outcomes come in any order, each once."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""

    def share(self, data: bytes) -> Shared:
        """For `Task.attachments`: sent to each worker once."""

    def submit(self, task: Task) -> None:
        """Queues a task."""

    def next(self) -> Outcome:
        """Waits for the next outcome. RuntimeError if no task is queued or running."""

    def close(self) -> None:
        """Ends workers and what they run."""


def shared(data: bytes, handle: Any) -> Shared:
    return Shared(digest(data), handle)


def run_all(
    engine: Engine, tasks: Iterable[Task], done: Callable[[Outcome], None] | None = None
) -> Iterator[Outcome]:
    """Outcomes in the order of the tasks, which are taken as there is room: neither tasks nor
    outcomes pile up. done: called for each as it comes."""
    source = enumerate(tasks)
    indices: dict[str, list[int]] = {}
    ready: dict[int, Outcome] = {}
    following = 0
    ended = False
    room = 2 * engine.slots
    while True:
        while not ended and len(indices) + len(ready) < room:
            found = next(source, None)
            if found is None:
                ended = True
                break
            index, task = found
            waiting = indices.setdefault(task.key, [])
            if not waiting:
                engine.submit(task)
            waiting.append(index)
        if following in ready:
            yield ready.pop(following)
            following += 1
        elif indices:
            outcome = engine.next()
            for index in indices.pop(outcome.key):
                ready[index] = outcome
            if done is not None:
                done(outcome)
        elif ended:
            return
