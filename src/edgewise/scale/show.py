"""How rows are shown to people: columns, units, short texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.scale.combine import Row

_OTHERS = frozenset(
    (
        "delegated_bytes",
        "delegated_nodes",
        "error",
        "host",
        "keep_float",
        "latency_p90_ms",
        "lower_seconds",
        "parameters",
        "peak_bytes",
        "program",
        "refused",
        "report",
        "stage",
        "status",
        "trials",
    )
)
MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """A column of a row, and how its values are written."""

    name: str
    title: str
    write: Callable[[Any], str] = str
    is_number: bool = True


COLUMNS = (
    Column("model", "model", is_number=False),
    Column("backend", "backend", is_number=False),
    Column("quantize", "quantize", is_number=False),
    Column("calibration", "calibration", is_number=False),
    Column("delegates", "delegates"),
    Column("delegated_macs", "MACs", lambda v: f"{100 * v:.3g} %"),
    Column("size_bytes", "size", lambda v: f"{v / 1e3:,.1f} kB"),
    Column("latency_ms", "latency", lambda v: f"{v:.3g} ms"),
    Column("npu_cycles", "NPU cycles", lambda v: f"{v:,.0f}"),
    Column("npu_ms", "NPU time", lambda v: f"{v:.3g} ms"),
)


def shown_columns(rows: Sequence[Row]) -> list[Column]:
    """Those that say something: calibration sets only if there are several."""
    found = [c for c in COLUMNS if any(row.get(c.name) is not None for row in rows)]
    sets = {row["calibration"] for row in rows} - {None}
    return [c for c in found if c.name != "calibration" or len(sets) > 1]


def name_of(row: Row) -> str:
    """Of its combination."""
    parts = [row["model"], row["backend"], row["quantize"], row["calibration"]]
    return " · ".join(part for part in parts if part)


def cell(row: Row, column: Column) -> str:
    value = row.get(column.name)
    return MISSING if value is None else column.write(value)


def figures_of(rows: Sequence[Row]) -> list[str]:
    """The columns that metrics gave."""
    known = {column.name for column in COLUMNS} | _OTHERS
    return list(dict.fromkeys(name for row in rows for name in row if name not in known))


def short_error(row: Row, width: int = 100) -> str:
    """One line: the stage, what happened, and why."""
    kinds = {"error": "", "crash": "crashed, ", "time": "took ", "memory": "took ", "lost": ""}
    lines = str(row["error"]).strip().splitlines() or [""]
    text = f"{row['stage']}: {kinds[row['status']]}{lines[0]}"
    return text if len(text) <= width else text[: width - 1] + "…"
