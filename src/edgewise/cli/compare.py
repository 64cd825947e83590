"""`edgewise compare`: accuracy against the float model, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from edgewise.cli.compiling import (
    Backend,
    Calibration,
    GroupSize,
    KeepFloat,
    Limit,
    Methods,
    Quantize,
    Way,
    check,
    compile_one,
    data,
    methods_from,
    scheme,
)
from edgewise.cli.errors import CliError
from edgewise.cli.images import Mean, Preprocess, Resize, Std, Stretch, preprocessing
from edgewise.cli.inputs import Inputs
from edgewise.cli.models import ExampleShapes, LoadedModel, ModelArgument, load_model
from edgewise.cli.options import Json, Method, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import table
from edgewise.registry import DEFAULT

if TYPE_CHECKING:
    from edgewise.accuracy.comparison import Comparison


def command(
    model: ModelArgument,
    backend: Backend = DEFAULT,
    quantize: Quantize = "none",
    program: Annotated[
        Path | None,
        typer.Option(
            "--program",
            metavar="FILE.pte",
            help="Compare this file's outputs instead; no layers, for these are of no file.",
        ),
    ] = None,
    calibration: Calibration = None,
    limit: Limit = 128,
    keep_float: KeepFloat = None,
    quantize_method: Methods = None,
    group_size: GroupSize = None,
    before: Annotated[
        list[str] | None,
        typer.Option(
            "--before",
            metavar="NAME",
            help="Also a program with these methods instead (none: rounding alone), whose decibels "
            "are put next to the others; repeatable, as --quantize-method.",
        ),
    ] = None,
    inputs: Inputs = None,
    layers: Annotated[
        bool, typer.Option("--layers/--no-layers", help="Also what is in the middle.")
    ] = True,
    most: Annotated[
        int,
        typer.Option("--most", min=0, metavar="N", help="Show so many layers, the worst first."),
    ] = 10,
    least: Annotated[
        float | None,
        typer.Option(
            "--min-db", metavar="DB", help="Exit with 4 if an output is below so many decibels."
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write a picture of the layers there."),
    ] = None,
    method: Method = None,
    shape: ExampleShapes = None,
    preprocess: Preprocess = "imagenet",
    mean: Mean = None,
    std: Std = None,
    resize: Resize = None,
    stretch: Stretch = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How far a program's values are from the float model's, in decibels, layer by layer.

    The model is compiled and run on the native runtime next to PyTorch, on the inputs given,
    else on the calibration data, else on the example inputs.
    """
    out = Output(json=json, quiet=quiet)
    how = preprocessing(preprocess, mean, std, resize, stretch)
    way = Way(
        backend,
        scheme(quantize),
        tuple(keep_float or ()),
        group_size,
        methods=methods_from(quantize_method),
    )
    if before is not None and (program is not None or way.quantize is None):
        raise CliError("[--before] is for what --quantize makes; try --quantize int8")
    if program is None:
        check(way, calibration)
    elif not program.exists():
        raise CliError(f"[--program] no such file: {program}")
    with out.progress(f"loading {model}"):
        loaded = load_model(model, shape)
    calibrating = data(loaded, calibration, how, limit, "--calibration") if calibration else None
    if inputs:
        batches = data(loaded, inputs, how)
    elif calibrating:
        batches = calibrating
        out.note("compared on the calibration data; --input for other data")
    else:
        batches = [loaded.example()]
        out.note("compared on the example inputs alone, which says little; try --input")
    if program is not None:
        with out.progress(f"comparing {program}"):
            found = _of_file(loaded, program, batches, method)
    else:
        made = compile_one(loaded, way, out, calibrating)
        with out.progress("comparing"):
            found = _of_program(loaded, made.program, batches, layers)
        if before is not None:
            other = compile_one(
                loaded, replace(way, methods=methods_from(before)), out, calibrating
            )
            with out.progress("comparing the other"):
                earlier = _of_program(loaded, other.program, batches, layers)
            label = " + ".join(methods_from(before) or ()) or "rounding alone"
            found = found.beside(earlier, label)
        found = replace(found, calibrated=len(calibrating) if calibrating else None)
    if picture is not None:
        found.to_svg(picture)
    told = {"model": model, "program": str(program or way), **found.to_dict()}
    out.result(told, lambda console: _show(console, found, most, picture))
    worst = found.sqnr_db
    if least is not None and worst < least:
        out.fail(f"[--min-db] outputs must have {least:g} dB at least; got {worst:.1f} dB")


def _of_program(
    loaded: LoadedModel, program: Any, batches: Sequence[Any], layers: bool
) -> Comparison:
    from edgewise.accuracy.comparing import compare

    if loaded.keywords:
        raise CliError(
            f"[{loaded.name}] is compared layer by layer on inputs by position; got "
            f"{', '.join(loaded.keywords)} by name; try --program with the compiled file"
        )
    return compare(_module(loaded), program, batches, layers=layers)


def _module(loaded: LoadedModel) -> Any:
    import torch

    model = loaded.model
    return model if isinstance(model, torch.nn.Module) else model.module()


def _of_file(
    loaded: LoadedModel, file: Path, batches: Sequence[Any], method: str | None
) -> Comparison:
    """The outputs of a file, next to the model's in eager mode."""
    import torch
    from torch.utils import _pytree as pytree

    from edgewise.accuracy.comparison import Comparison
    from edgewise.accuracy.figures import Output as Compared
    from edgewise.accuracy.metrics import ErrorMetrics
    from edgewise.cli.files import open_method

    run = open_method(file, method, None, None)
    model = _module(loaded)
    if not isinstance(model, torch.fx.GraphModule):
        model.eval()
    metrics: dict[str, ErrorMetrics] = {}
    for batch in batches:
        with torch.no_grad():
            named, _ = pytree.tree_flatten_with_path(loaded.run(model, batch))
        got = run.execute(pytree.tree_leaves(batch))
        if len(named) != len(got):
            raise CliError(
                f"[--program] must return as many values as the model; got {len(got)} and "
                f"{len(named)}; try the file that was compiled from {loaded.name}"
            )
        for (path, wanted), value in zip(named, got, strict=True):
            if isinstance(wanted, torch.Tensor):
                metrics.setdefault(pytree.keystr(path) or "0", ErrorMetrics()).add(wanted, value)
    outputs = [Compared(n, t.sqnr_db, t.cosine, t.worst) for n, t in metrics.items()]
    return Comparison(outputs, [], len(batches))


def _show(console: Console, found: Comparison, most: int, picture: Path | None) -> None:
    console.print(found.title())
    for title, columns, rows in found.tables(most):
        if title:
            console.print()
        console.print(table(columns, rows, title.replace("; all: to_json, to_svg", "")))
    if found.hook_error > 1e-4:
        console.print(found.warning())
    tried = found.advice()
    if tried:
        console.print()
        console.print("what to try", style="bold")
        for line in tried:
            console.print(f"  {line}", markup=False, style="green")
    if picture is not None:
        console.print(f"picture: {picture}", markup=False)
