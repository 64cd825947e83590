"""Cross-layer equalization: the channels between two layers get weights of one size.

Where a layer's result reaches another through nothing but operators f with f(s x) = s f(x) for
s > 0 (a ReLU, pooling), channel i may be divided by s_i in the first and multiplied in the second.
With r1_i the largest weight of the first layer's output channel i, and r2_i that of the second
layer's input channel,

    s_i = sqrt(r1_i / r2_i)

makes both sqrt(r1_i r2_i). Chains of layers are swept until nothing moves.

Source: "Data-Free Quantization Through Weight Equalization and Bias Correction",
https://arxiv.org/abs/1906.04721, section 4.1 (equation 11, with symmetric ranges).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from edgewise.quantize._torchao import fuse_batch_norms
from edgewise.quantize.methods.layers import Layer, layers_of

aten = torch.ops.aten
Tensor = torch.Tensor

HOMOGENEOUS = frozenset(
    {
        aten.relu.default,
        aten.relu_.default,
        aten.leaky_relu.default,
        aten.leaky_relu_.default,
        aten.max_pool1d.default,
        aten.max_pool2d.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.adaptive_avg_pool2d.default,
        aten.dropout.default,
        aten.dropout_.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
    }
)
"""f(s x) = s f(x) for s > 0, each channel for itself."""

SWEEPS = 20
_SETTLED = 1e-3
_SMALLEST = 1e-8


@dataclass(frozen=True)
class Pair:
    """Two layers with nothing but homogeneous operators between them."""

    first: Layer
    second: Layer

    def equalize(self) -> float:
        """By how much the farthest channel moved: the largest |log s|."""
        factors = equalization_factors(
            self.first.largest_by_output(), self.second.largest_by_input()
        )
        self.first.multiply(outputs=1 / factors)
        self.second.multiply(inputs=factors)
        return float(factors.log().abs().amax())


def equalize(model: GraphModule) -> bool:
    """In place; whether there were any such pairs. The graph computes what it did.

    model: `torch.export.export(...).module()`. Batch normalizations are folded before.
    """
    fuse_batch_norms(model)
    pairs = list(pairs_of(model))
    for _ in range(SWEEPS):
        if max((pair.equalize() for pair in pairs), default=0.0) < _SETTLED:
            break
    return bool(pairs)


def equalization_factors(first: Tensor, second: Tensor) -> Tensor:
    """s_i of the channels' largest weights; 1 where a side has none."""
    empty = (first < _SMALLEST) | (second < _SMALLEST)
    return torch.where(empty, 1.0, (first / second.clamp(min=_SMALLEST)).sqrt())


def pairs_of(model: GraphModule) -> Iterator[Pair]:
    """In the order of the graph."""
    layers = {layer.node: layer for layer in layers_of(model)}
    for first in layers.values():
        reader = _only_reader(first.node)
        while reader is not None and reader.target in HOMOGENEOUS:
            reader = _only_reader(reader)
        second = None if reader is None else layers.get(reader)
        if second is None or second.is_linear != first.is_linear:
            continue
        yield Pair(first, second)


def _only_reader(node: Node) -> Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].op != "call_function" or users[0].args[0] is not node:
        return None
    return users[0]


__all__ = ["HOMOGENEOUS", "Pair", "equalization_factors", "equalize", "pairs_of"]
