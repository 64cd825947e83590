"""The budget of `--quantize auto`, from options."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.errors import CliError

if TYPE_CHECKING:
    from edgewise.quantize.budget import Budget

MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="FILE.py:NAME",
        help="For --quantize auto: a function that is given what runs the model and returns a "
        "number, larger for better; or module:name.",
    ),
]
Drop = Annotated[
    float | None,
    typer.Option(
        "--drop",
        metavar="SHARE",
        help="For --metric: how much less than the float model's it may be. Default: 0.005.",
    ),
]
Cosine = Annotated[
    float | None,
    typer.Option(
        "--cosine",
        metavar="VALUE",
        help="For --quantize auto: of the outputs with the float model's. Default: 0.99, if no "
        "other condition is given.",
    ),
]
MinDb = Annotated[
    float | None,
    typer.Option(
        "--min-db", metavar="DB", help="For --quantize auto: ratio of signal to noise at least."
    ),
]
MaxSize = Annotated[
    int | None,
    typer.Option("--max-size", metavar="BYTES", help="For --quantize auto: of the file."),
]
MaxLatency = Annotated[
    float | None,
    typer.Option("--max-latency", metavar="MS", help="For --quantize auto: of a call, here."),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", metavar="S", help="For --quantize auto: how long it may take. Default: 300."
    ),
]


def budget_of(
    metric: str | None,
    drop: float | None,
    cosine: float | None,
    min_db: float | None,
    size: int | None,
    latency: float | None,
    seconds: float | None,
) -> Budget | None:
    """None if no option was given. CliError for a metric that is none."""
    from edgewise.quantize.budget import Budget

    given: dict[str, Any] = {
        "metric": None if metric is None else _function(metric),
        "drop": drop,
        "cosine": cosine,
        "sqnr_db": min_db,
        "size": size,
        "latency": latency,
        "seconds": seconds,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if "drop" in given and metric is None:
        raise CliError(f"[--drop] is for --metric; got {drop}; try --metric FILE.py:NAME")
    return Budget(**given) if given else None


def _function(text: str) -> Any:
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise CliError(f"[--metric] must be FILE.py:NAME or module:name; got {text!r}")
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise CliError(f"[--metric] no such file: {where}")
        spec = importlib.util.spec_from_file_location(f"_edgewise_metric_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.resolve().parent))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.pop(0)
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as missing:
            raise CliError(f"[--metric] {missing}; got {text!r}") from missing
    if not callable(getattr(module, name, None)):
        raise CliError(f"[--metric] {where} must have a function {name}; got none")
    return getattr(module, name)
