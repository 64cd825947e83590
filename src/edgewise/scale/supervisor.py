"""Runs tasks one after another in processes of their own, and ends what passes its limits."""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgewise.scale.machine import turn
from edgewise.scale.process import END, LOG, REQUEST, RESULT, kill_task
from edgewise.scale.task import Limits, Outcome, Status, Task

RETRIES = 3
"""How often a task whose worker was lost is tried again."""
_POLL = 0.05
_LOG_LINES = 12


class WorkerLost(Exception):
    """The process that forks tasks is gone; nothing is known of the task."""


@dataclass(frozen=True)
class Context:
    """What a task's function is told besides its arguments: where things are, no content.

    store: the location of a `Store`, or "". root: the folder that paths of sources start from.
    files: of attachments, by name.
    """

    store: str = ""
    root: str = "."
    files: Mapping[str, str] = field(default_factory=dict)

    def attachment(self, name: str) -> bytes:
        return Path(self.files[name]).read_bytes()


class Supervisor:
    """One worker. preload: modules that are imported before the first task,
    and functions, "module:name", that are called."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = list(preload)
        self._server: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._closed = False
        self._scratch = Path(tempfile.mkdtemp(prefix="edgewise-worker-"))
        self._shared: dict[str, str] = {}

    def run(self, task: Task, context: Context, shared: Mapping[str, bytes]) -> Outcome:
        """Waits for its turn and runs the task; again, up to `RETRIES` times, if the worker
        was lost. shared: attachments by their digests, kept for later tasks."""
        key = task.key
        for _ in range(1 + RETRIES):
            try:
                self._start()
                with turn(task.exclusive):
                    return self._attempt(key, task, context, shared)
            except WorkerLost:
                if self._closed:
                    raise
                self._stop()
        message = f"its worker was lost {1 + RETRIES} times"
        return Outcome(key, "lost", error=message, host=socket.gethostname(), limits=task.limits)

    @property
    def process(self) -> int | None:
        """Of the process that forks."""
        return self._server.pid if self._server else None

    def close(self) -> None:
        """Ends the worker and the task that it runs; `run` raises WorkerLost in its thread."""
        self._closed = True
        self._stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None
        with suppress(OSError, ValueError):
            server.stdin.write(json.dumps({END: True}).encode() + b"\n")
            server.stdin.close()
        try:
            server.wait(2)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def _start(self) -> None:
        if self._closed:
            raise WorkerLost
        if self._server is not None:
            return
        environment = {
            **os.environ,
            # One thread: nothing to go wrong in a fork, and the same sums everywhere.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        self._server = subprocess.Popen(
            [sys.executable, "-m", "edgewise.scale.process", str(self._scratch), *self._preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._buffer = b""
        self._read()

    def _attempt(
        self, key: str, task: Task, context: Context, shared: Mapping[str, bytes]
    ) -> Outcome:
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            files = self._files(folder, task.attachments, shared)
            request = {
                "function": task.function,
                "arguments": dict(task.arguments),
                "context": replace(context, files=files),
            }
            (folder / REQUEST).write_bytes(pickle.dumps(request))
            start = time.monotonic()
            self._write({"folder": str(folder)})
            child = int(self._read()["started"])
            passed = self._watch(child, task.limits, start)
            ended = self._read()
            status, value, error = _verdict(folder, int(ended["status"]), passed)
            return Outcome(
                key,
                status,
                value,
                error,
                seconds=time.monotonic() - start,
                peak_bytes=int(ended["peak"]),
                host=socket.gethostname(),
                limits=task.limits,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _files(
        self, folder: Path, attachments: Mapping[str, Any], shared: Mapping[str, bytes]
    ) -> dict[str, str]:
        files: dict[str, str] = {}
        for name, content in attachments.items():
            if isinstance(content, bytes):
                files[name] = str(folder / f"attached-{len(files)}")
                Path(files[name]).write_bytes(content)
                continue
            if content.digest not in self._shared:
                path = self._scratch / f"shared-{content.digest}"
                path.write_bytes(shared[content.digest])
                self._shared[content.digest] = str(path)
            files[name] = self._shared[content.digest]
        return files

    def _watch(self, child: int, limits: Limits, start: float) -> tuple[Status, str] | None:
        """Until the server has something to say; what was passed, if anything was."""
        output = self._output()
        passed: tuple[Status, str] | None = None
        while not self._buffer:
            bounded = limits.bytes is not None or limits.seconds is not None
            wait = _POLL if bounded and passed is None else None
            if select.select([output], [], [], wait)[0]:
                break
            used = resident_bytes(child) if limits.bytes is not None else 0
            if limits.bytes is not None and used > limits.bytes:
                passed = ("memory", f"more than its {_size(limits.bytes)} of memory")
            elif limits.seconds is not None and time.monotonic() - start > limits.seconds:
                passed = ("time", f"longer than its {limits.seconds:g} s")
            if passed is not None:
                kill_task(child)
        return passed

    def _output(self) -> int:
        server = self._server
        if server is None or server.stdout is None:
            raise WorkerLost
        return server.stdout.fileno()

    def _write(self, line: dict[str, Any]) -> None:
        server = self._server
        if server is None or server.stdin is None:
            raise WorkerLost
        try:
            server.stdin.write((json.dumps(line) + "\n").encode())
            server.stdin.flush()
        except (OSError, ValueError) as failure:  # a pipe that is broken, or closed
            raise WorkerLost from failure

    def _read(self) -> dict[str, Any]:
        output = self._output()
        while b"\n" not in self._buffer:
            data = os.read(output, 4096)
            if not data:
                raise WorkerLost
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def resident_bytes(process: int) -> int:
    """Of a process and those that it started; 0 if it is gone."""
    total = 0
    pending = [process]
    page = os.sysconf("SC_PAGE_SIZE")
    while pending:
        one = pending.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * page
            for thread in Path(f"/proc/{one}/task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue
    return total


def _verdict(
    folder: Path, status: int, passed: tuple[Status, str] | None
) -> tuple[Status, Any, str]:
    if (folder / RESULT).exists() and status == 0:
        # By the child, into a folder that is this process's own.
        answer = (folder / RESULT).read_bytes()
        found: tuple[Status, Any, str] = pickle.loads(answer)  # noqa: S301
        return found
    if passed is not None:
        return passed[0], None, passed[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        text = f"killed by {signal.Signals(number).name} ({signal.strsignal(number)})"
        if number == signal.SIGKILL:
            text += "; perhaps the system was out of memory"
    else:
        text = f"ended with exit code {os.waitstatus_to_exitcode(status)}"
    if not (folder / LOG).exists():
        return "crash", None, f"{text}, and could write no log; is the folder {folder.parent} full?"
    log = _tail(folder / LOG)
    return "crash", None, f"{text}{'; last lines: ' + log if log else ''}"


def _tail(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_LINES:])


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.3g} MiB"
