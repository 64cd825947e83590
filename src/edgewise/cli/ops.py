"""`edgewise ops`: the operators that a backend takes, from its table."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from edgewise.cli.errors import CliError
from edgewise.cli.options import Json, Quiet
from edgewise.cli.output import Output
from edgewise.cli.tables import table
from edgewise.partition.accuracy import Accuracies, shown

_BACKENDS = ("xnnpack", "ethos-u", "neutron", "runtime")


def command(
    backend: Annotated[
        str,
        typer.Argument(
            metavar="BACKEND",
            help="xnnpack, ethos-u, neutron, or runtime for the runtime's own kernels.",
            autocompletion=lambda: list(_BACKENDS),
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
    name = _chosen(backend)
    rows = _runtime() if name == "runtime" else _rows(name)
    if find is not None:
        rows = [r for r in rows if any(find in text for text in (r["name"], *r["operators"]))]
        if not rows:
            raise CliError(
                f"[--find] {name} takes no operator with {find!r} in its name; "
                f"try edgewise ops {'runtime' if name != 'runtime' else 'xnnpack'} --find {find}"
            )
    out.result({"backend": name, "operators": rows}, lambda console: _show(console, name, rows))


def _chosen(backend: str) -> str:
    """The table of a backend; a target's is its backend's."""
    wanted = backend.lower()
    for name in _BACKENDS:
        if wanted == name or (name in ("ethos-u", "neutron") and wanted.startswith(name)):
            return name
    if wanted in ("none", "portable"):
        return "runtime"
    raise CliError(f"[ops] BACKEND must be one of {', '.join(_BACKENDS)}; got {backend!r}")


def _rows(name: str) -> list[dict[str, Any]]:
    if name == "xnnpack":
        from edgewise.backends.xnnpack.rows import all_rows
    elif name == "ethos-u":
        from edgewise.backends.ethosu.rows import all_rows  # type: ignore[assignment]
    else:
        from edgewise.backends.neutron.rows import all_rows  # type: ignore[assignment]
    found = []
    for row in sorted(all_rows(), key=lambda one: one.name):
        told: Any = row
        found.append(
            {
                "name": told.name,
                "operators": [str(target).removeprefix("aten.") for target in told.targets],
                "types": _types(name, told),
                "rules": [constraint.rule for constraint in told.constraints],
                "accuracy": shown(_accuracies(name, told)),
                "special_values": [d.text for d in getattr(told, "deviations", ())],
                "computed_as": told.tflite if name == "neutron" else told.also,
            }
        )
    return found


def _accuracies(name: str, row: Any) -> Accuracies:
    if name != "xnnpack":
        return row.accuracy  # type: ignore[no-any-return]
    from edgewise.backends.xnnpack.rows.quantization import accuracies

    return accuracies(row)


def _types(name: str, row: Any) -> str:
    if name == "ethos-u":
        only = f" ({', '.join(row.only)})" if row.only else ""
        return ("int8, int16" if row.int16 else "int8") + only
    if name == "neutron":
        return "int8"
    from edgewise.backends.xnnpack.rows.quantization import QUANTIZED

    types = [str(one).removeprefix("torch.") for one in row.dtypes]
    quantized = QUANTIZED.get(row.name)
    return ", ".join([*types, quantized] if quantized else types)


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
    if name == "runtime":
        overloads = [(row["name"], ", ".join(row["operators"])) for row in rows]
        console.print(table(["operator", "overloads"], overloads))
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
