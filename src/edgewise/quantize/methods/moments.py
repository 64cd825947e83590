"""Second moments of what layers read: the error of a rounded weight without the data.

For a layer y = W x and a change D of its weight, E |D x|^2 = trace(D G D^T) with G = E[x x^T].
Convolutions are products, too: x is the window that a filter reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.methods.layers import Layer
from edgewise.quantize.methods.statistics import watch

Tensor = torch.Tensor

MOST_ROWS = 4096
"""Windows of one batch, evenly chosen."""


def moments(
    model: GraphModule, layers: Sequence[Layer], batches: Iterable[Sequence[Any]]
) -> dict[Node, Tensor]:
    """By layer's node G: [groups, in / groups * elements, the same], of float32.

    Transposed convolutions and padding by name are left out.
    """
    sums: dict[Node, Tensor] = {}
    counts: dict[Node, int] = {}
    readers: dict[Node, list[Layer]] = {}
    for layer in layers:
        if not layer.transposed and not str(layer.node.target).endswith(".padding"):
            readers.setdefault(layer.activation, []).append(layer)

    def looking(node: Node) -> Callable[[Tensor], None]:
        def look(value: Tensor) -> None:
            for layer in readers[node]:
                rows = _rows(layer, value.detach())
                sums[layer.node] = sums.get(layer.node, 0) + rows.transpose(1, 2) @ rows
                counts[layer.node] = counts.get(layer.node, 0) + rows.shape[1]

        return look

    watch(model, {node: looking(node) for node in readers}, batches)
    return {node: total / counts[node] for node, total in sums.items()}


def _rows(layer: Layer, value: Tensor) -> Tensor:
    """What the layer multiplies: [groups, rows, in / groups * elements]."""
    if layer.is_linear:
        rows = value.flatten(0, -2) if value.dim() > 1 else value[None]
        return _some(rows)[None]
    args = arguments(layer.node)
    kernel, stride = _pair(list(layer.stored.shape[2:]), 1), _pair(args["stride"], 1)
    padding, dilation = _pair(args["padding"], 0), _pair(args["dilation"], 1)
    if layer.stored.dim() == 3:
        value = value[..., None, :]
    value = value if value.dim() == 4 else value[None]
    windows = torch.nn.functional.unfold(value, kernel, dilation, padding, stride)
    rows = _some(windows.transpose(1, 2).flatten(0, 1))
    return rows.reshape(len(rows), layer.groups, -1).transpose(0, 1)


def _pair(value: Sequence[int], first: int) -> tuple[int, int]:
    """Of a convolution in one dimension, with a first dimension of size one before it."""
    found = (first, *(int(v) for v in value))[-2:]
    return found[0], found[1]


def _some(rows: Tensor) -> Tensor:
    return rows[:: -(-len(rows) // MOST_ROWS)]


__all__ = ["moments"]
