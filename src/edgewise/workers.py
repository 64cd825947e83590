"""Processes of our own, of which each runs a library that may end them.

Each is a module that reads requests from its standard input and ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

__all__ = ["how_it_ended", "start"]


def start(module: str, *arguments: str, log: Any = None) -> subprocess.Popen[bytes]:
    """`python -m module arguments`, with this process's paths. log: takes its standard error; None:
    this process's."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        # Ctrl-C is for this process, which then ends the other one.
        start_new_session=True,
    )


def how_it_ended(code: int) -> str:
    """A return code in words: the signal's name or the exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
