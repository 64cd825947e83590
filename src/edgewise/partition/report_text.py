"""The delegation report for a terminal: short, in at most 100 columns."""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewise.partition.report_data import (
    NodeReport,
    RefusalReport,
    ReportData,
    Unquantized,
)

WIDTH = 100
_NAME = re.compile(r"^\w+: ")
"""What a refusal found is often `node: value`: the node's name says nothing to the reader."""


@dataclass
class _Group:
    """Refused nodes, or operators that were decomposed, with one reason."""

    operator: str
    why: list[RefusalReport]
    pieces: list[NodeReport] = field(default_factory=list)

    @property
    def cost(self) -> int:
        return sum(n.macs + n.bytes for n in self.pieces)

    @property
    def splits(self) -> bool:
        return any(n.splits for n in self.pieces)


def render(report: ReportData, limit: int = 12) -> str:
    """What each backend runs, then the refused operators by reason, the costliest first."""
    delegates = len(report.delegates)
    lines = [
        f"method {report.method}: {_count(len(report.nodes), 'node')}, "
        f"{_count(delegates, 'delegate')}"
    ]
    if not report.nodes:
        return lines[0]
    lines += _places(report)
    lines += _notes(report)
    lines += _unquantized(report)
    lines += _missing_kernels(report)
    lines += _estimates(report)
    lines += _releases(report)
    groups = sorted(_groups(report), key=lambda g: (not g.splits, -g.cost))
    several = len({r.backend for g in groups for r in g.why}) > 1
    total = max(1, sum(n.bytes for n in report.nodes))
    title = ""
    for group in groups[:limit]:
        wanted = "not delegated:"
        if delegates > 1 and any(g.splits for g in groups):
            wanted = "not delegated, between delegates:" if group.splits else "not delegated:"
        if wanted != title:
            lines.append(wanted)
            title = wanted
        lines += _entry(group, several, total)
    if len(groups) > limit:
        more = _count(len(groups) - limit, "more reason")
        lines.append(f"  and {more}: see to_json() or to_html()")
    return "\n".join(lines)


def _places(report: ReportData) -> list[str]:
    total = {q: max(1, sum(getattr(n, q) for n in report.nodes)) for q in ("macs", "bytes")}
    rows = [("runs on", "delegates", "nodes", "MACs", "bytes moved")]
    backends = sorted({n.backend for n in report.nodes if n.partition})
    for backend in [*backends, *({n.backend for n in report.refused})]:
        mine = [n for n in report.nodes if n.backend == backend]
        tags = {n.partition for n in mine if n.partition}
        macs, moved = sum(n.macs for n in mine), sum(n.bytes for n in mine)
        rows.append(
            (
                backend,
                str(len(tags)) if tags else "-",
                f"{len(mine)} ({_percent(len(mine), len(report.nodes))})",
                f"{_short(macs).strip()} ({_percent(macs, total['macs'])})",
                f"{_short(moved)}B ({_percent(moved, total['bytes'])})",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _notes(report: ReportData) -> list[str]:
    """What backends say of nodes that they took."""
    counts = Counter(note for node in report.nodes for note in dict.fromkeys(node.notes))
    return [
        line
        for note, count in counts.items()
        for line in _wrapped(f"{_count(count, 'node')}: {note}", "", "  ")
    ]


def _unquantized(report: ReportData) -> list[str]:
    """What was asked of a scheme and not done, by reason."""
    lines = []
    for reason, found in _by_reason(report.unquantized).items():
        names = Counter(one.operator for one in found)
        listed = ", ".join(f"{count} x {name}" for name, count in names.items())
        locations = list(dict.fromkeys(one.source for one in found if one.source))
        location = f"; {_relative(locations[0])}" if locations else ""
        text = (
            f"asked for {report.scheme}; stays float: {_count(len(found), 'node')}, "
            f"because {reason} ({listed}{location})"
        )
        lines += _wrapped(text, "", "  ")
    return lines


def _by_reason(unquantized: Sequence[Unquantized]) -> dict[str, list[Unquantized]]:
    found: dict[str, list[Unquantized]] = {}
    for one in unquantized:
        found.setdefault(one.reason, []).append(one)
    return found


def _releases(report: ReportData) -> list[str]:
    """What runs the file, and what it took to make it so."""
    lines = [f"runs on {report.runs_on}"] if report.uses else []
    for use in report.uses:
        lines += _wrapped(f"uses {use}", "  ", "      ")
    if report.cost_of_target:
        lines += _wrapped(report.cost_of_target, "", "  ")
    return lines


def _missing_kernels(report: ReportData) -> list[str]:
    """What cannot run before its kernel is registered, by kernel."""
    lines = []
    sources = {n.name: n.source for n in report.nodes}
    for kernel in dict.fromkeys(report.missing_kernels.values()):
        names = [name for name, one in report.missing_kernels.items() if one == kernel]
        location = _relative(sources.get(names[0], ""))
        where = f" ({', '.join(names[:3])}{'; ' + location if location else ''})"
        lines += _wrapped(f"no kernel: {kernel}{where}", "  ", "      ")
        remedy = f'try @edgewise.runtime.register_kernel("{kernel}")'
        lines += _wrapped(remedy, "      ", "        ")
    return lines


def _estimates(report: ReportData) -> list[str]:
    """What compilers expect of each delegate; the figures have units in their names."""
    lines = []
    for tag, found in report.estimates.items():
        figures = ", ".join(f"{_short(n).strip()} {name}" for name, n in found.figures.items())
        lines += _wrapped(f"{tag}, estimates of {found.source}: {figures}", "  ", "      ")
    return lines


def _groups(report: ReportData) -> list[_Group]:
    """By operator and rules; the pieces of one that was not kept whole count as that."""
    groups: dict[tuple[str, ...], _Group] = {}
    for node in report.refused:
        if not node.shapes and not node.refusals:
            continue  # arithmetic on sizes, which the runtime does itself
        whole = node.decomposed_from
        operator, why = node.operator, node.refusals
        if whole is not None and whole.refusals:
            operator, why = whole.operator, whole.refusals
        key = (operator, *(r.backend + r.rule for r in why))
        groups.setdefault(key, _Group(operator, why)).pieces.append(node)
    return list(groups.values())


def _entry(group: _Group, several: bool, total: int) -> list[str]:
    """The line of a group, wrapped, and what to change."""
    wholes = {n.decomposed_from.name: n.decomposed_from for n in group.pieces if n.decomposed_from}
    decomposed = bool(wholes) and group.operator != group.pieces[0].operator
    count = len(wholes) if decomposed else len(group.pieces)
    given = [
        w.refusals if (w := n.decomposed_from) and decomposed else n.refusals for n in group.pieces
    ]
    rules = [_rule(group.operator, i, given, several) for i in range(len(group.why))] or [
        "no backend was asked"
    ]
    text = f"{count} x {group.operator}: {' and '.join(rules)}"
    origins = {w.operator for w in wholes.values()} - {group.operator}
    details = []
    if decomposed:
        details.append(f"became {_count(len(group.pieces), 'operator')} outside of delegates")
    elif origins:
        details.append("from " + ", ".join(sorted(origins)))
    moved = sum(n.bytes for n in group.pieces)
    if moved * 100 >= total:
        details.append(f"{_short(moved)}B, {_percent(moved, total)}")
    branches = dict.fromkeys(b for n in group.pieces if (b := n.name.rpartition("/")[0]))
    if branches:
        details.append("in " + ", ".join(branches))
    location = _where(group)
    if location:
        details.append(location)
    if details:
        text += f" ({'; '.join(details)})"
    lines = _wrapped(text, "  ", "      ")
    for hint in dict.fromkeys(r.hint for r in group.why if r.hint):
        lines += _wrapped(f"try {hint}", "      ", "        ")
    return lines


def _rule(
    operator: str, index: int, given: Sequence[Sequence[RefusalReport]], several: bool
) -> str:
    refusal = given[0][index]
    prefix = f"{refusal.backend}: " if several else ""
    got = list(dict.fromkeys(_NAME.sub("", rs[index].got) for rs in given if rs[index].got))
    if got == [operator]:
        return f"{prefix}not {refusal.rule}"
    shown = " or ".join(got[:2]) + (", ..." if len(got) > 2 else "")
    return f"{prefix}{refusal.rule}" + (f"; got {shown}" if got else "")


def _where(group: _Group) -> str:
    locations = list(dict.fromkeys(n.source for n in group.pieces if n.source))
    if not locations:
        return ""
    more = f", +{_count(len(locations) - 1, 'more place')}" if len(locations) > 1 else ""
    return _relative(locations[0]) + more


def _relative(source: str) -> str:
    """A path below the working directory from there on; any other as it is."""
    here = os.getcwd() + os.sep
    return source.removeprefix(here)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    text = _QUANTITY.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


_QUANTITY = re.compile(r"(\d) (%|[kMGT]?B\b|x\b|more\b)")
"""A number and its unit, which stay on one line."""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _percent(part: int, whole: int) -> str:
    """Never 0 % of something, never 100 % of less than all."""
    share = 100 * part / whole
    if 0 < share < 0.5:
        return "< 1 %"
    if 99.5 <= share < 100:
        return "> 99 %"
    return f"{share:.0f} %"


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} T"
