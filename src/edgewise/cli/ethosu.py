"""`edgewise ethosu`: tools for Arm's Ethos-U."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgewise.cli.errors import CliError
from edgewise.cli.options import Json, Quiet

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    pass


@app.command(help="The command streams of a file's Ethos-U delegates, as text.")
def disassemble(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file, or a payload.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """As `python -m edgewise.backends.ethosu.disassemble`; with --json the delegates' fields."""
    from dataclasses import asdict

    from edgewise.backends.ethosu.disassemble import main, programs
    from edgewise.backends.ethosu.simulator.stream import disassemble as text
    from edgewise.cli.output import Output

    found = list(programs(file.read_bytes()))
    if not found:
        raise CliError(f"[disassemble] {file} has no Ethos-U delegate; try edgewise inspect {file}")
    told = [
        {
            "inputs": [asdict(tensor) for tensor in program.inputs],
            "outputs": [asdict(tensor) for tensor in program.outputs],
            "weight_bytes": len(program.weights),
            "scratch_bytes": program.scratch_size,
            "commands": text(program.commands).splitlines(),
        }
        for program in found
    ]
    out = Output(json=json, quiet=quiet)

    def show(console: Console) -> None:
        main([str(file)])

    out.result({"file": str(file), "delegates": told}, show)


@app.command(help="What firmware needs of a program: C arrays, sizes of memory, operators.")
def package(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file with NPU delegates.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Default: the file's name + _firmware."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Of the C arrays. Default: the file's name."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Files for the build of a firmware; see docs/ethosu.md."""
    from edgewise.backends.ethosu.firmware import read_firmware, write_firmware
    from edgewise.cli.output import Output

    try:
        firmware = read_firmware(file, name)
    except ValueError as error:
        raise CliError(str(error)) from error
    folder = file.with_name(f"{file.stem}_firmware") if output is None else output
    paths = write_firmware(firmware, folder)
    told = {
        "folder": str(folder),
        "files": [path.name for path in paths],
        "program_bytes": len(firmware.data),
        "planned_bytes": firmware.arenas,
        "npu_scratch_bytes": firmware.scratch,
        "operators": firmware.operators,
    }

    def show(console: Console) -> None:
        planned = sum(firmware.arenas.values())
        console.print(
            f"{folder}: program {len(firmware.data):,} bytes, planned memory {planned:,}, "
            f"NPU scratch memory {firmware.scratch:,}, {len(firmware.operators)} operators",
            highlight=False,
            markup=False,
        )
        for path in paths:
            console.print(f"  {path.name}", highlight=False, markup=False)

    Output(json=json, quiet=quiet).result(told, show)
