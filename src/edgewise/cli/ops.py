"""`edgewise ops`: the operators that a backend takes, from its table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from edgewise.cli.errors import CliError
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import table
from edgewise.registry import DEFAULT, NO_BACKEND, Backend, backends

_RUNTIME = "runtime"
"""Instead of a backend: the runtime's own kernels."""


def command(
    backend: Annotated[
        str,
        typer.Argument(
            metavar="BACKEND",
            help="xnnpack, ethos-u, neutron, ..., or runtime for the runtime's own kernels.",
            autocompletion=lambda: _names(),
        ),
    ],
    find: Annotated[
        str | None,
        typer.Option(
            "--find", "-f", metavar="TEXT", help="Only operators with this in their name."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The operators that a backend takes, and under which rules.

    What breaks a rule is refused, with the rule in the delegation report (edgewise explain), and
    runs on the runtime's own kernels.
    """
    out = Output(json=json, quiet=quiet)
    chosen = _chosen(backend)
    name = chosen.name if chosen is not None else _RUNTIME
    rows = _rows(chosen) if chosen is not None else _runtime()
    if find is not None:
        rows = [r for r in rows if any(find in text for text in (r["name"], *r["operators"]))]
        if not rows:
            raise CliError(
                f"[--find] {name} takes no operator with {find!r} in its name; "
                f"try edgewise ops {_RUNTIME if chosen is not None else DEFAULT} --find {find}"
            )
    out.result({"backend": name, "operators": rows}, lambda console: _show(console, name, rows))


def _names() -> list[str]:
    return [*(backend.name for backend in backends()), _RUNTIME]


def _chosen(wanted: str) -> Backend | None:
    """The backend, by its name or a target's; None for the runtime's own kernels."""
    name = wanted.lower()
    if name in (_RUNTIME, NO_BACKEND, "portable"):
        return None
    for backend in backends():
        several = backend.name not in backend.targets()
        if name == backend.name or (several and name.startswith(backend.name)):
            return backend
        if backend.target(wanted) is not None:
            return backend
    raise CliError(f"[ops] BACKEND must be one of {', '.join(_names())}; got {wanted!r}")


def _rows(backend: Backend) -> list[dict[str, Any]]:
    return [asdict(facts) for facts in backend.operators()]


def _runtime() -> list[dict[str, Any]]:
    from edgewise.runtime import Runtime

    overloads: dict[str, list[str]] = {}
    for full in sorted(Runtime.get().operator_registry.operator_names):
        short, _, overload = full.partition(".")
        overloads.setdefault(short, []).append(overload or "(in place)")
    return [
        {"name": n.removeprefix("aten::"), "operators": found} for n, found in overloads.items()
    ]


def _show(console: Console, name: str, rows: list[dict[str, Any]]) -> None:
    if name == _RUNTIME:
        overloads = [(row["name"], ", ".join(row["operators"])) for row in rows]
        console.print(table(["operator", "overloads"], overloads))
    elif not rows:
        console.print(f"{name} has no table: its own partitioner says what it takes, for a model")
        return
    else:
        cells = [
            (
                row["name"],
                ", ".join(row["operators"]),
                row["types"],
                "; ".join(row["rules"]),
                row["computed_as"],
                "; ".join([row["accuracy"], *row["special_values"]]),
            )
            for row in rows
        ]
        heads = ["operator", "of torch", "types", "rules", "computed as", "accuracy"]
        console.print(table(heads, cells))
    console.print(f"{len(rows)} operator{'s' * (len(rows) != 1)}", style="dim")
