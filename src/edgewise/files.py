"""Files that are written whole or not at all.

    write_whole({"model.pte": parts, "model.record.json.gz": [data]})

Everything is written beside its path under a name of its own and flushed to the disk; only when
all of it is there are the files renamed. A full disk, an error or an interruption leaves what was
there before; of several writers one leaves its whole file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

Bytes = bytes | bytearray | memoryview
AnyPath = TypeVar("AnyPath", bound="str | os.PathLike[str]")


def write_whole(files: Mapping[AnyPath, Iterable[Bytes]]) -> None:
    """Writes each path's parts, in order. OSError if that fails: then no path has changed, but for
    devices and pipes, which cannot be put back."""
    with ExitStack() as stack:
        targets = [stack.enter_context(_Replacement(path)) for path in files]
        for target in targets:
            target.open()
        for target, parts in zip(targets, files.values(), strict=True):
            target.write(parts)
        for target in targets:
            target.finish()
        for target in targets:
            target.rename(may_undo=len(targets) > 1)
        for target in targets:
            target.keep()
        for target in targets:
            target.settle()


def read_json(data: bytes) -> Any:
    """What a file of JSON holds. ValueError, with a text that goes on after "got", if it is none,
    or more deeply nested than Python reads."""
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        raise ValueError("bytes that are no text") from None
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def own_folder(path: str | os.PathLike[str]) -> Path:
    """Makes a folder, and those that it is in, for this user alone. PermissionError if there is one
    that others may have put something into: of another user, a link, or writable by others. Anybody
    can make a folder of a known name in /tmp."""
    folder = Path(path)
    if not folder.parent.exists():
        own_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(
            errno.EPERM,
            "[file] the folder must be this user's own, and writable by no one else; "
            "try removing it, or another path",
            str(folder),
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a device, a pipe or the like is there, or a name for what is open (`/dev/stdout`):
    nothing can lie beside it."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes text as UTF-8."""
    write_whole({path: [text.encode()]})


@contextmanager
def open_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that is renamed to the path when the block ends without an error."""
    with _Replacement(path) as target:
        yield target.open()
        target.finish()
        target.rename()
        target.keep()
        target.settle()


def _can_be_a_name(path: str) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


class _Replacement:
    """A new file beside the one that it will replace. Links are followed, so that they stay.

    What is no regular file (a device, a pipe) is written as it is: it has no contents to keep.
    """

    file: BinaryIO | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._given = Path(path)
        if not _can_be_a_name(str(path)):
            raise ValueError(f"[save] no file can have this name; got {str(path)!r}")
        self._path = Path(os.path.realpath(path))
        self._new: Path | None = None
        self._old: Path | None = None
        self._may_undo = self._is_kept = False

    def __enter__(self) -> _Replacement:
        return self

    def open(self) -> BinaryIO:
        """In a block of its own, as Ctrl-C may come when the file is there and not yet known."""
        mode = self._mode()
        if mode is not None and not stat.S_ISREG(mode):
            # By the name given: where links of pipes and terminals lead is no path.
            self.file = open(self._given, "wb")  # noqa: SIM115  closed by __exit__
            return self.file
        new = self._path.with_name(f".{secrets.token_hex(8)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_BINARY", 0)
        self._new = new
        try:
            self.file = os.fdopen(os.open(new, flags, 0o666), "wb")
        except OSError as cause:
            self._new = None
            raise type(cause)(cause.errno, f"[save] {cause.strerror}", str(self._given)) from None
        if mode is not None:
            with contextlib.suppress(OSError):  # of a file system without modes
                os.chmod(new, stat.S_IMODE(mode))
        return self.file

    def _mode(self) -> int | None:
        """Of what is there already; None if nothing is. OSError if it cannot be replaced."""
        if self._given.is_dir():
            raise IsADirectoryError(
                errno.EISDIR, "[save] a path must be a file's; got a folder's", str(self._given)
            )
        try:
            mode = os.stat(self._given).st_mode
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                folder = str(self._given.parent)
                raise FileNotFoundError(
                    errno.ENOENT, "[save] no such folder; try making it before", folder
                ) from None
            return None
        if not os.access(self._given, os.W_OK):
            raise PermissionError(
                errno.EACCES, "[save] the file that is there must be writable", str(self._given)
            )
        return mode

    def write(self, parts: Iterable[Bytes]) -> None:
        assert self.file is not None
        with self._named():
            for part in parts:
                self.file.write(part)

    def finish(self) -> None:
        """All bytes on the disk, where the file has one."""
        assert self.file is not None
        with self._named():
            self.file.flush()
            try:
                os.fsync(self.file.fileno())
            except OSError as cause:
                if cause.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes, terminals
                    raise
            self.file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of writing say which file it was."""
        try:
            yield
        except OSError as failure:
            if failure.errno and failure.filename is None:
                failure.filename = str(self._given)
            raise

    def rename(self, may_undo: bool = False) -> None:
        """Replaces what is there; until `keep`, leaving the block puts back what was there."""
        if self._new is None:
            return
        self._may_undo = may_undo
        if may_undo and self._path.exists():
            try:
                os.link(self._path, old := self._new.with_suffix(".old"))
                self._old = old
            except OSError:  # of a file system without links
                self._may_undo = False
        os.replace(self._new, self._path)

    def keep(self) -> None:
        """From here on the new file stays."""
        self._is_kept = True

    def settle(self) -> None:
        """That the file has its new name is on the disk, too."""
        if self._new is None:
            return
        with contextlib.suppress(OSError):  # not every system opens folders
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def __exit__(self, *failure: object) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):  # told already, by what failed
                self.file.close()
        if self._new is None:
            return
        if self._may_undo and not self._is_kept and not self._new.exists():
            with contextlib.suppress(OSError):
                if self._old is not None:
                    os.replace(self._old, self._path)
                else:
                    self._path.unlink()
        self._new.unlink(missing_ok=True)
        if self._old is not None:
            self._old.unlink(missing_ok=True)
