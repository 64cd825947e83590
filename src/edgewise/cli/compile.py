"""`edgewise compile`: from a model to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from edgewise.cli.budgets import (
    Cosine,
    Drop,
    MaxLatency,
    MaxSize,
    MetricOption,
    MinDb,
    Seconds,
    budget_of,
)
from edgewise.cli.compiling import (
    Calibration,
    FolderOptions,
    GroupSize,
    KeepFloat,
    Limit,
    MemoryMode,
    Methods,
    QuantizedInputs,
    QuantizedOutputs,
    RuntimeTarget,
    SystemConfig,
    Way,
    check,
    check_used,
    compile_one,
    complete_backend,
    complete_scheme,
    complete_task,
    data,
    methods_from,
    raw_data,
    scheme,
)
from edgewise.cli.errors import CliError
from edgewise.cli.images import (
    Mean,
    Preprocess,
    Resize,
    Std,
    Stretch,
    holds_images,
    preprocessing,
)
from edgewise.cli.models import ExampleShapes, LoadedModel, ModelArgument, load_model
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import share, size, table, times
from edgewise.registry import DEFAULT


def command(
    model: ModelArgument,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            metavar="NAME",
            help="xnnpack (default), a target of Ethos-U (ethos-u55-128), of Neutron "
            "(neutron-imxrt700, with -reference behind it for this machine), none, or several in "
            "the order in which they are asked (ethos-u55-128,xnnpack); repeatable.",
            autocompletion=complete_backend,
        ),
    ] = None,
    quantize: Annotated[
        list[str] | None,
        typer.Option(
            "--quantize",
            metavar="NAME",
            autocompletion=complete_scheme,
            help="none (default), int8, int8-dynamic, int8-weight, int4-dynamic or int4-weight, or "
            "auto: what keeps a budget; repeatable.",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Repeated for several, or a name with {backend} and {quantize} in it. Default: "
            "the model's name.",
        ),
    ] = None,
    calibration: Calibration = None,
    limit: Limit = 128,
    keep_float: KeepFloat = None,
    quantize_method: Methods = None,
    group_size: GroupSize = None,
    quantized_inputs: QuantizedInputs = False,
    quantized_outputs: QuantizedOutputs = False,
    system_config: SystemConfig = None,
    memory_mode: MemoryMode = None,
    metric: MetricOption = None,
    drop: Drop = None,
    cosine: Cosine = None,
    min_db: MinDb = None,
    max_size: MaxSize = None,
    max_latency: MaxLatency = None,
    seconds: Seconds = None,
    runtime: RuntimeTarget = None,
    shape: ExampleShapes = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="NAME",
            autocompletion=complete_task,
            help="What a folder of Hugging Face's is for: text-classification, "
            "feature-extraction, image-classification, ...",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            "--sequence-length", min=1, metavar="N", help="Of a folder: tokens, or samples."
        ),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record/--no-record",
            help="Write beside each file how it was made, for explain, inspect and report.",
        ),
    ] = True,
    dump_passes: Annotated[
        Path | None,
        typer.Option(
            "--dump-passes",
            metavar="DIR",
            help="Write the graphs after each pass that changed them, and what each pass took.",
        ),
    ] = None,
    preprocess: Preprocess = "imagenet",
    mean: Mean = None,
    std: Std = None,
    resize: Resize = None,
    stretch: Stretch = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a model, quantize it if asked, lower it, write a .pte file.

    With several backends or ways to quantize, one file for each combination. Prints what runs
    where, and why not elsewhere.
    """
    from edgewise.files import is_special
    from edgewise.inspect.record import record_path

    out = Output(json=json, quiet=quiet)
    budget = budget_of(metric, drop, cosine, min_db, max_size, max_latency, seconds)
    ways = [
        check(
            Way(
                b,
                scheme(q),
                tuple(keep_float or ()),
                group_size,
                runtime,
                methods_from(quantize_method),
                budget if q == "auto" else None,
                system_config,
                memory_mode,
                quantized_inputs,
                quantized_outputs,
            ),
            calibration,
        )
        for b in backend or [DEFAULT]
        for q in quantize or ["none"]
    ]
    if budget is not None and not any(way.budget for way in ways):
        raise CliError(
            "[--cosine, --metric, ...] are for --quantize auto; got other ways; try --quantize auto"
        )
    check_used(ways, calibration)
    paths = _paths(model, ways, output or [])
    how = preprocessing(preprocess, mean, std, resize, stretch)
    folder = FolderOptions(task, sequence_length) if Path(model).is_dir() else None
    if folder is None and (task is not None or sequence_length is not None):
        raise CliError(f"[--task] is for a folder of Hugging Face's; got {model}; try its folder")
    batches = None
    if folder is not None:
        loaded = LoadedModel(model, cast("Any", Path(model)), None)
        batches = raw_data(calibration, limit)
    else:
        with out.progress(f"loading {model}"):
            loaded = load_model(model, shape)
    if calibration and folder is None:
        with out.progress("reading calibration data"):
            batches = data(loaded, calibration, how, limit, "--calibration")
        has_pictures = any(holds_images(Path(one)) for one in calibration)
        told = f"; pictures: {how}" if has_pictures else ""
        count = f"{len(batches)} batch{'es' * (len(batches) != 1)}"
        out.note(f"calibration: {count}{told}")
    rows: list[dict[str, Any]] = []
    reports: list[str] = []
    for way, path in zip(ways, paths, strict=True):
        with _dumped(dump_passes, path if len(ways) > 1 else None):
            made = compile_one(loaded, way, out, batches, folder)
        if folder is not None:
            path.mkdir(exist_ok=True)
            path = path / "model.pte"
        has_record = record and not is_special(path)  # /dev/stdout
        made.program.save(path, record=has_record)
        report = made.program.delegation_report()
        # What needs a later release stands in the report.
        if report.tried:
            out.lines(report.tried)
        reports.append(str(report) + ("" if report.uses else f"\nruns on {report.runs_on}"))
        row: dict[str, Any] = {
            "file": str(path),
            "backend": way.backend,
            "quantize": way.quantize,
            "bytes": path.stat().st_size,
            "seconds": made.seconds,
            "nodes": len(report.nodes),
            "delegates": len(report.delegates),
            "delegated_nodes": report.share("nodes"),
            "delegated_macs": report.share("macs"),
            "runs_on": report.runs_on,
            "uses": report.uses,
            "cost_of_target": report.cost_of_target,
        }
        if report.choice is not None:
            row["choice"] = report.choice
        if has_record:
            row["record"] = str(record_path(path))
        rows.append(row)
    out.result(
        {"model": model, "files": rows}, lambda console: _show(console, rows, reports, quiet)
    )


@contextmanager
def _dumped(folder: Path | None, file: Path | None) -> Iterator[None]:
    """Writes the graphs of passes. file: of several programs this one, which gets a folder."""
    from edgewise.passes import Dump, watching

    if folder is None:
        yield
        return
    dump = Dump(folder if file is None else folder / file.stem)
    try:
        with watching(dump):
            yield
    finally:
        dump.close()


def _show(console: Console, rows: list[dict[str, Any]], reports: list[str], quiet: bool) -> None:
    if not quiet:
        for row, report in zip(rows, reports, strict=True):
            if len(rows) > 1:
                console.print(row["file"], style="bold", markup=False)
            console.print(report, markup=False, soft_wrap=True)
            console.print()
    cells = [
        (
            row["file"],
            size(row["bytes"]),
            row["delegates"],
            share(row["delegated_nodes"], 1),
            share(row["delegated_macs"], 1),
            times(row["seconds"]),
        )
        for row in rows
    ]
    columns = ["file", ">size", ">delegates", ">nodes in them", ">MACs in them", ">compiled in"]
    console.print(table(columns, cells))


def _paths(model: str, ways: Sequence[Way], given: Sequence[str]) -> list[Path]:
    """A file for each way, all of them different, in folders that are there."""
    stem = Path(model.rpartition(":")[0] or model).name.removesuffix(".py").removesuffix(".pt2")
    patterns = list(given) or [stem + "-{backend}-{quantize}.pte" if len(ways) > 1 else stem]
    if len(patterns) == 1:
        patterns *= len(ways)
    if len(patterns) != len(ways):
        raise CliError(
            f"[--output] must be given once, or for each of {len(ways)} files "
            f"({', '.join(map(str, ways))}); got {len(patterns)}"
        )
    paths = []
    for pattern, way in zip(patterns, ways, strict=True):
        backends = way.backend.replace(",", "-")
        name = pattern.replace("{backend}", backends)
        name = name.replace("{quantize}", way.quantize or "float")
        path = Path(name)
        if path.is_dir() and not Path(model).is_dir():
            path /= f"{stem}-{backends}-{way.quantize or 'float'}.pte"
        if Path(model).is_dir():
            paths.append(path if pattern in given else path.with_name(f"{path.name}-edgewise"))
            continue
        paths.append(path if path.suffix else path.with_suffix(".pte"))
    if len(set(paths)) < len(paths):
        raise CliError(
            f"[--output] {len(ways)} files must have different names; got {patterns[0]}; try a "
            f"name with {{backend}} and {{quantize}}, or -o for each"
        )
    for path in paths:
        if not path.parent.is_dir():
            raise CliError(f"[--output] no such folder: {path.parent}; try mkdir -p {path.parent}")
    return paths
