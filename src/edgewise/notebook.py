"""What notebooks show of reports, programs, comparisons and profiles: small pieces of HTML.

They take their colours from the notebook, light or dark, and hold no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_CELL = "text-align:{};padding:2px 12px 2px 0;border:none"


def heading(text: str) -> str:
    """A line in bold."""
    return f"<div style='font-weight:600;margin:4px 0'>{escape(text)}</div>"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """columns: names; one that begins with ">" is of numbers, set right."""
    aligned = ["right" if name.startswith(">") else "left" for name in columns]
    head = _row("th", [name.removeprefix(">") for name in columns], aligned)
    body = "".join(_row("td", row, aligned) for row in rows)
    style = "border-collapse:collapse;font-variant-numeric:tabular-nums"
    return f"<table style='{style}'><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[object], aligned: Sequence[str]) -> str:
    made = [
        f"<{tag} style='{_CELL.format(side)}'>{escape(str(cell))}</{tag}>"
        for cell, side in zip(cells, aligned, strict=True)
    ]
    return f"<tr>{''.join(made)}</tr>"


def text(value: str) -> str:
    """Lines as they are on a terminal."""
    style = "margin:4px 0;overflow-x:auto;background:none;color:inherit"
    return f"<pre style='{style}'>{escape(value)}</pre>"


def block(*parts: str) -> str:
    """The parts, one below the other."""
    return f"<div>{''.join(parts)}</div>"
