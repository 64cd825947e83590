"""Files that are written whole or not at all, on disks and devices that fail."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewise.files import open_whole, write_text, write_whole

OLD, NEW = b"the old one", b"the new one"


def fails(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted() -> Iterator[bytes]:
    yield NEW
    raise KeyboardInterrupt


def full() -> Iterator[bytes]:
    yield NEW
    fails()


FAULTS = ("open", "fsync", "replace", "chmod")
"""Calls that fail while a file is written; one that only keeps a mode may."""


@pytest.mark.parametrize("fault", [*FAULTS, "a part", "Ctrl-C"])
@pytest.mark.parametrize("before", [True, False], ids=["over a file", "a new file"])
def test_a_failure_changes_nothing(
    fault: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "model.pte", tmp_path / "model.record.json.gz"
    if before:
        first.write_bytes(OLD)
    parts = {"a part": full(), "Ctrl-C": interrupted()}.get(fault, [NEW])
    if fault in FAULTS:
        monkeypatch.setattr(os, fault, fails)
    if fault == "chmod":
        write_whole({first: parts, second: [NEW]})
        assert first.read_bytes() == second.read_bytes() == NEW
        return
    with pytest.raises((OSError, KeyboardInterrupt)):
        write_whole({second: [NEW], first: parts})
    monkeypatch.undo()
    found = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert found == ({"model.pte": OLD} if before else {})


def test_a_full_disk_is_an_error_and_the_device_stays() -> None:
    before = os.stat("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_text("/dev/full", "x")
    after = os.stat("/dev/full")
    assert stat.S_ISCHR(after.st_mode)
    assert (before.st_ino, before.st_rdev) == (after.st_ino, after.st_rdev)


def test_a_pipe_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole({pipe: [NEW, OLD]})
    reader.join()
    assert got == [NEW + OLD]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_and_modes_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(OLD)
    target.chmod(0o640)
    link.symlink_to("target")
    write_whole({link: [NEW]})
    assert link.is_symlink()
    assert target.read_bytes() == NEW
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    write_text(tmp_path / "ours", "x")
    (tmp_path / "other").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_of_two_writers_one_leaves_its_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    contents = [bytes([i]) * (1 << 20) for i in range(4)]

    def write(data: bytes) -> None:
        for _ in range(5):
            write_whole({path: [data[:1000], data[1000:]]})

    writers = [threading.Thread(target=write, args=(data,)) for data in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["model.pte"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(OLD)

    def write() -> None:
        with open_whole(path) as file:
            file.write(NEW)
            fails()

    with pytest.raises(OSError, match="No space"):
        write()
    assert path.read_bytes() == OLD
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_whole({"/dev/null": [NEW], "/dev/full": [NEW], "/dev/zero": [NEW]})
    assert caught.value.filename == "/dev/full"


def test_ctrl_c_when_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody was told of it."""
    made = os.open

    def interrupted(*given: Any) -> int:
        os.close(made(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "model.pte", "x")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    "a name with a zero byte": ("a\0.pte", ValueError, "no file can have this name"),
    "a name with half a character": ("a\ud800.pte", ValueError, "no file can have this name"),
    "a name too long": ("a" * 256, OSError, "File name too long"),
    "within a file": ("/dev/null/model.pte", OSError, "Not a directory"),
    "a folder": ("", IsADirectoryError, "a path must be a file's"),
    "no folder": ("missing/model.pte", FileNotFoundError, "no such folder; try making it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_places_that_no_file_can_have(case: str, tmp_path: Path) -> None:
    place, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        write_text(tmp_path / place, "x")
