"""llvm-mca, Debian's llvm-19 or the system's: how long a core takes for a loop, estimated."""

import shutil
import subprocess
from collections.abc import Sequence

_NAMES = ("llvm-mca-19", "llvm-mca")
_RUNS = 100


def mca() -> str | None:
    """Its name; None where there is none."""
    return next((name for name in _NAMES if shutil.which(name)), None)


def filtered(command: Sequence[str], text: str) -> str:
    """What a program makes of a text."""
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
    return done.stdout


def cycles_of(program: str, text: str, core: str, flags: Sequence[str]) -> float:
    """Of a loop in assembly, once through. CalledProcessError for a core that it does not know."""
    command = [program, *flags, f"-mcpu={core}", f"-iterations={_RUNS}"]
    lines = filtered(command, text).splitlines()
    line = next(line for line in lines if line.startswith("Total Cycles:"))
    return int(line.split(":")[1]) / _RUNS
