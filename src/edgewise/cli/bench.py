"""`edgewise bench`: how long a file takes, how much memory, next to eager and ExecuTorch."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from edgewise.cli.errors import CliError
from edgewise.cli.images import preprocessing
from edgewise.cli.inputs import Inputs, Seed, Shapes, batches, specs_of_method
from edgewise.cli.options import Json, Method, PteFile, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import size, table, times

if TYPE_CHECKING:
    from edgewise.cli.bench_peers import Measured


def command(
    file: PteFile,
    eager: Annotated[
        str | None,
        typer.Option("--eager", metavar="MODEL", help="Also the model in PyTorch: model.py:make."),
    ] = None,
    peer: Annotated[
        bool, typer.Option("--peer", help="Also the same file in ExecuTorch's runtime.")
    ] = False,
    threads: Annotated[
        list[int] | None,
        typer.Option(
            "--threads", "-t", min=1, metavar="N", help="Repeatable. Default: one for each core."
        ),
    ] = None,
    calls: Annotated[
        int | None,
        typer.Option("--calls", "-n", min=1, metavar="N", help="Of each. Default: by --seconds."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=0.01, metavar="S", help="To measure each for.")
    ] = 2.0,
    warmup: Annotated[
        int,
        typer.Option(
            "--warmup", "-w", min=0, metavar="N", help="Calls before, that are not counted."
        ),
    ] = 3,
    limit: Annotated[
        float | None,
        typer.Option(
            "--max-ms", metavar="MS", help="Exit with 4 if the median of edgewise is above it."
        ),
    ] = None,
    inputs: Inputs = None,
    seed: Seed = 0,
    shape: Shapes = None,
    method: Method = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How long a call takes, and how much memory.

    Each peer runs in a process of its own; they take turns in short blocks. Memory is what the
    process grows by from loading to the end, pages of the mapped file included.
    """
    from edgewise.cli.bench_peers import BLOCKS, measure
    from edgewise.cli.files import open_method

    out = Output(json=json, quiet=quiet)
    loaded = open_method(file, method, None, None)
    name = loaded.metadata.name()
    specs = specs_of_method(loaded.metadata)
    batch = batches(inputs, specs, preprocessing("imagenet"), seed=seed, shapes=shape)[0]
    del loaded
    counts = threads or [_cores()]
    peers = ["edgewise"] + ["ExecuTorch"] * peer + ["eager"] * (eager is not None)
    with tempfile.TemporaryDirectory(prefix="edgewise-bench-") as folder:
        held = Path(folder) / "inputs.npz"
        _save(held, batch.values)
        common = {"inputs": str(held), "kinds": [s.kind for s in specs], "method": name}
        common["shapes"] = list(shape) if shape else None  # type: ignore[assignment]
        groups: list[list[Measured]] = []
        with out.progress("measuring", BLOCKS * len(peers) * len(counts)) as advance:
            for count in counts:
                requests = [
                    {**common, "side": each, "threads": count}
                    | {"file": eager if each == "eager" else str(file)}
                    for each in peers
                ]
                groups.append(
                    measure(requests, warmup=warmup, calls=calls, seconds=seconds, advance=advance)
                )
    machine = {"cpu": _cpu(), "cores": _cores(), "load_average": os.getloadavg()[0]}
    data = {
        "file": str(file),
        "method": name,
        "input": batch.name,
        "machine": machine,
        "results": [one.to_dict() for group in groups for one in group],
    }
    out.result(data, lambda console: _show(console, groups, machine))
    if limit is not None:
        slow = [g[0] for g in groups if 1e3 * g[0].percentile(50) > limit]
        if slow:
            worst = max(1e3 * one.percentile(50) for one in slow)
            out.fail(f"[--max-ms] the median must be at most {limit:g} ms; got {worst:.3f} ms")


def _show(console: Console, groups: list[list[Measured]], machine: dict[str, Any]) -> None:
    rows = []
    for group in groups:
        ours = group[0].percentile(50)
        for one in group:
            ratio = one.percentile(50) / ours if one is not group[0] else None
            rows.append(
                (
                    one.peer,
                    one.threads,
                    Text(times(one.percentile(50)), "bold"),
                    times(one.percentile(90)),
                    times(one.percentile(99)),
                    times(min(one.seconds)),
                    len(one.seconds),
                    times(one.load_seconds),
                    size(one.memory),
                    f"{ratio:.2f} x" if ratio is not None else "",
                    f"{one.error:.1e}" if one.error is not None else "",
                )
            )
    columns = ["", ">threads", ">median", ">p90", ">p99", ">least", ">calls", ">load", ">memory"]
    if any(len(group) > 1 for group in groups):
        columns += [">of edgewise's", ">differs by"]
    console.print(table(columns, [row[: len(columns)] for row in rows]))
    told = f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_average']:.1f}"
    console.print(told, style="dim", markup=False)


def _save(path: Path, values: tuple[Any, ...]) -> None:
    import numpy as np

    if any(value is None for value in values):
        raise CliError("[bench] inputs must be tensors or numbers; got None")
    np.savez(path, *(np.asarray(value) for value in values))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
