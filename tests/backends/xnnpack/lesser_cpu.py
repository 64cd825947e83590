"""Runs programs in a process that uses fewer instruction sets than the CPU has.

python lesser_cpu.py LEVEL FOLDER, with EDGEWISE_CPU set to the level: runs each N.pte of the folder
with the arrays of N.npz, and writes the first result to N.LEVEL.npy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.runtime import Runtime, _native

LEVELS = [level for level in _native.cpu_levels() if level != _native.cpu_level()]
HERE = Path(__file__).resolve()


def run(level: str, folder: Path, programs: Sequence[tuple[bytes, Any]]) -> list[Any]:
    """The first result of each program, given its arrays."""
    for i, (pte, arrays) in enumerate(programs):
        (folder / f"{i}.pte").write_bytes(pte)
        np.savez(folder / f"{i}.npz", *arrays)
    command = [sys.executable, str(HERE), level, str(folder)]
    environment = os.environ | {"EDGEWISE_CPU": level}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [np.load(folder / f"{i}.{level}.npy") for i in range(len(programs))]


def main(level: str, folder: str) -> None:
    for path in sorted(Path(folder).glob("*.pte")):
        with np.load(path.with_suffix(".npz")) as arrays:
            inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
        method = Runtime.get().load_program(path.read_bytes()).load_method("forward")
        np.save(path.with_suffix(f".{level}.npy"), method.execute(inputs)[0])
    if _native.cpu_level() != level:
        raise SystemExit(f"[lesser_cpu] must run on {level}; got {_native.cpu_level()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
