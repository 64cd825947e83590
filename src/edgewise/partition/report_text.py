"""The delegation report for a terminal: short, in at most 100 columns."""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewise.partition.following import FOLLOWING, MOVED_IN_FLOAT
from edgewise.partition.remarks import Remarks, without_name
from edgewise.partition.report_data import (
    NodeReport,
    RefusalReport,
    ReportData,
    Unquantized,
)

WIDTH = 100


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

    @property
    def follows(self) -> bool:
        """Whether it is outside only because of what is beside it."""
        return bool(self.why) and all(r.rule in FOLLOWING for r in self.why)


def heading(report: ReportData) -> str:
    """The method, and how much of it there is."""
    return (
        f"method {report.method}: {_count(len(report.nodes), 'node')}, "
        f"{_count(len(report.delegates), 'delegate')}"
    )


def render(report: ReportData, limit: int = 12) -> str:
    """What each backend runs, then the refused operators by reason, the costliest first."""
    head = heading(report)
    if not report.nodes:
        return head
    rows = summary(report)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([head, *lines, *remarks(report, limit)])


def remarks(report: ReportData, limit: int = 12) -> list[str]:
    """Lines: what is to be said of what runs, then the refused operators by reason."""
    delegates = len(report.delegates)
    lines: list[str] = []
    lines += _notes(report)
    lines += _upcast(report)
    lines += _unquantized(report)
    lines += _missing_kernels(report)
    lines += _estimates(report)
    lines += _releases(report)
    groups = sorted(_groups(report), key=lambda g: (not g.splits, -g.cost))
    several = len({r.backend for g in groups for r in g.why}) > 1
    causes = _by_cause([g for g in groups if not g.follows])
    known = Remarks(report)
    total = max(1, sum(n.bytes for n in report.nodes))
    title = ""
    for cause in causes[:limit]:
        wanted = "not delegated:"
        if delegates > 1 and any(g.splits for g in groups):
            wanted = "not delegated, between delegates:" if cause[0].splits else "not delegated:"
        if wanted != title:
            lines.append(wanted)
            title = wanted
        lines += _entry(cause, several, total, known)
    if len(causes) > limit:
        more = _count(len(causes) - limit, "more reason")
        lines.append(f"  and {more}: see to_json() or to_html()")
    lines += _followers([g for g in groups if g.follows], total, bool(title))
    return lines


def summary(report: ReportData) -> list[tuple[str, ...]]:
    """A table, its heads first: what runs where, and its share."""
    total = {q: max(1, sum(getattr(n, q) for n in report.nodes)) for q in ("macs", "bytes")}
    rows: list[tuple[str, ...]] = [("runs on", "delegates", "nodes", "MACs", "bytes moved")]
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
    return rows


def _notes(report: ReportData) -> list[str]:
    """What backends say of nodes that they took; what differs only in its reason is one line."""
    heads: dict[str, dict[str, list[NodeReport]]] = {}
    for node in report.nodes:
        for note in dict.fromkeys(node.notes):
            heads.setdefault(note.split(": ")[0], {}).setdefault(note, []).append(node)
    lines = []
    for head, notes in heads.items():
        noted = list({node.name: node for found in notes.values() for node in found}.values())
        counts = Counter(node.operator for node in noted)
        kinds = [f"{n} x {name}" for name, n in counts.most_common(_MOST_NAMES)]
        if len(counts) > _MOST_NAMES:
            kinds.append(f"{len(counts) - _MOST_NAMES} more kinds")
        where = _where([(n.module, n.source) for n in noted])
        shown = f" ({', '.join(kinds)}{'; ' + where if where else ''})"
        said = head if len(notes) > 1 else next(iter(notes))
        lines += _wrapped(f"{_count(len(noted), 'node')}: {said}{shown}", "", "  ")
    return lines


def _unquantized(report: ReportData) -> list[str]:
    """What was asked of a scheme and not done, by reason."""
    lines = []
    moved = 0
    for reason, found in _by_reason(report.unquantized).items():
        if reason == MOVED_IN_FLOAT:
            moved = len(found)
            continue
        names = Counter(one.operator for one in found)
        listed = ", ".join(f"{count} x {name}" for name, count in names.items())
        where = _where([(one.module, one.source) for one in found])
        shown = f"; {where}" if where else ""
        text = (
            f"asked for {report.scheme}; stays float: {_count(len(found), 'node')}, "
            f"because {reason} ({listed}{shown})"
        )
        lines += _wrapped(text, "", "  ")
    if moved:
        them = "such values" if lines else "values in floating point"
        text = f"{_count(moved, 'node')} only {'moves' if moved == 1 else 'move'} {them}"
        lines += [("  and " if lines else f"asked for {report.scheme}: ") + text]
    return lines


def _upcast(report: ReportData) -> list[str]:
    if not report.upcast:
        return []
    if Remarks(report).is_quantized:
        return ["bfloat16 that is not quantized is computed in float32"]
    return [
        "bfloat16 is computed and stored in float32; model.half() before the export halves the file"
    ]


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
    nodes = {n.name: n for n in report.nodes}
    for kernel in dict.fromkeys(report.missing_kernels.values()):
        names = [name for name, one in report.missing_kernels.items() if one == kernel]
        found = [nodes[name] for name in names if name in nodes]
        location = _where([(node.module, node.source) for node in found])
        where = f" ({location})" if location else f" ({', '.join(names[:3])})"
        lines += _wrapped(f"no kernel: {kernel}{where}", "  ", "      ")
        remedy = f'try @edgewise.runtime.register_kernel("{kernel}")'
        lines += _wrapped(remedy, "      ", "        ")
    return lines


def _estimates(report: ReportData) -> list[str]:
    """What compilers expect of each delegate; the figures have units in their names. Traffic is
    in the JSON and on the page."""
    lines = []
    found = list(report.estimates.items())
    for tag, one in found[:_MOST_ESTIMATES]:
        figures = ", ".join(
            f"{_short(n).strip()} {name}"
            for name, n in one.figures.items()
            if not name.endswith((" read", " written"))
        )
        lines += _wrapped(f"{tag}, estimates of {one.source}: {figures}", "  ", "      ")
    rest = found[_MOST_ESTIMATES:]
    if rest:
        cycles = sum(one.figures.get("cycles", 0) for _, one in rest)
        lines.append(f"  and {_count(len(rest), 'more delegate')}, {_short(cycles).strip()} cycles")
    return lines


_MOST_ESTIMATES = 3


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


def _by_cause(groups: Sequence[_Group]) -> list[list[_Group]]:
    """Groups that are refused by the same rules, in the order of their first one."""
    found: dict[tuple[object, ...], list[_Group]] = {}
    for group in groups:
        rules = [r.backend + r.rule for r in group.why] or [group.operator]
        found.setdefault((group.splits, *rules), []).append(group)
    return list(found.values())


def _entry(cause: Sequence[_Group], several: bool, total: int, known: Remarks) -> list[str]:
    """The lines of what is refused for the same reason, and what to change."""
    counts: dict[str, int] = {}
    outside = 0
    for group in cause:
        wholes = {n.decomposed_from.name for n in group.pieces if n.decomposed_from}
        counts[group.operator] = len(wholes) if _is_decomposed(group) else len(group.pieces)
        outside += len(group.pieces) if _is_decomposed(group) else 0
    listed = [f"{count} x {operator}" for operator, count in list(counts.items())[:_MOST_NAMES]]
    if len(counts) > _MOST_NAMES:
        listed.append(f"{sum(list(counts.values())[_MOST_NAMES:])} more of {len(counts)} kinds")
    rules = [_rule(cause, i, several) for i in range(len(cause[0].why))] or ["no backend was asked"]
    text = f"{', '.join(listed)}: {' and '.join(rules)}"
    pieces = [n for group in cause for n in group.pieces]
    origins = {n.decomposed_from.operator for n in pieces if n.decomposed_from} - set(counts)
    details = []
    if outside:
        details.append(f"became {_count(outside, 'operator')} outside of delegates")
    if origins:
        details.append("from " + ", ".join(sorted(origins)))
    moved = sum(n.bytes for n in pieces)
    if moved * 100 >= total:
        details.append(f"{_short(moved)}B, {_percent(moved, total)}")
    branches = dict.fromkeys(b for n in pieces if (b := n.name.rpartition("/")[0]))
    if branches:
        details.append("in " + ", ".join(branches))
    location = _where([(n.module, n.source) for n in pieces])
    if location:
        details.append(location)
    if details:
        text += f" ({'; '.join(details)})"
    lines = _wrapped(text, "  ", "      ")
    for hint in dict.fromkeys(r.hint for g in cause for r in g.why if r.hint):
        if not known.is_done(hint):
            lines += _wrapped(f"try {hint}", "      ", "        ")
    return lines


_MOST_NAMES = 4


def _is_decomposed(group: _Group) -> bool:
    """Whether the group is named for what its pieces were made of."""
    return any(n.decomposed_from for n in group.pieces) and group.operator != (
        group.pieces[0].operator
    )


def _followers(groups: Sequence[_Group], total: int, has_causes: bool) -> list[str]:
    """One line for all that is outside of delegates only because of what is beside it."""
    pieces = [n for group in groups for n in group.pieces]
    if not pieces:
        return []
    moved = sum(n.bytes for n in pieces)
    share = f" ({_short(moved)}B, {_percent(moved, total)})" if moved * 100 >= total else ""
    text = f"{_count(len(pieces), 'quantization')} at the borders of delegates, on the CPU{share}"
    lines = [] if has_causes else ["not delegated:"]
    return lines + _wrapped(text, "  ", "      ")


def _rule(cause: Sequence[_Group], index: int, several: bool) -> str:
    refusal = cause[0].why[index]
    prefix = f"{refusal.backend}: " if several else ""
    got: dict[str, None] = {}
    names_operator = True
    for group in cause:
        for node in group.pieces:
            whole = node.decomposed_from
            given = whole.refusals if whole and _is_decomposed(group) else node.refusals
            if given[index].got:
                found = without_name(given[index].got)
                names_operator &= found == group.operator
                got[found] = None
    if got and names_operator:
        return f"{prefix}not {refusal.rule}"
    shown = " or ".join(list(got)[:2]) + (", ..." if len(got) > 2 else "")
    return f"{prefix}{refusal.rule}" + (f"; got {shown}" if got else "")


def _where(found: Sequence[tuple[str, str]]) -> str:
    """The first module and source line, and how many more there are."""
    locations = list(
        dict.fromkeys((module, source) for module, source in found if source or module)
    )
    if not locations:
        return ""
    more = f", +{_count(len(locations) - 1, 'more line')}" if len(locations) > 1 else ""
    module, source = locations[0]
    return " at ".join(part for part in (module, _relative(source)) if part) + more


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
