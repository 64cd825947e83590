"""The delegation report as a page for a browser, complete and without other files.

It is the page of `edgewise.report`, without what only a finished program has: memory, weights,
sizes of files.
"""

from __future__ import annotations

from edgewise.inspect.record import (
    DelegateRecord,
    EdgeRecord,
    MethodRecord,
    ModuleRecord,
    NodeRecord,
    ProgramRecord,
    TensorRecord,
)
from edgewise.partition.remarks import Remarks
from edgewise.partition.report_data import NodeReport, ReportData
from edgewise.report.subject import Subject
from edgewise.report.writing import render


def page(report: ReportData) -> str:
    """The page's text."""
    record = ProgramRecord("", 0, (_method(report),))
    text: str = render([Subject(report.method, record)], f"Delegation of {report.method}")
    return text


def _method(report: ReportData) -> MethodRecord:
    numbers = {tag: number for number, tag in enumerate(report.delegates)}
    backends = {n.partition: n.backend for n in report.nodes if n.partition}
    delegates = []
    for tag in report.delegates:
        found = report.estimates.get(tag)
        estimates = found.to_record() if found else None
        delegates.append(DelegateRecord(backends[tag], tag, 0, 0, estimates=estimates))
    remarks = Remarks(report)
    nodes = tuple(_node(node, numbers, remarks) for node in report.nodes)
    edges = tuple(
        EdgeRecord(source, 0, node.name, number)
        for node in report.nodes
        for number, source in enumerate(node.inputs)
    )
    return MethodRecord(report.method, nodes, edges=edges, delegates=tuple(delegates))


def _node(node: NodeReport, numbers: dict[str, int], remarks: Remarks) -> NodeRecord:
    whole = node.decomposed_from
    parts = node.module.split(".") if node.module else []
    return NodeRecord(
        node.name,
        "call",
        node.operator,
        outputs=tuple(
            TensorRecord(dtype, tuple(shape), 0)
            for dtype, shape in zip(node.types, node.shapes, strict=True)
        ),
        modules=tuple(ModuleRecord(".".join(parts[: end + 1]), "") for end in range(len(parts))),
        source=node.source,
        backend=node.backend,
        delegate=numbers.get(node.partition),
        refusals=remarks.of(node),
        decomposed_from=f"{whole.operator} {whole.name}" if whole is not None else "",
        splits=node.splits,
        notes=tuple(node.notes),
        macs=node.macs,
        bytes=node.bytes,
    )
