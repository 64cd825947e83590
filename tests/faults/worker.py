"""Runs commands of `edgewise` while calls that write fail; started by test_faults.py with the layer
of faults.c in LD_PRELOAD: `worker.py FOLDER`, a place of its own.

Reads a line of JSON for each command, {"words": [...], "kinds": [...], "again": bool}; "{out}" in
words is a folder that is empty, or holds files of a run before. Answers with a line: what is wrong,
as texts. again: a run with a fault may do a part of the work; the next run has to do the rest.

A command runs up to where it first writes. There the process forks for each fault, and the child
goes on with it: what comes before (imports, export, lowering) is done once.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from zipfile import is_zipfile

from edgewise.cli import main
from forked import ForkedProcess

LAYER = ctypes.CDLL(None)
LAYER.fault_written.restype = ctypes.c_long
MOST = 200
"""Calls that write, of one command."""
SECONDS = 60
"""For one run with a fault."""
CODES = {"ENOSPC": (1,), "EIO": (1,), "EROFS": (1,), "short": (1,), "SIGINT": (130,)}
TELLS = {
    "ENOSPC": "No space left",
    "EIO": "Input/output error",
    "EROFS": "Read-only file system",
    "short": "No space left",
}
ONCE = ["EROFS"]
"""Of the first call and all others: a folder that takes nothing."""
ROWS = ["rows.jsonl"]
LOCKS = "edgewise-turns-"
"""In the temporary folder, to stay."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Place:
    """FOLDER/disk with `out`, what the command is to write, and `tmp`, for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.disk = folder / "disk"
        self.out, self.tmp = self.disk / "out", self.disk / "tmp"

    def fill(self, files: dict[str, bytes]) -> None:
        """With these files, and no others."""
        shutil.rmtree(self.disk, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.tmp.mkdir()
        for name, data in files.items():
            (self.out / name).parent.mkdir(exist_ok=True, parents=True)
            (self.out / name).write_bytes(data)

    def files(self) -> dict[str, bytes]:
        return {
            str(p.relative_to(self.out)): p.read_bytes() for p in self.out.rglob("*") if p.is_file()
        }

    def arm(self, number: int = 0, kind: str = "") -> None:
        """number: of the call to fail; 0: none, but calls are counted."""
        LAYER.fault_arm(number, kind.encode(), str(self.disk).encode())


def run(words: list[str], place: Place) -> tuple[int, str]:
    """The exit code, and what was printed to the person."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = main([word.replace("{out}", str(place.out)) for word in words])
    return code, told.getvalue()


class Faults:
    """The forks of one command. before: what the folder holds when it begins."""

    waiting: Faults | None = None
    """For the first call that writes."""

    def __init__(self, asked: dict[str, Any], place: Place, before: dict[str, bytes]) -> None:
        self.words, self.kinds, self.again = asked["words"], asked["kinds"], asked["again"]
        self.place, self.before = place, before
        self.wrong: list[str] = []
        self.fault: tuple[str, int] | None = None
        """Of this process, which is a fork then."""

    def check(self) -> list[str]:
        """What is wrong."""
        self.place.fill(self.before)
        self.place.arm()
        Faults.waiting = self
        code, told = run(self.words, self.place)
        if self.fault is not None:
            self._end(code, told)
        what = self.words[0]
        if code != 0:
            return [f"{what}: exit code {code} without a fault, {told}"]
        if Faults.waiting is not None:
            return [f"{what}: writes nothing"]
        written = LAYER.fault_written()
        size = sum(len(data) for data in self.place.files().values())
        if size > written + sum(len(data) for data in self.before.values()) * self.again:
            self.wrong.append(f"{what}: of {size} bytes only {written} were seen to be written")
        return self.wrong

    @classmethod
    def fork_waiting(cls) -> None:
        waiting, cls.waiting = cls.waiting, None
        if waiting is not None:
            waiting.fork()

    def fork(self) -> None:
        """Before the first call that writes: all faults, in children; then goes on without one."""
        gc.collect()
        gc.freeze()  # collecting it in a fork would copy it
        if LAYER.fault_count() != 0:
            self.wrong.append(f"{self.words[0]}: had written before")
        for kinds in self._rows():
            number = 0
            while number < (1 if kinds == ONCE else MOST):
                kind = kinds[number % len(kinds)]
                number += 1
                self.place.fill(self.before)
                answers, answer = os.pipe()
                child = os.fork()
                if child == 0:
                    os.close(answers)
                    self.fault, self.answer = (kind, number), answer
                    signal.alarm(SECONDS)
                    self.place.arm(number, kind)
                    return
                os.close(answer)
                with os.fdopen(answers) as pipe:
                    text = pipe.read()
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if not text:
                    self.wrong.append(f"{self.words[0]} {kind} at call {number}: ended, {status}")
                    break
                told = json.loads(text)
                self.wrong += told["wrong"]
                if told["count"] < number:
                    break
            else:
                if kinds != ONCE:
                    self.wrong.append(f"{self.words[0]} {kind}: more than {MOST} calls")
        self.place.fill(self.before)
        self.place.arm()

    def _rows(self) -> list[list[str]]:
        """Of each row, every call that writes fails once, in one of these ways. What does all its
        work anew at each fault takes a second for each: there the ways take turns."""
        if self.again and not self.before:
            return [[kind for kind in self.kinds if [kind] != ONCE], ONCE]
        return [[kind] for kind in self.kinds]

    def _end(self, code: int, told: str) -> NoReturn:
        """Of a child."""
        assert self.fault is not None
        kind, number = self.fault
        count = LAYER.fault_count()
        self.place.arm()
        wrong = list(self._wrong(kind, number, count, code, told))
        if count < number:
            wrong = []  # all is done, without a fault
        with os.fdopen(self.answer, "w") as pipe:
            json.dump({"wrong": wrong, "count": count}, pipe)
        os._exit(0)

    def _wrong(self, kind: str, number: int, count: int, code: int, told: str) -> Iterator[str]:
        where = f"{self.words[0]} {kind} at call {number} of {count}"
        found, before = self.place.files(), self.before
        if code not in CODES[kind] and code != 0:
            yield f"{where}: exit code {code}, {told[-300:]!r}"
        if "Traceback" in told:
            yield f"{where}: {told[-2000:]}"
        parts = [str(p.relative_to(self.place.disk)) for p in self.place.disk.rglob("*.part")]
        parts += [p.name for p in self.place.tmp.iterdir() if not p.name.startswith(LOCKS)]
        if parts:
            yield f"{where}: left {', '.join(parts)}"
        if code == 1 and TELLS.get(kind, "") not in told:
            yield f"{where}: told {told[-300:]!r}"
        if self.again:
            told_of = [name for name in found if not name.endswith(".part")]
            yield from (f"{where}: {n} is a part" for n in told_of if not is_whole(n, found))
            if self.before or number % 4 == 0:
                yield from self._rest(where)
            return
        if code == 0 and kind != "SIGINT" and not is_done(found, before):
            yield f"{where}: exit code 0, and files are missing"
        if code not in (0, 130) and found != before:  # what was done before Ctrl-C stays
            changed = sorted(k for k in {*found, *before} if found.get(k) != before.get(k))
            yield f"{where}: {', '.join(changed)} changed"
        for name, data in before.items():
            if not found.get(name):
                yield f"{where}: {name} of {len(data)} bytes is lost"

    def _rest(self, where: str) -> Iterator[str]:
        """After a run that may have done a part."""
        code, told = run(self.words, self.place)
        if code != 0:
            yield f"{where}: exit code {code} of the next run, {told[-300:]!r}"
            return
        rows = (self.place.out / "rows.jsonl").read_text().splitlines()
        for row in map(json.loads, rows):
            if row["status"] != "ok":
                yield f"{where}: a row of the next run is {row}"
        if not (self.place.out / "index.html").stat().st_size:
            yield f"{where}: the next run's page is empty"


def is_done(found: dict[str, bytes], before: dict[str, bytes]) -> bool:
    """A fault that did no harm, as of a folder's fsync: all files are there."""
    return all(found.values()) and (not before or {*found} == {*before})


def is_whole(name: str, files: dict[str, bytes]) -> bool:
    """A file of a sweep."""
    path, data = Path(name), files[name]
    if path.suffix == ".pt":
        return is_zipfile(io.BytesIO(data))
    if path.suffix == ".pte":
        from edgewise.scale.task import digest

        return digest(data) == path.stem
    if path.suffix == ".parquet":
        return data[:4] == data[-4:] == b"PAR1"
    if path.suffix == ".html":
        return data.rstrip().endswith(b"</html>")
    return all(json.loads(text) for text in (data.splitlines() if name in ROWS else [data]))


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's hook for what it is about to do."""
    if Faults.waiting is None or event not in ("open", "os.mkdir", "os.rename", "os.link"):
        return
    path = arguments[0]
    if not isinstance(path, (str, bytes)) or (event == "open" and not arguments[2] & WRITES):
        return
    if os.fsdecode(path).startswith(str(Faults.waiting.place.disk)):
        Faults.fork_waiting()


def fork_sweeps() -> None:
    """A sweep's worker is a fork that has what a process would import, and warm up, first."""
    from edgewise import workers
    from edgewise.scale import local, process, sweeping, warm

    process.prepare(*sweeping.PRELOAD)
    warm.lowering = lambda: None
    forking = {**vars(subprocess), "Popen": ForkedProcess}
    workers.subprocess = SimpleNamespace(**forking)  # type: ignore[attr-defined]
    start = local.LocalEngine.__init__

    def start_in_fork(*arguments: Any, **options: Any) -> None:
        # The first call that writes is a thread's, and a fork would have that thread alone.
        Faults.fork_waiting()
        start(*arguments, **options)

    local.LocalEngine.__init__ = start_in_fork  # type: ignore[method-assign]


def answer(asked: dict[str, Any], folder: Path) -> list[str]:
    if asked["words"][0] == "sweep":
        fork_sweeps()
    place = Place(folder)
    place.fill({})
    tempfile.tempdir = str(place.tmp)
    os.environ["TMPDIR"] = str(place.tmp)
    code, told = run(asked["words"], place)
    if code != 0:
        return [f"{asked['words'][0]}: exit code {code} without a fault, {told}"]
    made = place.files()
    if not made:
        return [f"{asked['words'][0]}: writes nothing"]
    over = made if asked["again"] else dict.fromkeys(made, b"of a run before")
    return Faults(asked, place, {}).check() + Faults(asked, place, over).check()


if __name__ == "__main__":
    # A shell that runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(watch)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), Path(sys.argv[1]))), flush=True)
