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


@app.command(help="Modelled cycles of a file's Ethos-U delegates: NPU, DMA, waiting.")
def trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte file, or a payload.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A trace file, for Perfetto or chrome://tracing."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prints how many cycles each delegate takes; with -o writes when each command runs."""
    from edgewise.backends.ethosu.disassemble import programs
    from edgewise.backends.ethosu.simulator.timing import DMA, NPU, WAITING, timeline
    from edgewise.backends.ethosu.simulator.trace import trace as text
    from edgewise.cli.output import Output
    from edgewise.files import write_text

    found = [timeline(program.commands) for program in programs(file.read_bytes())]
    if not found:
        raise CliError(f"[trace] {file} has no Ethos-U delegate; try edgewise inspect {file}")
    if output is not None:
        write_text(output, text(found))
    told = [
        {
            "target": one.target,
            "cycles": one.cycles,
            "clock": one.clock,
            "npu_cycles": one.busy(NPU),
            "dma_cycles": one.busy(DMA),
            "waiting_cycles": one.busy(WAITING),
        }
        for one in found
    ]
    out = Output(json=json, quiet=quiet)

    def show(console: Console) -> None:
        for number, one in enumerate(told):
            console.print(
                f"delegate {number}, {one['target']}: {one['cycles']} cycles (NPU "
                f"{one['npu_cycles']}, DMA {one['dma_cycles']}, waiting {one['waiting_cycles']})",
                markup=False,
                highlight=False,
            )
        if output is not None:
            console.print(str(output), markup=False, highlight=False, soft_wrap=True)

    out.result({"file": str(file), "delegates": told}, show)
