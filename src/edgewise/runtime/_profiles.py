"""Who wants to know where the time of executions goes; `edgewise.profiling` registers here.

A run is given to every recorder that was there when it began.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from edgewise.runtime import _native

__all__ = ["Recorder", "add", "execute", "remove"]


class Recorder(Protocol):
    """What is told of runs, by whichever thread ran them."""

    def add(self, method: _native.Method, path: str, call: _native.CallProfile) -> None:
        """Called after each run that did not fail. `path`: the program's file, or ""."""


active: tuple[Recorder, ...] = ()
"""Read without a lock, replaced as a whole."""
_lock = threading.Lock()


def add(recorder: Recorder) -> None:
    """From now on `recorder` is told of runs."""
    global active
    with _lock:
        active = (*active, recorder)


def remove(recorder: Recorder) -> None:
    """`recorder` is no longer told of runs that begin."""
    global active
    with _lock:
        active = tuple(one for one in active if one is not recorder)


def execute(method: _native.Method, path: str, inputs: Any) -> list[Any]:
    """Runs the method and tells the recorders. Raises as `Method.execute`."""
    recorders = active
    outputs, call = method.profile(inputs)
    for recorder in recorders:
        recorder.add(method, path, call)
    return outputs
