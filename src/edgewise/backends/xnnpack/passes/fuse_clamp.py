"""A clamp becomes the output range of the node before it.

Requires that the node's kind takes a range and that nobody else reads its unclamped
result. Two clamps in a row become their intersection.
"""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Node

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


def fuse_clamp(graph: Graph) -> bool:
    users, producers = graph.users(), graph.producers()
    merged: set[Node] = set()
    for node in graph.nodes:
        if node.kind != "Clamp" or node.clamp is None:
            continue
        source = node.inputs[0]
        before = producers.get(source) if source is not None else None
        if before is None or source is None or before.kind not in TAKES_RANGE:
            continue
        if len(users[source]) != 1 or source.output_index is not None:
            continue
        low, high = node.clamp
        if before.clamp is not None:
            # Clamping to [a, b] and then to [c, d]: only the second range may cut further.
            low = min(max(before.clamp[0], low), high)
            high = max(min(before.clamp[1], high), low)
            if low >= high:
                continue
        before.clamp = (low, high)
        before.outputs = node.outputs
        producers[node.outputs[0]] = before
        merged.add(node)
    graph.nodes = [n for n in graph.nodes if n not in merged]
    return bool(merged)
