"""The command `edgewise`, also `python -m edgewise`. Its parts are in `edgewise.cli.app`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from edgewise.cli.errors import MISSING


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code (see `edgewise.cli.errors`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:  # a script asks that often: nothing else is imported
        from edgewise.cli.version import version_text

        print(f"edgewise {version_text()}")
        return 0
    try:
        from edgewise.cli.app import run
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in ("typer", "rich"):
            raise
        print(
            f"error: [edgewise] the command line needs typer and rich; got no {name}; "
            f"try pip install 'edgewise[cli]'",
            file=sys.stderr,
        )
        return MISSING
    return run(given)
