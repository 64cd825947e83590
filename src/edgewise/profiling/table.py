"""A profile as text."""

from __future__ import annotations

import os
from collections.abc import Sequence

from edgewise.inspect.layers import layers, slowest, summary_of, table_of
from edgewise.inspect.record import MethodRecord
from edgewise.profiling.overhead import overhead
from edgewise.profiling.summary import Grouping, MethodSummary, Row, Stats

_WIDEST = 46
"""Characters of a cell; longer text loses its middle."""


def table(
    summaries: Sequence[MethodSummary],
    by: Grouping,
    top: int | None,
    records: Sequence[MethodRecord | None],
    measured: bool = True,
) -> str:
    """One block for each method, the largest rows first.

    records: of the methods, where they are known. measured: by this project, so that it knows the
    overhead.
    """
    if not summaries:
        return "nothing was recorded: no method ran to its end while the profile was open"
    pairs = zip(summaries, records, strict=True)
    return "\n\n".join(_block(summary, by, top, record, measured) for summary, record in pairs)


def _block(
    summary: MethodSummary,
    by: Grouping,
    top: int | None,
    record: MethodRecord | None,
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
    lines += _npu(record, top, measured)
    footer = _footer(summary, measured)
    return "\n".join([*lines, footer] if footer else lines)


def _npu(record: MethodRecord | None, top: int | None, measured: bool) -> list[str]:
    """What is expected of delegates on an NPU, layer by layer; the times above are not the NPU's
    where this project measured them."""
    if record is None:
        return []
    lines = []
    rows = layers(record)
    for index, delegate in enumerate(record.delegates):
        own = [row for row in rows if row.delegate == index]
        if delegate.estimates is None or not any(row.cycles for row in own):
            continue
        shown = slowest(own)[:top]
        heads, cells = table_of(shown, own)
        lines.append(f"  delegate {index}, {summary_of(own, delegate.estimates)}")
        used = list(range(len(heads)))
        numbers = sum(head.startswith(">") for head in heads)
        lines += _aligned([[head.lstrip(">") for head in heads], *cells], used, numbers)
        if len(own) > len(shown):
            lines.append(f"  and {len(own) - len(shown)} more layers")
        if measured:
            lines.append("  times further above are this machine's, not the NPU's")
    return lines


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


def _aligned(rows: list[list[str]], used: list[int], numbers: int = 4) -> list[str]:
    """numbers: so many columns from the left are of figures."""
    widths = [max(len(row[i]) for row in rows) for i in used]
    lines = []
    for row in rows:
        cells = [
            row[i].rjust(width) if i < numbers else row[i].ljust(width)
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
