"""`executorch.devtools.backend_debug`: how much of a program is delegated, in numbers.

`delegation_report()` says more: where each node goes, and why not elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from edgewise.edge.graph import is_call, is_getitem
from edgewise.partition.lowered_module import is_delegate_call, lowered_of


@dataclass
class DelegationBreakdown:
    """How often an operator is delegated, and how often not."""

    op_type: str = ""
    delegated: int = 0
    non_delegated: int = 0


@dataclass
class DelegationInfo:
    """Numbers of delegates and of operators inside and outside of them."""

    num_delegated_subgraphs: int
    num_delegated_nodes: int
    num_non_delegated_nodes: int
    delegation_by_operator: dict[str, DelegationBreakdown]

    def get_summary(self) -> str:
        """Three lines."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )

    def get_operator_delegation_dataframe(self) -> Any:
        """A pandas table by operator, totals last. ImportError without pandas."""
        import pandas  # type: ignore[import-untyped]  # no dependency of edgewise

        rows = sorted(self.delegation_by_operator.values(), key=lambda row: row.op_type)
        total = DelegationBreakdown(
            "Total", sum(r.delegated for r in rows), sum(r.non_delegated for r in rows)
        )
        columns = {"op_type": "op_type", "delegated": "occurrences_in_delegated_graphs"}
        columns["non_delegated"] = "occurrences_in_non_delegated_graphs"
        return pandas.DataFrame(
            {title: [getattr(r, field) for r in (*rows, total)] for field, title in columns.items()}
        )


def get_delegation_info(graph_module: GraphModule) -> DelegationInfo:
    """Counts the calls of a lowered graph (`edge.exported_program().graph_module`)."""
    info = DelegationInfo(0, 0, 0, {})
    for node in graph_module.graph.nodes:
        if is_delegate_call(node):
            info.num_delegated_subgraphs += 1
            for inner in lowered_of(node, graph_module).original_module.graph.nodes:
                if is_call(inner) and not is_getitem(inner):
                    info.num_delegated_nodes += 1
                    _row(info, inner.name).delegated += 1
        elif is_call(node) and not is_getitem(node):
            info.num_non_delegated_nodes += 1
            _row(info, node.name).non_delegated += 1
    return info


def _row(info: DelegationInfo, node: str) -> DelegationBreakdown:
    name = re.sub(r"_\d+$", "", node)
    return info.delegation_by_operator.setdefault(name, DelegationBreakdown(name))


def print_delegation_info(graph_module: GraphModule) -> None:
    """Prints the summary, and a line for each operator."""
    info = get_delegation_info(graph_module)
    print(info.get_summary())
    rows = sorted(info.delegation_by_operator.values(), key=lambda row: row.op_type)
    width = max((len(row.op_type) for row in rows), default=0)
    print(f"{'operator':{width}}  delegated  not delegated")
    for row in rows:
        print(f"{row.op_type:{width}}  {row.delegated:9}  {row.non_delegated:13}")
