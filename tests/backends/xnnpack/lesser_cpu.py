"""Runs programs in a process that sees fewer instruction sets than the CPU has.

python lesser_cpu.py LIBRARY LEVEL FOLDER: runs each N.pte of the folder with the arrays of N.npz,
and writes the first result to N.LEVEL.npy.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LEVELS = {"sse4": 1, "avx2": 2, "avx512": 3}
HERE = Path(__file__).resolve()


def library(folder: Path) -> Path | None:
    """What hides instruction sets, compiled; None where that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    made = folder / "lesser_cpu.so"
    command = [compiler, "-O1", "-shared", "-fPIC", str(HERE.with_suffix(".c")), "-o", str(made)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return None
    probe = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(made)!r}).become(3))"
    return made if subprocess.run([sys.executable, "-c", probe]).returncode == 0 else None


def run(made: Path, level: str, folder: Path, programs: Sequence[tuple[bytes, Any]]) -> list[Any]:
    """The first result of each program, given its arrays."""
    for i, (pte, arrays) in enumerate(programs):
        (folder / f"{i}.pte").write_bytes(pte)
        np.savez(folder / f"{i}.npz", *arrays)
    command = [sys.executable, str(HERE), str(made), str(LEVELS[level]), str(folder)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return [np.load(folder / f"{i}.{LEVELS[level]}.npy") for i in range(len(programs))]


def main(made: str, level: str, folder: str) -> None:
    if ctypes.CDLL(made).become(int(level)) != 0:
        raise SystemExit("[lesser_cpu] CPUID must trap; got a refusal of the kernel's")
    from edgewise.runtime import Runtime

    for path in sorted(Path(folder).glob("*.pte")):
        with np.load(path.with_suffix(".npz")) as arrays:
            inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
        method = Runtime.get().load_program(path.read_bytes()).load_method("forward")
        np.save(path.with_suffix(f".{level}.npy"), method.execute(inputs)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
