"""The result of a sweep as one page: trade-off plots, and a table that can be sorted."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

from edgewise.report.policy import content_policy
from edgewise.scale.combine import Row
from edgewise.scale.page_style import SCRIPT, STYLE
from edgewise.scale.plot import SHAPES, Mark, draw, legend
from edgewise.scale.show import MISSING, cell, figures_of, name_of, shown_columns

_MOST_METRICS = 3
_LESS_IS_BETTER = ("MAE", "MSE", "error", "loss")


def render(name: str, rows: Sequence[Row], total: int) -> str:
    """The page; it refers to `programs/` and `reports/` beside it and to nothing else."""
    failed = sum(row["status"] != "ok" for row in rows)
    counts = [f"{len(rows)} of {total} combinations"]
    counts += [f"{failed} failed"] if failed else []
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"{content_policy(SCRIPT)}"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Sweep {html.escape(name)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>{html.escape(name)}</h1><p>{', '.join(counts)}</p></header>"
        f"<main>{_plots(rows)}{_table(rows)}</main>"
        '<div id="card" role="dialog" aria-label="links" hidden></div>'
        f'<script type="application/json" id="links">{_links(rows)}</script>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _plots(rows: Sequence[Row]) -> str:
    shown = []
    for figure in figures_of(rows)[:_MOST_METRICS]:
        for title, of_row in (
            ("latency, ms (NPUs: estimate)", _cost_ms),
            ("size, kB", _size_kb),
        ):
            marks = _marks(rows, figure, of_row)
            if len(marks) > 1:
                more = not figure.rpartition(": ")[2].startswith(_LESS_IS_BETTER)
                shown.append(f"<figure>{draw(marks, title, figure, more_is_better=more)}</figure>")
    if not shown:
        return ""
    note = "The line joins what nothing else beats in both. A point leads to its files."
    keys = legend(_colours(rows), _shapes(rows))
    plots = f'<div class="plots">{"".join(shown)}</div>'
    return f'<section>{keys}{plots}<p class="note">{note}</p></section>'


def _marks(rows: Sequence[Row], figure: str, cost: Any) -> list[Mark]:
    colours, shapes = _colours(rows), _shapes(rows)
    marks = []
    for index, row in enumerate(rows):
        x, y = cost(row), row.get(figure)
        if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
            continue
        name = name_of(row)
        marks.append(Mark(x, y, name, index, colours[row["model"]], shapes[row["backend"]]))
    return marks


def _cost_ms(row: Row) -> float | None:
    measured: float | None = row.get("latency_ms")
    estimated: float | None = row.get("npu_ms")
    return estimated if measured is None else measured


def _size_kb(row: Row) -> float | None:
    size = row.get("size_bytes")
    return None if size is None else size / 1e3


def _colours(rows: Sequence[Row]) -> dict[str, int]:
    return {name: i for i, name in enumerate(dict.fromkeys(row["model"] for row in rows))}


def _shapes(rows: Sequence[Row]) -> dict[str, str]:
    names = dict.fromkeys(row["backend"] for row in rows)
    return {name: SHAPES[i % len(SHAPES)] for i, name in enumerate(names)}


def _table(rows: Sequence[Row]) -> str:
    shown = shown_columns(rows)
    figures = figures_of(rows)
    heads = [(c.title, c.is_number) for c in shown] + [(f, True) for f in figures]
    head = "".join(
        f'<th{" class=n" if number else ""} aria-sort="none"><button>{html.escape(title)}'
        f"</button></th>"
        for title, number in [*heads, ("files", False), ("result", False)]
    )
    lines = []
    for index, row in enumerate(rows):
        cells = [_td(row.get(c.name), cell(row, c), c.is_number) for c in shown]
        cells += [_td(row.get(f), _number(row.get(f)), True) for f in figures]
        cells += [f'<td class="files">{_files(row)}</td>', _result(row)]
        kind = "" if row["status"] == "ok" else ' class="failed"'
        lines.append(f'<tr id="row{index}"{kind}>{"".join(cells)}</tr>')
    return (
        f'<section class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></section>"
    )


def _td(value: Any, text: str, is_number: bool) -> str:
    key = "" if value is None else value
    style = " class=n" if is_number else ""
    return f'<td{style} data-key="{html.escape(str(key))}">{html.escape(text)}</td>'


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"


def _files(row: Row) -> str:
    links = [("program", ".pte"), ("report", "report")]
    return " ".join(
        f'<a href="{html.escape(row[key])}">{text}</a>' for key, text in links if row.get(key)
    )


def _result(row: Row) -> str:
    if row["status"] == "ok":
        kept = row.get("keep_float")
        text = f"in float: {', '.join(kept) or 'nothing'}" if kept is not None else "ok"
        return f'<td class="result" data-key="">{html.escape(text)}</td>'
    text = html.escape(f"{row['stage']}: {row['status']}")
    error = html.escape(str(row["error"]))
    return (
        f'<td class="result" data-key="{text}"><b>{text}</b> <details><summary>'
        f"{error.splitlines()[0] if error else ''}</summary><pre>{error}</pre></details></td>"
    )


def _links(rows: Sequence[Row]) -> str:
    """For the cards of points; no "</" can end the element early."""
    found = [
        {"name": name_of(row), "program": row.get("program"), "report": row.get("report")}
        for row in rows
    ]
    return json.dumps(found).replace("<", "\\u003c")
