"""A profile as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from edgewise.profiling.overhead import overhead
from edgewise.profiling.summary import Grouping, MethodSummary, Row, Stats

_WIDEST = 46
"""Characters of a cell; longer text loses its middle."""


def table(
    summaries: Sequence[MethodSummary],
    by: Grouping,
    top: int | None,
    estimates: Sequence[list[dict[str, Any]]],
    measured: bool = True,
) -> str:
    """One block for each method, the largest rows first.

    estimates: of compilers, by method. measured: by this project, so that it knows the overhead.
    """
    if not summaries:
        return "nothing was recorded: no method ran to its end while the profile was open"
    pairs = zip(summaries, estimates, strict=True)
    return "\n\n".join(_block(summary, by, top, known, measured) for summary, known in pairs)


def _block(
    summary: MethodSummary,
    by: Grouping,
    top: int | None,
    estimates: list[dict[str, Any]],
    measured: bool,
) -> str:
    runs = summary.runs
    file = f" of {os.path.basename(runs.file)}" if runs.file else ""
    count = len(runs.runs)
    execute, call = summary.execute, summary.call
    lines = [
        f"{runs.method}{file}: {count} run{'s' if count != 1 else ''}, "
        f"{_time(execute.p50)} each (p90 {_time(execute.p90)}, p99 {_time(execute.p99)}); "
        f"{_time(call.p50)} with inputs and outputs"
    ]
    rows = summary.grouped(by)
    shown = rows if top is None else rows[:top]
    cells = [_cells(summary, row, by) for row in shown]
    header = ["p50", "p90", "share", "calls", "what"]
    header += ["module"] if by != "module" else ["class"]
    header += ["line"] if by != "line" else []
    if by in ("module", "line"):
        header[4] = by
        header.insert(5, "what")
    # A column in which nobody has anything, as without a record, says nothing.
    used = [i for i in range(len(header)) if i < 5 or any(line[i] for line in cells)]
    lines += _aligned([header, *cells], used)
    hidden = rows[len(shown) :]
    if hidden:
        share = sum(sum(row.totals) for row in hidden) / max(summary.total, 1)
        lines.append(f"  and {len(hidden)} more, {share:.1%}")
    for known in estimates:
        cycles = known["figures"].get("cycles")
        if cycles is not None:
            lines.append(
                f"  delegate {known['delegate']}: {cycles:,.0f} cycles by the estimate of "
                f"{known['source']}; times above are this machine's, not the NPU's"
            )
    footer = _footer(summary, measured)
    return "\n".join([*lines, footer] if footer else lines)


def _cells(summary: MethodSummary, row: Row, by: Grouping) -> list[str]:
    stats = Stats.of(row.totals)
    calls = row.events / max(len(row.totals), 1)
    share = sum(row.totals) / max(summary.total, 1)
    left = [_time(stats.p50), _time(stats.p90), f"{share:.1%}", f"{calls:g}"]
    name = _short(row.name)
    source = os.path.basename(row.location.source)
    if by == "module":
        return [*left, row.location.module or "-", name, row.location.type, source]
    if by == "line":
        return [*left, source or "-", name, row.location.module]
    return [*left, name, row.location.module, source]


def _aligned(rows: list[list[str]], used: list[int]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in used]
    lines = []
    for row in rows:
        cells = [
            row[i].rjust(width) if i < 4 else row[i].ljust(width)
            for i, width in zip(used, widths, strict=True)
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def _footer(summary: MethodSummary, measured: bool) -> str:
    dropped = sum(run.dropped for run in summary.runs.runs)
    text = ""
    if measured:
        cost = overhead(summary)
        share = cost / summary.execute.mean if summary.execute.mean else 0.0
        text = f"  recording adds about {_time(cost)} to a run ({share:.1%})"
    if dropped:
        text += f"; {dropped} events were too many to be kept, so that the figures are too small"
    return text


def _time(microseconds: float) -> str:
    if microseconds >= 1e4:
        return f"{microseconds / 1e3:.1f} ms"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.1f} us" if microseconds >= 10 else f"{microseconds:.2f} us"


def _short(text: str) -> str:
    if len(text) <= _WIDEST:
        return text
    half = (_WIDEST - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
