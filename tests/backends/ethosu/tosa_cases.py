"""Functions that add an operator with random constants to a TosaGraph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tosa_serializer as ts
from tosa_graph import TosaGraph, attribute


def conv2d(
    graph: TosaGraph,
    x: str,
    out_channels: int,
    kernel: Sequence[int],
    rng: np.random.Generator,
    *,
    pad: Sequence[int] = (0, 0, 0, 0),
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    input_zp: int = 0,
    weights: np.ndarray | None = None,
) -> str:
    """The accumulators of a convolution: int32, or int48 of int16."""
    n, h, w, c = graph.shapes[x]
    if weights is None:
        weights = rng.integers(-127, 128, (out_channels, *kernel, c))
    wide = graph.types[x] == "int16"
    acc = "int48" if wide else "int32"
    bias = rng.integers(-(10**4), 10**4, out_channels)
    operands = [
        x,
        graph.const(weights, "int8"),
        graph.const(bias, acc),
        graph.const([input_zp], graph.types[x]),
        graph.const([0], "int8"),
    ]
    shape = [
        n,
        (h + pad[0] + pad[1] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1,
        (w + pad[2] + pad[3] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1,
        out_channels,
    ]
    values = attribute(
        "Conv2d",
        pad=list(pad),
        stride=list(stride),
        dilation=list(dilation),
        local_bound=False,
        acc_type=ts.DType.INT48 if wide else ts.DType.INT32,
    )
    return graph.op("CONV2D", operands, shape, acc, values)


def random(graph: TosaGraph, name: str, rng: np.random.Generator) -> np.ndarray:
    """Values of an input's type, over its whole range."""
    dtype = np.dtype(graph.types[name])
    if dtype.kind == "b":
        return rng.integers(0, 2, graph.shapes[name]).astype(bool)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, graph.shapes[name], dtype, endpoint=True)
