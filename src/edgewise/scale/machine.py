"""Turns on one machine: many tasks at once, or one that is measured, alone.

Locks of the file system, so that they hold between all engines on a machine, Ray's workers
among them, and are gone with the process that had them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(alone: bool, folder: str | None = None) -> Iterator[None]:
    """Waits until this may run: beside others, or alone.

    Who waits to be alone holds the gate: nobody new comes in, so it is not put off for ever.
    folder: of the lock files; None: the temporary one, by user.
    """
    place = Path(folder or tempfile.gettempdir()) / f"edgewise-turns-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    _must_be_own(place)
    with _locked(place / "gate", fcntl.LOCK_EX):
        inside = _lock(place / "inside", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(inside)


def _must_be_own(place: Path) -> None:
    """Anybody can make a folder of that name in /tmp: one of another user's, or a link, would let
    others hold the locks or have files made elsewhere."""
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(
            errno.EPERM,
            "[scale] the folder of locks must be this user's own, and writable by no one else; "
            "try removing it, or TMPDIR=a folder of your own",
            str(place),
        )


@contextmanager
def _locked(path: Path, mode: int) -> Iterator[None]:
    descriptor = _lock(path, mode)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, mode: int) -> int:
    # Not inherited by programs that are started meanwhile: the lock would live on with them.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
