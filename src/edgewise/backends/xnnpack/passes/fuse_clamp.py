"""A clamp becomes the output range of the node before it.

Requires that the node's kind takes a range and that nobody else reads its unclamped
result. Two clamps in a row become their intersection.
"""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.passes import Property, declared

TAKES_RANGE = {
    "Add",
    "Subtract",
    "Multiply",
    "Div",
    "FullyConnected",
    "Conv2d",
    "DepthwiseConv2d",
    "ConvTranspose2d",
    "AvgPooling2d",
    "MaxPooling2d",
    "Clamp",
}


def _fused(
    node: Node, users: dict[Value, list[Node]], producers: dict[Value, Node]
) -> tuple[Node, tuple[float, float]] | None:
    """The node before a clamp that can do it, and its range then."""
    source = node.inputs[0] if node.kind == "Clamp" and node.clamp is not None else None
    before = producers.get(source) if source is not None else None
    if before is None or source is None or before.kind not in TAKES_RANGE:
        return None
    if len(users[source]) != 1 or source.output_index is not None:
        return None
    assert node.clamp is not None
    low, high = node.clamp
    if before.clamp is not None:
        # Clamping to [a, b] and then to [c, d]: only the second range may cut further.
        low = min(max(before.clamp[0], low), high)
        high = max(min(before.clamp[1], high), low)
        if low >= high:
            return None
    return before, (low, high)


def _separate(graph: Graph) -> str:
    users, producers = graph.users(), graph.producers()
    found = [n for n in graph.nodes if _fused(n, users, producers) is not None]
    return f"{len(found)} that are nodes of their own" if found else ""


CLAMPS_ARE_FUSED: Property[Graph] = Property("clamps are in the nodes before them", _separate)


@declared(ensures=(CLAMPS_ARE_FUSED,))
def fuse_clamp(graph: Graph) -> bool:
    users, producers = graph.users(), graph.producers()
    merged: set[Node] = set()
    for node in graph.nodes:
        found = _fused(node, users, producers)
        if found is None:
            continue
        before, limits = found
        before.clamp = limits
        before.outputs = node.outputs
        producers[node.outputs[0]] = before
        merged.add(node)
    graph.nodes = [n for n in graph.nodes if n not in merged]
    return bool(merged)
