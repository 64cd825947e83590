"""Turns on one machine: many tasks at once, or one that is measured, alone.

Locks of the file system, so that they hold between all engines on a machine, Ray's workers
among them, and are gone with the process that had them.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgewise.files import own_folder


@contextmanager
def turn(alone: bool, folder: str | None = None) -> Iterator[None]:
    """Waits until this may run: beside others, or alone.

    Who waits to be alone holds the gate: nobody new comes in, so it is not put off for ever.
    folder: of the lock files; None: the temporary one, by user.
    """
    # Others who held the locks would keep this user waiting.
    locks = own_folder(Path(folder or tempfile.gettempdir()) / f"edgewise-turns-{os.getuid()}")
    gate = _lock(locks / "gate", fcntl.LOCK_EX)
    try:
        inside = _lock(locks / "inside", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    finally:
        os.close(gate)
    try:
        yield
    finally:
        os.close(inside)


def _lock(path: Path, mode: int) -> int:
    # Not inherited by programs that are started meanwhile: the lock would live on with them.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
