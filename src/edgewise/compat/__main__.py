"""`python -m edgewise.compat script.py ...`: runs a script written for ExecuTorch."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from edgewise.compat.importer import install
from edgewise.compat.loggers import show_without_handlers

USAGE = """usage: python -m edgewise.compat SCRIPT.py [arguments]
       python -m edgewise.compat -m MODULE [arguments]

Runs the script as `python SCRIPT.py` does, with edgewise behind ExecuTorch's import paths.
docs/compat.md lists them."""


def main(arguments: Sequence[str]) -> int:
    """Runs what the command line says, in this process. 2 if it says nothing that can be run."""
    if list(arguments[:1]) in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    is_module = list(arguments[:1]) == ["-m"]
    rest = arguments[1:] if is_module else arguments
    if not rest:
        print(USAGE, file=sys.stderr)
        return 2
    target = rest[0]
    install()
    show_without_handlers()
    sys.argv = list(rest)
    if is_module:
        sys.path.insert(0, "")
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return 0
    if not Path(target).is_file():
        advice = f"try -m {target} for a module"
        print(f"[edgewise.compat] a script must be a file; got {target}; {advice}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(Path(target).resolve().parent))
    runpy.run_path(target, run_name="__main__")
    return 0


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the current folder, which is not the script's
    sys.exit(main(sys.argv[1:]))
