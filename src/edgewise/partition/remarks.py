"""What a refusal says to the reader: nothing of names inside, nothing that was done already."""

from __future__ import annotations

import re

from edgewise.inspect.record import RefusalRecord
from edgewise.partition.following import FOLLOWING
from edgewise.partition.report_data import NodeReport, ReportData

_NAME = re.compile(r"^\w+: ")
"""What a refusal found is often `node: value`: the node's name says nothing to the reader."""


class Remarks:
    """Refusals of a report's nodes, as records."""

    def __init__(self, report: ReportData) -> None:
        self._scheme = report.scheme
        self.is_quantized = any("quantize_per" in node.operator for node in report.nodes)

    def of(self, node: NodeReport | None) -> tuple[RefusalRecord, ...]:
        """Of the node, or of the operator that it is a piece of; empty if it is not reported."""
        given = list(node.refusals) if node else []
        if not given and node is not None and node.decomposed_from is not None:
            given = list(node.decomposed_from.refusals)
        return tuple(
            RefusalRecord(
                r.backend,
                r.rule,
                without_name(r.got),
                "" if self.is_done(r.hint) else r.hint,
                r.rule in FOLLOWING,
            )
            for r in given
        )

    def is_done(self, hint: str) -> bool:
        """Whether the user has just done what the hint says: quantized the program."""
        if self._scheme:
            return "quantize=" in hint or "Quantizer" in hint
        return self.is_quantized and "prepare_pt2e" in hint


def without_name(got: str) -> str:
    """What a rule found, without the node's name before it."""
    return _NAME.sub("", got)
