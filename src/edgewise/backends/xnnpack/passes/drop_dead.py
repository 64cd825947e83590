"""Nodes whose results nobody reads are dropped. Ensures that every node is needed."""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Value
from edgewise.passes import Property, declared


def _unneeded(graph: Graph) -> str:
    read = {v for node in graph.nodes for v in node.inputs if v is not None}
    read.update(graph.outputs)
    idle = [node.kind for node in graph.nodes if not read.intersection(node.outputs)]
    return f"{idle[0]}, whose results nobody reads" if idle else ""


EVERY_NODE_IS_NEEDED: Property[Graph] = Property("somebody reads each node's results", _unneeded)


@declared(ensures=(EVERY_NODE_IS_NEEDED,))
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
