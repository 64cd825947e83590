"""`edgewise profile`: where the time of a file's runs goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edgewise.cli.errors import CliError
from edgewise.cli.images import Mean, Preprocess, Resize, Std, Stretch, preprocessing
from edgewise.cli.inputs import Inputs, Seed, Shapes, batches, specs_of_method
from edgewise.cli.options import DataFiles, Json, Method, Quiet, Threads
from edgewise.cli.output import Output

By = Literal["operator", "kind", "module", "line"]


def command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .pte file, or an .etdp file of ExecuTorch's."),
    ],
    inputs: Inputs = None,
    runs: Annotated[
        int,
        typer.Option("--runs", "-n", min=1, help="Recorded runs; inputs take turns."),
    ] = 20,
    warmup: Annotated[
        int, typer.Option("--warmup", "-w", min=0, help="Runs before them that are not.")
    ] = 3,
    by: Annotated[
        By, typer.Option("--by", help="What makes a row; modules and lines need the record.")
    ] = "operator",
    top: Annotated[int, typer.Option("--top", min=0, help="Rows shown; 0: all of them.")] = 20,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.json", help="Write a trace for ui.perfetto.dev."),
    ] = None,
    etdump: Annotated[
        Path | None,
        typer.Option("--etdump", metavar="FILE.etdp", help="Write it for ExecuTorch's Inspector."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.json", help="Write the profile as JSON."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Of the program; default: the one beside the file."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option("--program", metavar="FILE.pte", help="That an .etdp file is of."),
    ] = None,
    method: Method = None,
    threads: Threads = None,
    data: DataFiles = None,
    seed: Seed = 0,
    shape: Shapes = None,
    preprocess: Preprocess = "imagenet",
    mean: Mean = None,
    std: Std = None,
    resize: Resize = None,
    stretch: Stretch = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a file and show where the time goes: by kernel, and by operator inside delegates.

    With the record that `edgewise compile --record` writes, also by module and source line.
    Imports no torch. Of an .etdp file (ETDump), shows what ExecuTorch's runtime recorded.
    """
    out = Output(json=json, quiet=quiet)
    if program is not None and file.suffix != ".etdp":
        raise CliError(f"[--program] goes with an .etdp file; got {file}")
    if file.suffix == ".etdp":
        result = _read(file, program, method, record)
    else:
        how = preprocessing(preprocess, mean, std, resize, stretch)
        result = _run(
            out, file, inputs, method, threads, data, how, seed, shape, record, runs, warmup
        )
    if output is not None:
        result.save(output)
        out.note(f"profile written to {output}")
    if trace is not None:
        result.save_trace(trace)
        out.note(f"trace written to {trace}; open it at https://ui.perfetto.dev")
    if etdump is not None:
        result.save_etdump(etdump)
        out.note(f"ETDump written to {etdump}")
    text = result.table(by, top or None)
    out.result(
        result.to_dict() if json else {},
        lambda console: console.print(text, markup=False, highlight=False, soft_wrap=True),
    )


def _read(file: Path, program: Path | None, method: str | None, record: Path | None) -> Any:
    from edgewise.inspect.record import load_record
    from edgewise.profiling import read_etdump

    known = load_record(record) if record is not None else None
    return read_etdump(file, method=method or "forward", program=program, record=known)


def _run(
    out: Output,
    file: Path,
    inputs: list[str] | None,
    method: str | None,
    threads: int | None,
    data: list[Path] | None,
    how: Any,
    seed: int,
    shape: list[str] | None,
    record: Path | None,
    runs: int,
    warmup: int,
) -> Any:
    from edgewise.cli.files import open_method
    from edgewise.profiling import profile

    loaded = open_method(file, method, threads, data)
    given = batches(inputs, specs_of_method(loaded.metadata), how, seed=seed, shapes=shape)
    arguments = [list(batch.values) for batch in given]
    with (
        out.progress("profiling", runs + warmup) as advance,
        profile(record=record, warmup=warmup) as result,
    ):
        for number in range(runs + warmup):
            loaded.execute(arguments[number % len(arguments)])
            advance(1)
    return result
