"""Vela in a process of its own: there are graphs with which it ends its process.

    python -m edgewise.backends.ethosu.lowering.vela_process

Requests come on standard input and answers go to the descriptor that was standard output, pickled;
the process ends with its input. What Vela prints is part of the answer.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, BinaryIO

__all__ = ["Ended", "call"]

_STACK = 256 << 20
"""Bytes. Vela goes through a graph by recursion: a thread's usual ones are few for a deep net."""


class Ended(RuntimeError):
    """The process ended instead of an answer; str: how."""


class _Process:
    """Started when first needed, and again after it ended."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def call(self, request: dict[str, Any]) -> Any:
        """What `vela.run` returns or raises for the request. `Ended` if the process does."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                printed, failure, value = pickle.load(process.stdout)
            except (EOFError, OSError, pickle.UnpicklingError):
                self.stop()
                code = process.returncode
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                raise Ended(f"its process ended with {how}") from None
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
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "edgewise.backends.ethosu.lowering.vela_process"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for this process, which then ends the other one.
            start_new_session=True,
        )
        return process

    def stop(self) -> None:
        """Ends the process; the next call starts another."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or self._owner != os.getpid():
                return  # a forked child leaves its parent's process alone
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except OSError:  # what was not yet written
                    pass
            # It ends by itself, unless it is at work.
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


_process = _Process()
atexit.register(_process.stop)
call = _process.call


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from edgewise.backends.ethosu.lowering import vela

    with tempfile.TemporaryFile() as text:
        os.dup2(text.fileno(), 1)
        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            failure, value = None, None
            try:
                value = vela.run(**request)
            except Exception as error:  # the caller's to judge
                failure = RuntimeError(str(error)) if type(error) is not MemoryError else error
            text.seek(0)
            printed = text.read().decode(errors="replace")
            text.seek(0)
            text.truncate()
            pickle.dump((printed, failure, value), answers)
            answers.flush()


if __name__ == "__main__":
    threading.stack_size(_STACK)
    streams = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    thread = threading.Thread(target=_serve, args=streams)
    thread.start()
    thread.join()
