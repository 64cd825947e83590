"""Nodes that the target's releases do not have are made of nodes that they have.

Sine and cosine: k is the multiple of pi nearest to x (for the cosine nearest to x + pi/2),
r = x - (k - shift) * pi in three steps of which the first products are exact up to 2^16 multiples
(Cody and Waite), sin(r) an odd polynomial on [-pi/2, pi/2], and the result is negative where k is
odd. The error is below 1e-6 for |x| < 1e4. A copy is a clamp without bounds.

Weights that stay integers although they are computed in floating point are written as floating
point: no release expands them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import (
    PerBlock,
    PerChannel,
    PerTensor,
    PerToken,
    dequantize,
)
from edgewise.releases import Target

_PI = (3.140625, 0.0009675025939941406, 1.5099579909783765e-07)
"""Their sum is pi; the first has 8 significant bits, the second 12."""

_SINE = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800)
"""Taylor's coefficients of r, r^3, ...: the next term is below 7e-10 on the interval."""

_PRODUCTS = frozenset({"FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d"})


def replace_newer(graph: Graph, target: Target) -> Graph:
    """The graph as a release that was asked for runs it; not changed."""
    if target.is_ours or not target.is_strict:
        return graph
    made: list[Node] = []
    for node in graph.nodes:
        if node.kind in ("Sin", "Cos") and not target.covers((1, 1)):
            made += _turns(node, 0.0 if node.kind == "Sin" else 0.5)
        elif node.kind == "Copy" and not target.covers((1, 1)):
            made.append(replace(node, kind="Clamp", clamp=node.clamp or (-math.inf, math.inf)))
        elif node.kind in _PRODUCTS:
            made.append(_in_floating_point(node))
        else:
            made.append(node)
    same = len(made) == len(graph.nodes) and all(map(_is, made, graph.nodes))
    return graph if same else replace(graph, nodes=made)


def _is(a: Node, b: Node) -> bool:
    return a is b


class _Steps:
    """Elementwise nodes, one after the other, that all stand for one node."""

    def __init__(self, node: Node) -> None:
        source = node.inputs[0]
        assert source is not None
        self.source, self.origin = source, node.origin
        self.nodes: list[Node] = []

    def __call__(self, kind: str, *operands: Value | float) -> Value:
        inputs = [self._value(one) for one in operands]
        result = Value(self.source.dims, self.source.dtype)
        self.nodes.append(Node(kind, list(inputs), [result], {}, None, self.origin))
        return result

    def _value(self, one: Value | float) -> Value:
        if isinstance(one, Value):
            return one
        number = torch.tensor([one], dtype=self.source.dtype)
        return Value((1,), self.source.dtype, data=number)

    def polynomial(self, x: Value, coefficients: Iterable[float]) -> Value:
        """Highest power first, by Horner's rule."""
        first, second, *others = coefficients
        found = self("Add", self("Multiply", x, first), second)
        for one in others:
            found = self("Add", self("Multiply", found, x), one)
        return found


def _turns(node: Node, shift: float) -> list[Node]:
    """sin(x + shift * pi)"""
    to = _Steps(node)
    x = to.source
    k = to("Floor", to("Add", to("Multiply", x, 1 / math.pi), 0.5 + shift))
    turns = to("Subtract", k, shift) if shift else k
    r = x
    for part in _PI:
        r = to("Subtract", r, to("Multiply", turns, part))
    sine = to("Multiply", to.polynomial(to("Square", r), reversed(_SINE)), r)
    # 1 where k is even, -1 where it is odd: 1 - 2 * (k - 2 * floor(k / 2)).
    half = to("Floor", to("Multiply", k, 0.5))
    odd = to("Subtract", k, to("Multiply", half, 2.0))
    sign = to("Subtract", 1.0, to("Multiply", odd, 2.0))
    to("Multiply", sine, sign)
    last = to.nodes[-1]
    to.nodes[-1] = replace(last, outputs=node.outputs, clamp=node.clamp or (-1.0, 1.0))
    return to.nodes


def _in_floating_point(node: Node) -> Node:
    x, weights = node.inputs[0], node.inputs[1]
    assert x is not None and weights is not None
    if x.quant is not None or weights.quant is None or weights.data is None:
        return node
    if node.kind == "FullyConnected" and x.dtype == torch.float32 and _has_kernel(weights):
        return node
    assert not isinstance(weights.quant, PerToken)
    # Filters of a convolution are float32 in files of any release.
    dtype = torch.float32 if node.kind != "FullyConnected" else x.dtype
    real = dequantize(weights.data, weights.quant, dtype)
    wide = Value(weights.dims, dtype, data=real)
    return replace(node, inputs=[x, wide, *node.inputs[2:]])


def _has_kernel(weights: Value) -> bool:
    return isinstance(weights.quant, (PerTensor, PerChannel)) and not isinstance(
        weights.quant, PerBlock
    )
