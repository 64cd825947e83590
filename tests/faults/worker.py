"""Runs commands of `edgewise` while calls that write fail; started by test_faults.py with the layer
of faults.c in LD_PRELOAD: `worker.py FOLDER`.

Reads a line of JSON for each command, {"words": [...], "kinds": [...]}; "{out}" in words is a
folder that is empty, or holds files of a run before. Answers with a line: what is wrong, as texts.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from edgewise.cli import main

LAYER = ctypes.CDLL(None)
MOST = 60
"""Calls that write, of one command."""
CODES = {"ENOSPC": (1,), "EIO": (1,), "short": (1,), "SIGINT": (130,)}
TELLS = {"ENOSPC": "No space left", "EIO": "Input/output error", "short": "No space left"}


def run(words: list[str], out: Path) -> tuple[int, str]:
    """The exit code, and what was printed to the person."""
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        code = main([word.replace("{out}", str(out)) for word in words])
    return code, told.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check(words: list[str], kind: str, out: Path, before: dict[str, bytes]) -> Iterator[str]:
    """What is wrong, of each call that writes. before: what the folder holds when a run begins."""
    number = 0
    while number < MOST:
        number += 1
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for name, data in before.items():
            (out / name).parent.mkdir(exist_ok=True, parents=True)
            (out / name).write_bytes(data)
        LAYER.fault_arm(number, kind.encode(), str(out).encode())
        code, told = run(words, out)
        count = LAYER.fault_count()
        LAYER.fault_arm(0, b"", b"")
        if count < number:
            if number == 1:
                yield f"{words[0]} {kind}: writes nothing"
            return
        where = f"{words[0]} {kind} at call {number} of {count}"
        found = contents(out)
        whole = code == 0 or kind == "SIGINT"  # what was done before Ctrl-C stays
        if code not in CODES[kind] and code != 0:
            yield f"{where}: exit code {code}, {told[-300:]!r}"
        if code == 1 and TELLS.get(kind, "") not in told:
            yield f"{where}: told {told[-300:]!r}"
        if code == 0 and kind in ("ENOSPC", "EIO", "short") and not is_done(found, before):
            yield f"{where}: exit code 0, and files are missing"
        if not whole and found != before:
            changed = sorted(k for k in {*found, *before} if found.get(k) != before.get(k))
            yield f"{where}: {', '.join(changed)} changed"
        parts = [name for name in found if name.endswith(".part")]
        if parts:
            yield f"{where}: left {', '.join(parts)}"
        for name, data in before.items():
            if not found.get(name):
                yield f"{where}: {name} of {len(data)} bytes is lost"


def is_done(found: dict[str, bytes], before: dict[str, bytes]) -> bool:
    """A fault that did no harm, as of a folder's fsync: all files are there."""
    return all(found.values()) and (not before or {*found} == {*before})


def answer(asked: dict[str, list[str]], folder: Path) -> list[str]:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    code, told = run(asked["words"], out)
    if code != 0:
        return [f"{asked['words'][0]}: exit code {code} without a fault, {told}"]
    made = contents(out)
    if not made:
        return [f"{asked['words'][0]}: writes nothing"]
    return [
        wrong
        for kind in asked["kinds"]
        for before in ({}, dict.fromkeys(made, b"of a run before"))
        for wrong in check(asked["words"], kind, out, before)
    ]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), Path(sys.argv[1]))), flush=True)
