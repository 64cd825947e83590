"""The process that `vela_process` starts.

    python -m edgewise.backends.ethosu.lowering.vela_worker

Requests come on standard input and answers go to the descriptor that was standard output, pickled;
the process ends with its input. What Vela prints is part of the answer.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import threading
from typing import BinaryIO

from edgewise.backends.ethosu.lowering import vela

_STACK = 256 << 20
"""Bytes. Vela goes through a graph by recursion: a thread's usual ones are few for a deep net."""


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    with tempfile.TemporaryFile() as text:
        os.dup2(text.fileno(), 1)
        while True:
            try:
                request = pickle.load(requests)  # noqa: S301  our own process
            except EOFError:
                return
            failure: Exception | None = None
            value = None
            limit = _limit_memory()
            try:
                value = vela.run(**request)
            except MemoryError:
                failure = RuntimeError(f"it needs more than {limit >> 20} MB of memory")
            except Exception as error:  # the caller's to judge
                failure = error
            text.seek(0)
            printed = text.read().decode(errors="replace")
            text.seek(0)
            text.truncate()
            pickle.dump((printed, failure, value), answers)
            answers.flush()


def _limit_memory() -> int:
    """Lets Vela take four fifths of what is free now, in bytes: there are graphs for which it takes
    all that a machine has. Linux alone tells, and keeps to it; elsewhere 0, and no limit."""
    if sys.platform != "linux":
        return 0
    import resource

    free = _kilobytes("/proc/meminfo", "MemAvailable") << 10
    taken = _kilobytes("/proc/self/status", "VmSize") << 10
    most = free * 4 // 5
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = taken + most if hard == resource.RLIM_INFINITY else min(taken + most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return most


def _kilobytes(file: str, name: str) -> int:
    with open(file, encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Answers until the input ends."""
    threading.stack_size(_STACK)
    streams = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    thread = threading.Thread(target=_serve, args=streams)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
