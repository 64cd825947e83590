"""`executorch.exir.backend.canonical_partitioners`: partitions by torch's own partitioner, for
partitioners of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["generate_partitions_from_list_of_nodes", "generate_pattern_op_partitions"]


class _OneOf(OperatorSupportBase):
    def __init__(self, nodes: set[Node]) -> None:
        self._nodes = nodes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node in self._nodes


def generate_partitions_from_list_of_nodes(
    graph_module: GraphModule,
    pattern_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
) -> list[Partition]:
    """The largest partitions of the nodes of the lists, and of those that op_support takes."""
    supports = [] if op_support is None else [op_support]
    if pattern_list is not None:
        supports.append(_OneOf({node for nodes in pattern_list for node in nodes}))
    if not supports:
        raise AssertionError(
            "[generate_partitions_from_list_of_nodes] needs nodes or op_support; got neither"
        )
    partitioner = CapabilityBasedPartitioner(
        graph_module, any_chain(*supports), allows_single_node_partition=True
    )
    found: list[Partition] = partitioner.propose_partitions()
    return found


def generate_pattern_op_partitions(
    graph_module: GraphModule,
    patterns: Sequence[Graph] | None = None,
    partitions_list: Sequence[Sequence[Node]] | None = None,
    op_support: OperatorSupportBase | None = None,
    ignore_literals: bool = False,
) -> list[Partition]:
    """The same for all that matches one of the patterns, besides.

    patterns: graphs such as a program's in the edge dialect. ignore_literals: numbers in them
        stand for any.
    """
    matched = [
        [node for node in match.nodes_map.values() if isinstance(node, Node)]
        for pattern in patterns or ()
        for match in SubgraphMatcher(pattern, ignore_literals=ignore_literals).match(
            graph_module.graph
        )
    ]
    calls = [[node for node in nodes if node.op == "call_function"] for nodes in matched]
    listed = [*calls, *(partitions_list or ())]
    return generate_partitions_from_list_of_nodes(graph_module, listed or None, op_support)
