"""`edgewise link`: a program for a microcontroller's build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgewise.cli.errors import CliError
from edgewise.cli.options import Json, Quiet


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file without delegates.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Default: the file's name."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What names in C begin with. Default: the file's.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A program for a microcontroller's build: a C array, and the list of kernels to link.

    The build takes the list with -DEDGEWISE_KERNELS_LIST and has no other kernels.
    """
    from edgewise.cli.output import Output
    from edgewise.firmware import link, read_linked

    try:
        program = read_linked(file, name)
    except ValueError as error:
        raise CliError(str(error)) from error
    folder = output or file.with_suffix("")
    files = link(program, folder)
    out = Output(json=json, quiet=quiet)
    told = {
        "folder": str(folder),
        "files": [path.name for path in files],
        "kernels": program.kernels,
        "pte_bytes": len(program.data),
        "planned_bytes": program.planned,
    }

    def show(console: Console) -> None:
        console.print(f"{folder}: {', '.join(path.name for path in files)}")
        console.print(
            f"{len(program.kernels)} kernels, {len(program.data):,} bytes of program, "
            f"{program.planned:,} of planned memory"
        )

    out.result(told, show)
