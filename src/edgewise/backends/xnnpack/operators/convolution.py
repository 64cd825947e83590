"""Convolutions of images, and of sequences as images of one row."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import SUMS
from edgewise.backends.xnnpack.lowering.builder import NHWC, Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    WEIGHTS,
    Constraint,
    Lowering,
    Query,
    constant,
    define,
    rank,
)
from edgewise.edge.graph import Dim, arguments, shape_of
from edgewise.quantize.patterns import convolutions

aten = torch.ops.aten


def _convolution(to: Lowering, node: Node, args: dict[str, Any]) -> Operand:
    weight, bias = to.tensor(args["weight"]), to.optional(args["bias"])
    x, shape = to.ref(args["input"]), shape_of(node)
    if x.rank == 3:
        row = dict(args, stride=[1, *args["stride"]], padding=[0, *args["padding"]])
        row["dilation"] = [1, *args["dilation"]]
        row["output_padding"] = [0, *args["output_padding"]]
        x = to.b.view(x, (*x.shape[:2], 1, x.shape[2]))
        result = _image(to, x, weight.unsqueeze(2), bias, (*shape[:2], 1, shape[2]), row)
        return to.b.view(result, shape)
    return _image(to, x, weight, bias, shape, args)


def _image(
    to: Lowering,
    x: Ref,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: tuple[Dim, ...],
    args: dict[str, Any],
) -> Ref:
    """The convolution of an image to a result of the shape."""
    x = to.b.in_order(x, NHWC)
    stride, padding, dilation = args["stride"], args["padding"], args["dilation"]
    transposed, groups = bool(args["transposed"]), int(args["groups"])
    if transposed:
        inputs, outputs = weight.shape[0] // groups, weight.shape[1]
        filters = to.b.in_groups(weight, partial(_of_transposed, groups=groups), groups)
        kind = "ConvTranspose2d"
    elif weight.shape[1] == 1 and groups > 1:
        # [out, 1, h, w] -> [1, h, w, out]
        inputs, outputs = 1, weight.shape[0] // groups
        filters, kind = to.b.constant(weight.permute(1, 2, 3, 0)), "DepthwiseConv2d"
    else:
        inputs, outputs = weight.shape[1], weight.shape[0] // groups
        filters, kind = to.b.constant(weight.permute(0, 2, 3, 1)), "Conv2d"
    value = to.b.node(
        kind,
        [
            x.value,
            filters,
            None if bias is None else to.b.constant(bias),
        ],
        [shape[d] for d in NHWC],
        x.dtype,
        padding_top=padding[0],
        padding_right=padding[1],
        padding_bottom=padding[0],
        padding_left=padding[1],
        kernel_height=int(weight.shape[2]),
        kernel_width=int(weight.shape[3]),
        subsampling_height=stride[0],
        subsampling_width=stride[1],
        dilation_height=dilation[0],
        dilation_width=dilation[1],
        group_input_channels=inputs,
        group_output_channels=outputs,
        groups=groups,
        adjustment_height=args["output_padding"][0] if transposed else 0,
        adjustment_width=args["output_padding"][1] if transposed else 0,
    )
    return Ref(value, NHWC)


def _of_transposed(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """[in, out/groups, h, w] -> [out, h, w, in/groups]"""
    inputs, size = weight.shape[0] // groups, weight.shape[2:]
    split = weight.reshape(groups, inputs, -1, *size)
    return split.permute(0, 2, 3, 4, 1).reshape(-1, *size, inputs)


def _two_dimensional(q: Query) -> str | None:
    found = len(q.args["stride"])
    return None if found in (1, 2) else f"{found}-D"


def _covers_its_stride(q: Query) -> str | None:
    """XNNPACK writes out of bounds where a transposed convolution's result is smaller."""
    sizes, stride = shape_of(q.node)[2:], q.args["stride"]
    small = any(isinstance(s, int) and s < step for s, step in zip(sizes, stride, strict=False))
    return f"size {sizes}, stride {stride}" if q.args["transposed"] and small else None


def _not_dynamic(node: Node) -> str | None:
    """Why XNNPACK has no kernel that quantizes a convolution's input while it runs."""
    args = arguments(node)
    weight = args["weight"].meta["val"]
    # Of a transposed convolution dimension 1 holds the outputs: a kernel of its own, always.
    transposed = "output_padding" in args
    if not transposed and args["groups"] > 1 and weight.shape[1] == 1:
        return "XNNPACK has no depthwise kernel that quantizes activations while it runs"
    return None


define(
    "conv2d",
    (aten.convolution.default,),
    _convolution,
    (
        rank("input", 3, 4),
        Constraint("1-D or 2-D convolution", _two_dimensional),
        constant("weight", "bias"),
        Constraint("a transposed convolution's result covers its stride", _covers_its_stride),
    ),
    also="1-D: as an image of one row",
    accuracy=SUMS,
    quantization=convolutions(_not_dynamic),
    integers=f"static or dynamic int8 (depthwise: static), {WEIGHTS}; weights alone, 8-bit or "
    "4-bit, symmetric",
)
