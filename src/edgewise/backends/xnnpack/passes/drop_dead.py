"""Nodes whose results nobody reads are dropped. Ensures that every node is needed."""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Value


def drop_dead(graph: Graph) -> bool:
    needed: set[Value] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.outputs):
            needed.update(v for v in node.inputs if v is not None)
            kept.append(node)
    changed = len(kept) != len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed
