"""Where each node of a program runs, and why not elsewhere."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch.fx import Node

from edgewise.edge.graph import (
    is_call,
    is_getitem,
    module_path,
    op_name,
    source_line,
    tensor_shapes,
)
from edgewise.partition.delegate import is_delegate_call
from edgewise.partition.spec import TAG, DelegationSpec, Refusal
from edgewise.partition.work import macs, traffic

KERNEL = "runtime"
"""The place of what no backend took: the runtime's own kernels."""


@dataclass(frozen=True)
class NodeReport:
    """One node of the edge program, before partitions were cut out."""

    name: str
    operator: str
    shapes: list[list[int]]
    backend: str
    """The backend's id, or "runtime"."""
    partition: str
    """The partition's tag; empty for the runtime's kernels."""
    reasons: dict[str, list[str]]
    """For each backend that was asked and refused: why."""
    module: str
    source: str
    macs: int
    bytes: int


@dataclass
class DelegationReport:
    """Every node of a method: its backend or the reasons against it, its source, its work."""

    method: str
    nodes: list[NodeReport] = field(default_factory=list)

    @property
    def delegates(self) -> list[str]:
        """Tags of the partitions, in order of appearance."""
        return list(dict.fromkeys(n.partition for n in self.nodes if n.partition))

    @property
    def refused(self) -> list[NodeReport]:
        return [n for n in self.nodes if not n.partition]

    def share(self, quantity: str = "nodes") -> float:
        """Delegated part of "nodes", "macs" or "bytes", from 0 to 1; 1 if there is none."""

        def amount(nodes: Iterable[NodeReport]) -> int:
            return sum(1 if quantity == "nodes" else getattr(n, quantity) for n in nodes)

        total = amount(self.nodes)
        return amount(n for n in self.nodes if n.partition) / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "delegates": len(self.delegates),
            "share": {q: self.share(q) for q in ("nodes", "macs", "bytes")},
            "nodes": [asdict(n) for n in self.nodes],
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The whole report; also written to `path` if given."""
        text = json.dumps(self.to_dict(), indent=1)
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """The whole report as a page without any reference to other files."""
        page = _page(self)
        if path is not None:
            Path(path).write_text(page)
        return page

    def __str__(self) -> str:
        return render(self)


class ReportBuilder:
    """Collects a report while partitioners take their turns on one method."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._reasons: dict[str, dict[str, list[str]]] = {}
        self._taken: dict[str, tuple[str, str]] = {}
        self._facts: dict[str, NodeReport] = {}

    def asked(
        self,
        nodes: Sequence[Node],
        tags: Mapping[str, DelegationSpec],
        refusals: Mapping[str, Sequence[Refusal]],
        backend: str,
    ) -> None:
        """Notes one partitioner's decisions, before its partitions are cut out."""
        present = {node.name for node in nodes}
        for name in [n for n in self._facts if n not in self._taken and n not in present]:
            del self._facts[name]  # decomposed since an earlier partitioner refused it
        for node in nodes:
            if not is_call(node) or is_delegate_call(node):
                continue
            if is_getitem(node) and node.name not in self._facts:
                continue
            if node.name not in self._facts:
                self._facts[node.name] = _facts(node)
            tag = str(node.meta.get(TAG, ""))
            if tag in tags:
                self._taken[node.name] = (tags[tag].backend_id, tag)
            elif node.name in refusals:
                reasons = self._reasons.setdefault(node.name, {})
                reasons[backend] = [str(r) for r in refusals[node.name]]

    def left(self, nodes: Sequence[Node]) -> None:
        """Notes what remains for the runtime's kernels where no partitioner was asked."""
        if not self._facts:
            self.asked(nodes, {}, {}, KERNEL)

    def copy(self) -> ReportBuilder:
        other = ReportBuilder(self._method)
        other._reasons = {name: dict(reasons) for name, reasons in self._reasons.items()}
        other._taken = dict(self._taken)
        other._facts = dict(self._facts)
        return other

    def finish(self) -> DelegationReport:
        report = DelegationReport(self._method)
        for name, facts in self._facts.items():
            backend, tag = self._taken.get(name, (KERNEL, ""))
            reasons = {} if tag else self._reasons.get(name, {})
            values = {**facts.__dict__, "backend": backend, "partition": tag, "reasons": reasons}
            report.nodes.append(NodeReport(**values))
        return report


def _facts(node: Node) -> NodeReport:
    return NodeReport(
        name=node.name,
        operator=op_name(node),
        shapes=tensor_shapes(node),
        backend=KERNEL,
        partition="",
        reasons={},
        module=module_path(node),
        source=source_line(node),
        macs=macs(node),
        bytes=traffic(node),
    )


def render(report: DelegationReport, limit: int = 12) -> str:
    """A short table: what each backend runs, then the refused operators by reason."""
    lines = [
        f"method {report.method}: {len(report.nodes)} nodes, "
        f"{len(report.delegates)} delegate{'' if len(report.delegates) == 1 else 's'}"
    ]
    header = ("backend", "delegates", "nodes", "MACs", "bytes")
    rows = []
    total = {q: max(1, sum(getattr(n, q) for n in report.nodes)) for q in ("macs", "bytes")}
    for backend in dict.fromkeys(n.backend for n in report.nodes):
        mine = [n for n in report.nodes if n.backend == backend]
        tags = {n.partition for n in mine if n.partition}
        rows.append(
            (
                backend,
                str(len(tags)) if tags else "-",
                f"{len(mine)} ({100 * len(mine) / len(report.nodes):.0f} %)",
                f"{_short(sum(n.macs for n in mine))} "
                f"({100 * sum(n.macs for n in mine) / total['macs']:.0f} %)",
                f"{_short(sum(n.bytes for n in mine))}B "
                f"({100 * sum(n.bytes for n in mine) / total['bytes']:.0f} %)",
            )
        )
    lines += _table(header, rows)
    by_reason: dict[tuple[str, str], list[NodeReport]] = {}
    for node in report.refused:
        for reason in [r for rs in node.reasons.values() for r in rs] or ["no backend was asked"]:
            by_reason.setdefault((node.operator, reason), []).append(node)
    if by_reason:
        lines.append("not delegated:")
        worst = sorted(by_reason.items(), key=lambda i: -sum(n.macs + n.bytes for n in i[1]))
        for (operator, reason), nodes in worst[:limit]:
            source = next((n.source for n in nodes if n.source), "")
            where = f"  ({source})" if source else ""
            lines.append(f"  {len(nodes)} x {operator}: {reason}{where}")
        if len(worst) > limit:
            lines.append(f"  and {len(worst) - limit} more reasons: see to_json() or to_html()")
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
        for r in [header, *rows]
    ]


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}".rstrip() if unit == "" else f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} T"


_STYLE = (
    "body{font:14px system-ui;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}"
    "tr.runtime{background:#fdf1e3}code{font-size:13px}"
)


def _page(report: DelegationReport) -> str:
    rows = []
    for node in report.nodes:
        reasons = "<br>".join(
            html.escape(f"{backend}: {reason}")
            for backend, given in node.reasons.items()
            for reason in given
        )
        place = f"{node.backend} {node.partition}".strip()
        cells = [
            f"<code>{html.escape(node.name)}</code>",
            html.escape(node.operator),
            html.escape(", ".join(str(s) for s in node.shapes)),
            html.escape(place),
            reasons,
            html.escape(node.module),
            html.escape(node.source),
            f"{node.macs:,}",
            f"{node.bytes:,}",
        ]
        style = ' class="runtime"' if not node.partition else ""
        rows.append(f"<tr{style}>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    heads = (
        "node",
        "operator",
        "shapes",
        "runs on",
        "why not elsewhere",
        "module",
        "source",
        "MACs",
        "bytes",
    )
    head = "".join(f"<th>{h}</th>" for h in heads)
    return (
        f"<!doctype html><meta charset=utf-8>"
        f"<title>Delegation of {html.escape(report.method)}</title>"
        f"<style>{_STYLE}</style><h1>Delegation of {html.escape(report.method)}</h1>"
        f"<pre>{html.escape(render(report))}</pre><table><tr>{head}</tr>{''.join(rows)}</table>"
    )
