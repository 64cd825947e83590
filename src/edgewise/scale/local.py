"""Workers on this machine."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence

from edgewise.scale.engine import Engine
from edgewise.scale.supervisor import Supervisor
from edgewise.scale.task import Context, Outcome, Shared, Task, digest


class LocalEngine(Engine):
    """Processes of this machine. workers: how many tasks at once; None: one for each CPU.

    context: what tasks are told. preload: modules that each worker imports before its first
    task. A worker starts with its first task.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        context: Context | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"[LocalEngine] workers must be at least 1; got {workers}")
        self._slots = workers or len(os.sched_getaffinity(0))
        self._context = context or Context()
        self._preload = preload
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self._open = 0
        self._supervisors: list[Supervisor] = []
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def slots(self) -> int:
        return self._slots

    def share(self, data: bytes) -> Shared:
        return Shared(digest(data), data)

    def submit(self, task: Task) -> None:
        if self._closed:
            raise RuntimeError("[LocalEngine] the engine is closed")
        self._open += 1
        self._tasks.put(task)
        if len(self._threads) < min(self._slots, self._open):
            supervisor = Supervisor(self._preload)
            thread = threading.Thread(target=self._work, args=(supervisor,), daemon=True)
            self._supervisors.append(supervisor)
            self._threads.append(thread)
            thread.start()

    def next(self) -> Outcome:
        if not self._open:
            raise RuntimeError("[LocalEngine] no task is queued or running")
        outcome = self._outcomes.get()
        self._open -= 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._tasks.put(None)
        # Workers end when their input does; a task that runs is killed.
        for supervisor in self._supervisors:
            supervisor.close()

    def _work(self, supervisor: Supervisor) -> None:
        while (task := self._tasks.get()) is not None and not self._closed:
            try:
                self._outcomes.put(supervisor.run(task, self._context))
            except BaseException as failure:
                self._outcomes.put(failure)
