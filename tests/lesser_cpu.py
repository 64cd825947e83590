"""Runs programs in a process that uses fewer instruction sets than the CPU has.

python lesser_cpu.py FOLDER, with EDGEWISE_CPU set: runs each N.pte of the folder with the arrays of
N.npz, writes the first result to N.npy, and prints the level.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.runtime import Runtime, _native

LEVELS = [level for level in _native.cpu_levels() if level != _native.cpu_level()]


def skip_logarithm_of_infinity(row: str, inputs: Iterable[Any], runtime: str) -> None:
    """Which XNNPACK's kernels, by the peer, take for about 2.3e38 without AVX-512."""
    if (row, runtime) != ("log", "peer") or _native.cpu_levels()[-1] not in (
        "sse2",
        "sse4",
        "avx2",
        "avxvnni",
    ):
        return
    if any(np.isinf(np.asarray(x)).any() for x in inputs):
        import pytest  # not in the process

        pytest.skip("of infinity XNNPACK gives the logarithm of 2.3e38 without AVX-512")


HERE = Path(__file__).resolve()


def write(folder: Path, programs: Sequence[tuple[bytes, Sequence[Any]]]) -> None:
    """Programs and their arrays, for `start`."""
    for i, (pte, arrays) in enumerate(programs):
        (folder / f"{i}.pte").write_bytes(pte)
        np.savez(folder / f"{i}.npz", *arrays)


def start(level: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The process, ended."""
    command = [sys.executable, str(HERE), str(folder)]
    environment = os.environ | {"EDGEWISE_CPU": level}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def run(level: str, folder: Path, programs: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
    """The first result of each program, given its arrays."""
    write(folder, programs)
    done = start(level, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == level
    return [np.load(folder / f"{i}.npy") for i in range(len(programs))]


def main(folder: str) -> None:
    for path in sorted(Path(folder).glob("*.pte")):
        with np.load(path.with_suffix(".npz")) as arrays:
            inputs = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
        method = Runtime.get().load_program(path.read_bytes()).load_method("forward")
        np.save(path.with_suffix(".npy"), method.execute(inputs)[0])
    print(_native.cpu_level())


if __name__ == "__main__":
    main(sys.argv[1])
