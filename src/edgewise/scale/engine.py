"""Where tasks run: one small interface, with two implementations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from edgewise.scale.task import Outcome, Shared, Task

if TYPE_CHECKING:
    from typing_extensions import Self


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_all(engine: Engine, tasks: Iterable[Task]) -> Iterator[Outcome]:
    """Outcomes in the order of the tasks, which are taken as there is room: neither tasks nor
    outcomes pile up. Equal tasks that are there at once run once."""
    source = iter(tasks)
    asked: deque[str] = deque()
    found: dict[str, Outcome] = {}
    while True:
        for task in islice(source, 2 * engine.slots - len(asked)):
            key = task.key
            if key not in asked:
                engine.submit(task)
            asked.append(key)
        if not asked:
            return
        while asked[0] not in found:
            outcome = engine.next()
            found[outcome.key] = outcome
        key = asked.popleft()
        yield found[key] if key in asked else found.pop(key)
