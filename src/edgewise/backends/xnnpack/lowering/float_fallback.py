"""What a quantized subgraph still computes in floating point, and why."""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import PerTensor

_MOVES = {"Convert", "Copy", "StaticReshape", "StaticSlice", "StaticTranspose"}
_NO_KERNEL = {
    "AvgPooling2d",
    "BatchMatrixMultiply",
    "Clamp",
    "Div",
    "GlobalAvgPooling2d",
    "Maximum",
    "Minimum",
    "PReLU",
    "Softmax",
}
"""Kinds without an integer kernel, or with a slow one that is not used."""


def float_fallbacks(graph: Graph) -> dict[int, str]:
    """By the number of the edge node: why nodes between values of fixed scales are in float.

    Empty for a subgraph that quantizes nothing: that is as it should be.
    """
    if not any(isinstance(value.quant, PerTensor) for value in graph.values()):
        return {}
    found: dict[int, str] = {}
    for node in graph.nodes:
        if node.kind in _MOVES or any(value.quant is not None for value in node.outputs):
            continue
        if isinstance(_activation(node), PerTensor):
            continue
        if node.kind in _NO_KERNEL:
            found[node.origin] = f"XNNPACK has no integer kernel for {node.kind}"
        else:
            found.setdefault(
                node.origin, f"{node.kind}, a step of it, has no quantizations around it"
            )
    return found


def _activation(node: Node) -> object:
    first: Value | None = node.inputs[0]
    return None if first is None else first.quant
