"""`edgewise report`: a page about one or several files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output


def command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help=".pte files, of edgewise or of ExecuTorch."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="The page. Default: report.html."),
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.json", help="What `edgewise profile` saved, for each file."),
    ] = None,
    accuracy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json", help="What `edgewise compare --json` printed, for each file."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Default: the files' names.")] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Serve the page to this machine, where it runs the programs."),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --live; 0 for any that is free.")
    ] = 8000,
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="With --live: the runtime for browsers, as `make web` leaves it."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """One HTML file about programs: what runs where and why, costs, memory plan, accuracy.

    It opens from disk and refers to nothing else. Several files are shown side by side. Modules,
    source lines and reasons come from the record that `edgewise compile` writes beside a file;
    of a file without one, the page shows what the file holds. Measurements are given in the
    order of the files: `--profile a.json --profile b.json`.

    With --live the page is served to browsers on this machine until Ctrl-C, and has a part that
    runs the programs there by WebAssembly, on inputs that one chooses; a file is written if -o
    names one.
    """
    from edgewise.report import write

    out = Output(json=json, quiet=quiet)
    given = {"profiles": profile or (), "comparisons": accuracy or (), "title": title}
    if not live or output is not None:
        written = write(output or Path("report.html"), files, **given)
        size = written.stat().st_size
        result = {"page": str(written), "bytes": size, "programs": [str(one) for one in files]}
        out.result(result, lambda console: console.print(f"{written}: {size / 1e3:.0f} kB"))
    if live:
        _serve(files, runtime, port, out, given)


def _serve(
    files: list[Path], runtime: Path | None, port: int, out: Output, given: dict[str, Any]
) -> None:
    from edgewise.report.live import live_server

    with live_server(files, runtime=runtime, port=port, **given) as running:
        address = f"http://127.0.0.1:{running.server_port}/"
        out.result({"address": address}, lambda console: console.print(f"{address}  (Ctrl-C ends)"))
        with contextlib.suppress(KeyboardInterrupt):
            running.serve_forever()
