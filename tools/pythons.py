"""Interpreters of other versions than the one that runs, for `make matrix` and `make wheels`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

STABLE = (3, 12)
"""From this version on one module serves all that follow."""

HAS_HEADERS = "import sysconfig, os; print(os.path.exists(sysconfig.get_config_h_filename()))"


def interpreter(version: str, more: Iterable[Path] = ()) -> Path | None:
    """An interpreter of that version, whether or not with its headers: on PATH, of pyenv, or in
    one of the folders given."""
    on_path = shutil.which(f"python{version}")
    candidates = [Path(on_path)] if on_path else []
    folders = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    candidates += [folder / f"python{version}" for folder in [*folders, *more]]
    # pyenv's on PATH may be of a version that is not chosen.
    return next((python for python in candidates if _runs(python)), None)


def builder(version: str) -> Path:
    """A Python with headers whose wheels run on that version: it itself, or from 3.12 on an
    earlier one."""
    wanted = tuple(map(int, version.split(".")))
    usable = [version] if wanted < STABLE else [f"3.{n}" for n in range(STABLE[1], wanted[1] + 1)]
    for one in usable:
        python = interpreter(one)
        if python and b"True" in subprocess.check_output([python, "-c", HAS_HEADERS]):
            return python
    raise SystemExit(f"[pythons] needs Python {' or '.join(usable)} with its headers; found none")


def _runs(python: Path) -> bool:
    tried = [str(python), "-c", ""]
    return python.exists() and subprocess.run(tried, capture_output=True).returncode == 0
