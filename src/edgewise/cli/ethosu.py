"""`edgewise ethosu`: tools for Arm's Ethos-U."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    pass


@app.command(help="The command streams of a file's Ethos-U delegates, as text.")
def disassemble(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file, or a payload.")],
) -> None:
    """Prints them to standard output."""
    from edgewise.backends.ethosu.disassemble import main

    raise typer.Exit(main([str(file)]))
