"""`edgewise report`: a page about one or several files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output


def command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help=".pte files, of edgewise or of ExecuTorch."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page.")
    ] = Path("report.html"),
    profile: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.json", help="What `edgewise profile` saved, for each file."),
    ] = None,
    accuracy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json", help="What `edgewise compare --json` printed, for each file."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Default: the files' names.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """One HTML file about programs: what runs where and why, costs, memory plan, accuracy.

    It opens from disk and refers to nothing else. Several files are shown side by side. Modules,
    source lines and reasons come from the record that `edgewise compile` writes beside a file;
    of a file without one, the page shows what the file holds. Measurements are given in the
    order of the files: `--profile a.json --profile b.json`.
    """
    from edgewise.report import write

    out = Output(json=json, quiet=quiet)
    written = write(output, files, profiles=profile or (), comparisons=accuracy or (), title=title)
    size = written.stat().st_size
    result = {"page": str(written), "bytes": size, "programs": [str(one) for one in files]}
    out.result(result, lambda console: console.print(f"{written}: {size / 1e3:.0f} kB"))
