"""Convolutions in float16 get their filter and bias in float32, for ExecuTorch.

XNNPACK's convolutions in float16 take weights in float32 and round them when they pack them. To
take weights in float16 is new: ExecuTorch 1.5 does, but not of transposed convolutions; this
project's runtime does. So a file that earlier releases run is larger by two bytes for each
weight of a convolution, as the files that ExecuTorch itself makes. Fully connected nodes take
weights in float16 in every release.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Value
from edgewise.releases import Target

_CONVOLUTIONS = frozenset({"Conv2d", "DepthwiseConv2d"})
_TRANSPOSED = frozenset({"ConvTranspose2d"})


def widen_filters(graph: Graph, target: Target) -> Graph:
    """The graph with filters and biases that the target's convolutions take; not changed."""
    kinds = _TRANSPOSED if target.covers((1, 5)) else _CONVOLUTIONS | _TRANSPOSED
    if target.is_ours:
        return graph
    wide: dict[Value, Value] = {}

    def widened(value: Value | None) -> Value | None:
        if value is None or value.data is None or value.dtype != torch.float16:
            return value
        if value.quant is not None:
            return value
        if value not in wide:
            wide[value] = Value(value.dims, torch.float32, data=value.data.float())
        return wide[value]

    nodes = [
        replace(node, inputs=[node.inputs[0], *map(widened, node.inputs[1:])])
        if node.kind in kinds
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes) if wide else graph
