"""A backend's operator table as Markdown: each backend says which columns, the rest is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from edgewise.partition.rows import Row

R = TypeVar("R", bound=Row)


def operators_of(row: Row) -> str:
    """PyTorch's operators of the row, as code."""
    return ", ".join(f"`{target}`".replace("aten.", "") for target in row.targets)


def table_of_rows(rows: Iterable[R], columns: Mapping[str, Callable[[R], str]]) -> str:
    """The rows by name. columns: behind the operator and PyTorch's names, by their heads."""
    lines = [
        (row.name, operators_of(row), *(cell(row) for cell in columns.values()))
        for row in sorted(rows, key=lambda row: row.name)
    ]
    return table(("operator", "operators of torch", *columns), lines)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Of Markdown. Bars in cells are escaped."""
    return _line(heads) + f"{'|---' * len(heads)}|\n" + "".join(map(_line, lines))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
