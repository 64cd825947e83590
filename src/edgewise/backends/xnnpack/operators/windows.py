"""Nodes over the borders and windows of a tensor, as several definitions make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.builder import Ref
from edgewise.backends.xnnpack.lowering.graph import Value
from edgewise.backends.xnnpack.lowering.table import Lowering
from edgewise.edge.graph import Dim, dims_of, value_of
from edgewise.operators.arguments import Pair


def result_shape(node: Node) -> tuple[Dim, ...]:
    """Of the node, or of the first of its results."""
    value = value_of(node)
    return dims_of((value[0] if isinstance(value, (tuple, list)) else value).shape)


def pad(to: Lowering, x: Ref, amounts: Mapping[int, Pair], number: float) -> Ref:
    """x with the number put before and behind it: how often, by logical dimension."""
    around = [amounts.get(dim, (0, 0)) for dim in x.perm]
    value = to.b.node(
        "StaticConstantPad",
        [x.value],
        [b + size + a for size, (b, a) in zip(x.value.dims, around, strict=True)],
        x.dtype,
        pre_paddings=[before for before, _ in around],
        post_paddings=[after for _, after in around],
        padding_value=number,
    )
    return Ref(value, x.perm)


def averages(to: Lowering, x: Ref, windows: Mapping[int, Sequence[Pair]]) -> Ref:
    """Means over windows from one index to before another along each dimension, one dimension
    after the other: products with a matrix whose rows hold one number and zeros."""
    for dim, bounds in windows.items():
        size = x.shape[dim]
        assert isinstance(size, int)
        matrix = torch.zeros(len(bounds), size)
        for row, (first, end) in zip(matrix, bounds, strict=True):
            row[first:end] = 1 / (end - first)
        last = [*(d for d in range(x.rank) if d != dim), dim]
        result = to.b.fully_connected(to.b.permute(x, last), matrix.to(x.dtype), None)
        x = to.b.permute(result, [last.index(d) for d in range(x.rank)])
    return x


def pool(
    to: Lowering,
    kind: str,
    image: Value,
    dims: Sequence[Dim],
    window: Pair,
    stride: Pair = (1, 1),
    before: Pair = (0, 0),
    after: Pair = (0, 0),
    dilation: Pair = (1, 1),
) -> Value:
    """A pooling of [batch, height, width, channels]; `dims` are the result's. Pairs are of
    height and width."""
    return to.b.node(
        kind,
        [image],
        dims,
        image.dtype,
        padding_top=before[0],
        padding_right=after[1],
        padding_bottom=after[0],
        padding_left=before[1],
        pooling_height=window[0],
        pooling_width=window[1],
        stride_height=stride[0],
        stride_width=stride[1],
        dilation_height=dilation[0],
        dilation_width=dilation[1],
    )
