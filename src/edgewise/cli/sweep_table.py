"""Tables of a sweep for terminals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgewise.scale.combine import Row
from edgewise.scale.preview import Preview
from edgewise.scale.show import (
    COLUMNS,
    MISSING,
    cell,
    figures_of,
    name_of,
    short_error,
    shown_columns,
)
from edgewise.scale.sweeping import Progress

_OTHER_LINES = 8
"""Of the screen: heads, progress, the prompt."""


def table(rows: Sequence[Row]) -> Table:
    """A line for each row."""
    shown = shown_columns(rows)
    figures = figures_of(rows)
    found = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in shown:
        justify: Any = "right" if column.is_number else "left"
        found.add_column(column.title, justify=justify, no_wrap=True)
    for name in figures:
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("result", no_wrap=True)
    for row in rows:
        cells = [cell(row, column) for column in shown]
        cells += [MISSING if row.get(f) is None else f"{row[f]:.4g}" for f in figures]
        found.add_row(*map(Text, cells), _result(row))
    return found


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """What searches chose; why what failed did, each reason once."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.get("keep_float") is not None:
            kept = ", ".join(row["keep_float"]) or "nothing"
            yield f"\n{name_of(row)}: in float {kept}, after {len(row['trials'])} trials"
        if row["status"] != "ok":
            reasons.setdefault(short_error(row, 400), []).append(name_of(row))
    for reason, names in reasons.items():
        yield f"\n{reason}\n  {', '.join(names)}"


def line(row: Row, progress: Progress) -> str:
    """For logs: the count, the combination, what came of it."""
    count = f"[{progress.done}/{progress.total}{_left(progress)}]"
    if row["status"] != "ok":
        return f"{count} {name_of(row)}: {short_error(row, 160)}"
    parts = [f"{c.title} {cell(row, c)}" for c in COLUMNS[4:] if row.get(c.name) is not None]
    parts += [f"{name} {row[name]:.4g}" for name in figures_of([row]) if row[name] is not None]
    return f"{count} {name_of(row)}: {', '.join(parts)}"


class GrowingTable:
    """A table at the bottom of a terminal, as many rows as fit, and the time that is left."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._rows: list[Row] = []
        self._progress = Progress(0, total, None)
        self._told = time.monotonic()
        self._live = Live(
            console=console, transient=True, refresh_per_second=2, get_renderable=self._render
        )

    def __enter__(self) -> GrowingTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, row: Row, progress: Progress) -> None:
        """A row has come; the table shows it at its next refresh."""
        self._rows.append(row)
        self._progress, self._told = progress, time.monotonic()

    def _render(self) -> Group:
        room = max(3, self._console.size.height - _OTHER_LINES)
        parts: list[Any] = []
        if len(self._rows) > room:
            parts.append(Text(f"... {len(self._rows) - room} rows above", style="dim"))
        if self._rows:
            parts.append(table(self._rows[-room:]))
        progress = self._progress
        if progress.seconds_left is not None:
            left = max(0.0, progress.seconds_left - (time.monotonic() - self._told))
            progress = Progress(progress.done, progress.total, left)
        text = f"{progress.done} of {progress.total} combinations{_left(progress)}"
        parts.append(Text(text, style="dim"))
        return Group(*parts)


def preview_table(found: Sequence[Preview]) -> Group:
    """The combinations, and what each needs."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("combination", no_wrap=True)
    for title in ("begins with", "needs", "problem"):
        shown.add_column(title)
    for one in found:
        first = one.stage or "(known)"
        shown.add_row(*map(Text, (one.combination.name, first, ", ".join(one.needs), one.problem)))
    todo = sum(bool(one.stage) for one in found)
    problems = sum(bool(one.problem) for one in found)
    count = f"{len(found)} combinations, {todo} to run, {problems} that cannot come to anything"
    return Group(shown, Text(f"\n{count}"))


def _result(row: Row) -> Text:
    return Text(row["status"], style="" if row["status"] == "ok" else "red")


def _left(progress: Progress) -> str:
    if progress.seconds_left is None or progress.done == progress.total:
        return ""
    seconds = round(progress.seconds_left)
    text = f"{seconds} s" if seconds < 100 else f"{round(seconds / 60)} min"
    return f", about {text} left"
