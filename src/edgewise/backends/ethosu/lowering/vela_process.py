"""Vela in a process of its own (`vela_worker`): there are graphs with which it ends its process."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

from edgewise import workers
from edgewise.backends.ethosu.lowering.vela_options import VelaError

__all__ = ["Ended", "call"]

_WORKER = "edgewise.backends.ethosu.lowering.vela_worker"


class Ended(RuntimeError):
    """The process ended instead of an answer; str: how."""


class _Process:
    """Started when first needed, and again after it ended."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def call(self, request: dict[str, Any]) -> Any:
        """What `vela.run` returns or raises for the request. `Ended` if the process does; VelaError
        if it does not start."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                printed, failure, value = pickle.load(process.stdout)  # noqa: S301  our own process
            except (EOFError, OSError, pickle.UnpicklingError):
                self.stop()
                code = process.returncode
                if code >= 0:  # it did not come as far as the graph
                    raise VelaError(
                        f"[vela] its process must start; got exit code {code}; "
                        f"try {sys.executable} -m {_WORKER}"
                    ) from None
                raise Ended(f"its process ended with {workers.how_it_ended(code)}") from None
            except BaseException:  # Ctrl-C: the answer belongs to no later call
                self.stop()
                raise
        sys.stdout.write(printed)
        if failure is not None:
            raise failure
        return value

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and self._owner == os.getpid() and process.poll() is None:
            return process
        self.stop()
        self._owner = os.getpid()
        process = workers.start(_WORKER)
        self._process = process
        return process

    def stop(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or self._owner != os.getpid():
                return  # a forked child leaves its parent's process alone
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # what was not yet written
                    pipe.close()
            # It ends by itself, unless it is at work.
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


_process = _Process()
atexit.register(_process.stop)
call = _process.call
