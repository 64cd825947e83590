"""Operators whose result can lie where an operand lies: what updates of state are made of."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.program import written_state

aten = torch.ops.aten

UPDATES = {
    aten.index_put.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter_add.default,
}
"""They change a part of their first operand, which may be the out-variant's `out`, too."""

ELEMENTWISE = {
    getattr(getattr(aten, packet), overload)
    for overload, packets in {
        "default": """
            abs acos acosh asin asinh atan atanh bitwise_not ceil clamp cos cosh erf exp expm1
            floor hardtanh log log10 log1p log2 logical_and logical_not logical_or logical_xor
            maximum minimum neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh
            trunc
        """,
        "Tensor": "add bitwise_and bitwise_or bitwise_xor div fmod mul remainder sub",
        "Scalar": "add bitwise_and bitwise_or bitwise_xor div fmod mul remainder sub",
        "Tensor_mode": "div",
        "Scalar_mode": "div",
        "Tensor_Scalar": "pow",
        "Tensor_Tensor": "pow",
        "self": "where",
    }.items()
    for packet in packets.split()
}
"""Kernels, and XNNPACK's, read an element before they write the one at its index, and read none
again: any operand of the result's shape and type may be the result."""


def partial_updates(program: ExportedProgram) -> set[Node]:
    """Nodes that change a part of a buffer, or of an input, on the way to what is written back."""
    found: set[Node] = set()
    for state, value in written_state(program):
        chain: list[Node] = []
        node = value
        while isinstance(node, Node) and node.target in UPDATES | ELEMENTWISE:
            chain.append(node)
            node = node.args[0]
        if node is state:
            found.update(n for n in chain if n.target in UPDATES)
    return found
