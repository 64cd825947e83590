"""A worker: runs tasks one after another in processes of their own."""

from __future__ import annotations

import pickle
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from edgewise import workers
from edgewise.scale.machine import turn
from edgewise.scale.task import Context, Outcome, Task

RETRIES = 3
"""How often a task whose worker was lost is tried again."""


class Supervisor:
    """One worker. preload: modules that are imported before the first task, and functions,
    "module:name", that are called."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = preload
        self._server: subprocess.Popen[bytes] | None = None
        self._held: set[str] = set()
        self._closed = False

    def run(self, task: Task, context: Context) -> Outcome:
        """Waits for its turn and runs the task; again, up to `RETRIES` times, if the process that
        forks was lost. Handles of what is shared are the bytes."""
        for _ in range(1 + RETRIES):
            with turn(task.exclusive):
                outcome = self._attempt(task, context)
            if outcome is not None:
                return outcome
        message = f"its worker was lost {1 + RETRIES} times"
        host = socket.gethostname()
        return Outcome(task.key, "lost", error=message, host=host, limits=task.limits)

    def close(self) -> None:
        """Ends the worker and the task that it runs."""
        self._closed = True
        self._stop()

    def _attempt(self, task: Task, context: Context) -> Outcome | None:
        """None if the process that forks was lost."""
        server = self._running()
        if server is None:
            return None
        assert server.stdin is not None
        assert server.stdout is not None
        sent = {d: None if d in self._held else data for d, data in task.shared.items()}
        try:
            pickle.dump((task.with_handles(sent), context), server.stdin)
            server.stdin.flush()
            # Of our own process, like the answer within: of the task, which alone knows its types.
            outcome: Outcome = pickle.load(server.stdout)  # noqa: S301
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._stop()
            return None
        except BaseException:  # the answer belongs to no later task
            self._stop()
            raise
        self._held = {*sent}
        if not outcome.ok:
            return outcome
        status, value, error = pickle.loads(outcome.value)  # noqa: S301
        return replace(outcome, status=status, value=value, error=error)

    def _running(self) -> subprocess.Popen[bytes] | None:
        if self._server is None and not self._closed:
            self._server = workers.start("edgewise.scale.process", *self._preload)
            self._held = set()
        if self._closed:  # perhaps since
            self._stop()
        return self._server

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None
        assert server.stdout is not None
        with suppress(OSError):  # what was not yet written
            server.stdin.close()
        try:
            server.wait(2)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()  # not before: another thread may read it
