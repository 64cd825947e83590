"""`edgewise sweep`: models x backends x settings, compiled, run and compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.errors import CHECK
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output


def command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.yaml", help="What to combine.")],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="LOCATION", help="Folder or URL. Default: the plan's."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Of a Ray cluster: host:port, or auto."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", min=1, help="Processes here. Default: one for each CPU."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the combinations and what each needs.")
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Try again what failed before.")
    ] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Make models and data anew.")] = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write rows.parquet beside rows.jsonl.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 4 if a combination failed.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compiles every model of a plan for every backend in every way, and compares what comes.

    Results are kept by content in the plan's folder: rows.jsonl, index.html with trade-off
    plots, the .pte files and their reports. What was stopped goes on where it was; what is
    known is not run again. docs/scale.md describes plans.
    """
    from edgewise.scale import read_plan

    chosen = read_plan(plan)
    output = Output(json=json, quiet=quiet)
    if dry_run:
        _preview(output, chosen, out)
        return
    from edgewise.scale import sweep

    with _growing(output, len(chosen.combinations)) as on_row, _quiet_standard_output(ray):
        result = sweep(
            chosen,
            out=out,
            ray=ray,
            workers=workers,
            retry_errors=retry_errors,
            reload=reload,
            parquet=parquet,
            on_row=on_row,
        )
    data = {"location": result.location, "executed": result.executed, "rows": result.rows}
    output.result(data, lambda console: _show(console, result))
    if check and result.failed:
        output.note(f"[sweep] every combination must come through; {len(result.failed)} failed")
        raise typer.Exit(CHECK)


def _show(console: Any, result: Any) -> None:
    from edgewise.cli.sweep_table import remarks, table

    console.print(table(result.rows))
    for line in remarks(result.rows):
        console.print(line, markup=False)
    known = "" if result.executed else " (all of it was known)"
    console.print(f"\n{len(result.rows)} rows in {result.location}{known}", soft_wrap=True)
    console.print(f"page: {result.location}/index.html", soft_wrap=True)


def _preview(output: Output, plan: Any, out: str | None) -> None:
    from edgewise.cli.sweep_table import preview_table
    from edgewise.scale.preview import preview
    from edgewise.scale.store import Store
    from edgewise.scale.sweeping import location_of

    found = list(preview(plan, Store(location_of(plan, out))))
    data = [
        {
            "model": one.combination.model.name,
            "backend": one.combination.backend,
            "quantize": one.combination.setting.name,
            "calibration": one.combination.calibration and one.combination.calibration.name,
            "first_stage": one.stage or None,
            "needs": list(one.needs),
            "problem": one.problem or None,
        }
        for one in found
    ]
    output.result(data, lambda console: console.print(preview_table(found)))


@contextmanager
def _quiet_standard_output(ray: str | None) -> Iterator[None]:
    """Ray writes of lost nodes to standard output, which is for the result."""
    with redirect_stdout(sys.stderr) if ray else nullcontext():
        yield


@contextmanager
def _growing(output: Output, total: int) -> Iterator[Callable[[Any, Any], None] | None]:
    """Shows rows as they come: a table that grows on a terminal, else a line for each."""
    if output.quiet:
        yield None
        return
    from edgewise.cli.sweep_table import GrowingTable, line

    if output.remarks.is_terminal:
        with GrowingTable(output.remarks, total) as growing:
            yield growing.add
        return
    yield lambda row, progress: output.remarks.print(
        line(row, progress), style="dim", markup=False, highlight=False, soft_wrap=True
    )
