"""`edgewise run`: runs a file on inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import ZipFile

import typer
from rich.console import Console

from edgewise.cli.bundled import is_bundled_file, run_bundled
from edgewise.cli.errors import CliError
from edgewise.cli.images import Mean, Preprocess, Resize, Std, Stretch, preprocessing
from edgewise.cli.inputs import Batch, Inputs, Seed, Shapes, batches, specs_of_method
from edgewise.cli.options import DataFiles, Json, MaxMemory, Method, PteFile, Quiet, Threads
from edgewise.cli.output import Output
from edgewise.cli.tables import table
from edgewise.files import open_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_VALUES = 64
"""Elements of an output up to which JSON holds all of them."""
_MOST_SHOWN = 20
"""Batches whose outputs are shown; JSON and --output have all."""


_OF_PROGRAMS = (
    *("inputs", "output", "top", "labels", "method", "seed", "shape"),
    *("preprocess", "mean", "std", "resize", "stretch"),
)
_OF_BUNDLED_PROGRAMS = ("rtol", "atol")


def command(
    context: typer.Context,
    file: PteFile,
    inputs: Inputs = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the outputs there: .npz, or .npy for one."
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", min=0, metavar="N", help="Show the so many largest values of output 0."
        ),
    ] = 0,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="Names of classes, one a line, for --top."),
    ] = None,
    method: Method = None,
    threads: Threads = None,
    max_memory: MaxMemory = None,
    data: DataFiles = None,
    seed: Seed = 0,
    shape: Shapes = None,
    preprocess: Preprocess = "imagenet",
    mean: Mean = None,
    std: Std = None,
    resize: Resize = None,
    stretch: Stretch = False,
    rtol: Annotated[
        float, typer.Option("--rtol", help="Of a bundled program: relative error of floats.")
    ] = 1e-5,
    atol: Annotated[float, typer.Option("--atol", help="As --rtol: absolute error.")] = 1e-8,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a file on inputs; show the outputs, or write them to a file.

    A bundled program (.bpte) runs on the inputs that it holds, and the outputs are compared with
    those that it expects.

    Imports no torch. Programs for Ethos-U run in the simulator, those for Neutron that were
    compiled for this machine in LiteRT's kernels.
    """
    from edgewise.cli.files import open_method

    out = Output(json=json, quiet=quiet)
    if is_bundled_file(Path(file)):
        if unused := _given(context, _OF_PROGRAMS):
            raise CliError(
                f"[{file}] a bundled program has its own inputs, and outputs to compare with; got "
                f"{unused}; try the .pte file in it"
            )
        run_bundled(
            Path(file), out, rtol, atol, threads=threads, data_path=data, max_memory=max_memory
        )
        return
    if unused := _given(context, _OF_BUNDLED_PROGRAMS):
        raise CliError(
            f"[{unused}] must come with a bundled program, whose outputs are compared; got {file}; "
            f"try edgewise compare, which has a model's"
        )
    how = preprocessing(preprocess, mean, std, resize, stretch)
    if output is not None and output.suffix not in (".npy", ".npz"):
        raise CliError(f"[--output] must end in .npy or .npz; got {output}")
    names = labels.read_text().splitlines() if labels is not None else []
    if names and not top:
        top = 5
    loaded = open_method(file, method, threads, data, max_memory)
    given = batches(inputs, specs_of_method(loaded.metadata), how, seed=seed, shapes=shape)
    results = []
    with out.progress("running", len(given)) as advance:
        for batch in given:
            results.append(loaded.execute(list(batch.values)))
            advance(1)
    if output is not None:
        _write(output, results)
    rows = [_told(b, r, top, names) for b, r in zip(given, results, strict=True)]
    told = {"file": str(file), "method": loaded.metadata.name(), "batches": rows}
    if output is not None:
        told["output"] = str(output)
    out.result(told, lambda console: _show(console, rows, output))


def _given(context: typer.Context, names: Sequence[str]) -> str:
    """The first option of these that the command line has; empty for none."""
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.name in names and source is not None and source.name == "COMMANDLINE":
            return option.opts[0]
    return ""


def _told(batch: Batch, outputs: Sequence[Any], top: int, names: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"input": batch.name, "outputs": [_facts(y) for y in outputs]}
    if top:
        row["top"] = _top(outputs[0], top, names)
    return row


def _facts(value: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"kind": type(value).__name__, "value": value}
    facts: dict[str, Any] = {"kind": "Tensor", "dtype": str(value.dtype)}
    facts["shape"] = list(value.shape)
    if value.size:
        real = value.astype(np.float64)
        facts |= {"min": real.min(), "max": real.max(), "mean": real.mean()}
        facts["first"] = [one.item() for one in value.ravel()[:5].astype(np.float64)]
        wrong = int((~np.isfinite(real)).sum())
        if wrong:
            facts["not_finite"] = wrong
    if value.size <= _MOST_VALUES:
        facts["values"] = value.astype(np.float64) if value.dtype.kind == "V" else value
    return facts


def _top(value: Any, count: int, names: list[str]) -> list[dict[str, Any]]:
    import numpy as np

    if not isinstance(value, np.ndarray) or not value.size:
        raise CliError("[--top] output 0 must be a tensor with elements; got none")
    flat = value.astype(np.float64).ravel()
    order = np.argsort(-flat, kind="stable")[:count]
    return [
        {"index": int(i), "value": flat[i]} | ({"label": names[i]} if i < len(names) else {})
        for i in order
    ]


def _show(console: Console, rows: list[dict[str, Any]], output: Path | None) -> None:
    cells = []
    for row in rows[:_MOST_SHOWN]:
        for index, facts in enumerate(row["outputs"]):
            cells.append((row["input"] if not index else "", index, *_cells(facts)))
    columns = ["inputs", ">output", "what", ">least", ">largest", ">mean", "first values"]
    console.print(table(columns, cells))
    if len(rows) > _MOST_SHOWN:
        console.print(f"and {len(rows) - _MOST_SHOWN} more batches: --json", style="dim")
    if rows and "top" in rows[0]:
        console.print()
        best = [
            (row["input"] if not at else "", one["index"], one.get("label", ""), one["value"])
            for row in rows[:_MOST_SHOWN]
            for at, one in enumerate(row["top"])
        ]
        console.print(table(["inputs", ">class", "label", ">value"], best))
    if output is not None:
        console.print(f"written to {output}", markup=False)


def _cells(facts: dict[str, Any]) -> tuple[Any, ...]:
    if facts["kind"] != "Tensor":
        return facts["kind"], None, None, None, str(facts["value"])
    what = f"{facts['dtype']} {'x'.join(map(str, facts['shape'])) or 'scalar'}"
    if "not_finite" in facts:
        what += f", {facts['not_finite']} not finite"
    first = " ".join(f"{v:.4g}" for v in facts.get("first", []))
    return what, facts.get("min"), facts.get("max"), facts.get("mean"), first


def _write(path: Path, results: list[list[Any]]) -> None:
    """Outputs of several batches lie along a first dimension."""
    import numpy as np

    count = len(results[0])
    arrays: list[NDArray[Any]] = []
    for index in range(count):
        column = [np.asarray(row[index]) for row in results]
        if len({one.shape for one in column}) > 1:
            raise CliError(
                f"[--output] output {index} must have one shape in all batches; got "
                f"{len({one.shape for one in column})}; try one batch at a time"
            )
        arrays.append(column[0] if len(column) == 1 else np.stack(column))
    if path.suffix == ".npy":
        if count != 1:
            raise CliError(f"[--output] .npy holds one output; got {count}; try .npz")
        with open_whole(path) as file:
            # Not to the file itself: numpy then writes past it, and says not what went wrong.
            np.save(SimpleNamespace(write=file.write), arrays[0])
        return
    write_array: Any = np.lib.format.write_array
    # np.savez leaves its archive open when it fails.
    with open_whole(path) as file, ZipFile(file, "w") as archive:
        for i, array in enumerate(arrays):
            with archive.open(f"output_{i}.npy", "w", force_zip64=True) as member:
                write_array(member, array, allow_pickle=False)
