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
            failure, value = None, None
            try:
                value = vela.run(**request)
            except Exception as error:  # the caller's to judge
                failure = error
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
