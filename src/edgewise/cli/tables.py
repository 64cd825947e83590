"""Tables and figures, the same in every command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

Cell = str | int | float | Text | None


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], title: str = "") -> Table:
    """Columns whose name starts with ">" are for numbers, aligned to the right; with "!", never
    wrapped; the others wrap where the terminal is too narrow."""
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for column in columns:
        plain = column.lstrip(">!")
        made.add_column(
            plain,
            justify="right" if column.startswith(">") else "left",
            no_wrap=column[:1] in (">", "!"),
            overflow="fold",
            header_style="dim",
        )
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def facts(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Names and values, a line each."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, _cell(value))
    return made


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    if value is None:
        return Text("-")
    if isinstance(value, float):
        return Text(f"{value:.4g}")
    return Text(f"{value:,}" if isinstance(value, int) else value)


def size(count: float) -> str:
    """Bytes, in thousands: "13.9 MB"."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def share(part: float, whole: float) -> str:
    """ "12 %"; never 0 % of something."""
    percent = 100 * part / whole if whole else 0
    return "< 1 %" if 0 < percent < 0.5 else f"{percent:.0f} %"


def times(seconds: float) -> str:
    """ "1.23 ms", "45.6 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
