"""Convolutions of images, and of sequences as images of one row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import SUMS
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.quantized_constants import is_dequantizer
from edgewise.backends.xnnpack.lowering.table import (
    WEIGHTS,
    Constraint,
    Lowering,
    Query,
    constant,
    define,
)
from edgewise.backends.xnnpack.operators.reduce import as_it_lies
from edgewise.backends.xnnpack.operators.volumes import as_volumes, layers, static_volume
from edgewise.backends.xnnpack.operators.windows import pad
from edgewise.edge.graph import Dim, arguments, fake, shape_of
from edgewise.edge.orders import NHWC
from edgewise.quantize.composites import depth_taps
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
    if x.rank == 5:
        make = _transposed_volume if args["transposed"] else _volume
        return make(to, x, weight, bias, shape, args)
    return _image(to, x, weight, bias, shape, args)


def _volume(
    to: Lowering,
    x: Ref,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: tuple[Dim, ...],
    args: dict[str, Any],
) -> Ref:
    """For each layer of the result an image is convolved, whose channels are those of all layers
    that it reads; in groups, one image for each of these layers, and the sum of the results."""
    n, outputs, depth, *size = shape
    (stride, *strides), (padding, *paddings) = args["stride"], args["padding"]
    (gap, *gaps), groups = args["dilation"], args["groups"]
    flat = dict(args, stride=strides, padding=paddings, dilation=gaps)
    if padding:
        x = pad(to, x, {2: (padding, padding)}, 0.0)
    read = layers(to, x, weight.shape[2], stride, gap, int(depth))
    after = (n * depth, outputs, *size)
    if groups == 1:
        image = Ref(to.b.concatenate([one.value for one in read], 3), NHWC)
        filters = weight.transpose(1, 2).flatten(1, 2)
        return as_volumes(to, _image(to, image, filters, bias, after, flat), shape)
    return as_volumes(to, _sum(to, read, weight.unbind(2), bias, after, flat), shape)


def _sum(
    to: Lowering,
    images: Sequence[Ref],
    weights: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    shape: tuple[Dim, ...],
    args: dict[str, Any],
) -> Ref:
    """Of the convolutions of as many images as there are weights."""
    y = _image(to, images[0], weights[0], bias, shape, args)
    for image, weight in zip(images[1:], weights[1:], strict=False):
        y = to.b.binary("Add", y, _image(to, image, weight, None, shape, args))
    return y


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


def _transposed_volume(
    to: Lowering,
    x: Ref,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    shape: tuple[Dim, ...],
    args: dict[str, Any],
) -> Ref:
    """Layers that are the depth's stride apart are sums of images, one for each element of the
    kernel that they have in common (`depth_taps`)."""
    n, outputs, depth, *size = shape
    (stride, *strides), (padding, *paddings) = args["stride"], args["padding"]
    flat = dict(args, stride=strides, padding=paddings, dilation=args["dilation"][1:])
    flat["output_padding"] = args["output_padding"][1:]
    taps = depth_taps(weight.shape[2], stride)
    most, count = len(taps[0]) - 1, x.shape[2] + len(taps[0]) - 1
    if most:
        x = pad(to, x, {2: (most, most)}, 0.0)
    read = layers(to, x, most + 1, 1, 1, int(count))[::-1]
    after = (n * count, outputs, *size)
    phases = [_sum(to, read, [weight[:, :, tap] for tap in of], bias, after, flat) for of in taps]
    # Each image's phases behind it: [N * count, stride, H, W, C].
    split = (n * count, 1, *size, outputs)
    joined = to.b.concatenate([to.b.view(as_it_lies(y), split).value for y in phases], 1)
    whole = (n, outputs, count * stride, *size)
    y = as_volumes(to, Ref(joined, (0, 1, 2, 3, 4)), whole)
    return to.b.slice(y, 2, padding, depth)


def _plain_volume(q: Query) -> str | None:
    """Why a convolution of volumes is not one of images."""
    if len(q.args["stride"]) != 3:
        return None
    weight = q.args["weight"]
    if q.args["transposed"]:
        stride, kernel = q.args["stride"][0], fake(weight).shape[2]
        around, beyond = q.args["padding"][0], q.args["output_padding"][0]
        if q.args["dilation"][0] != 1 or kernel < stride or beyond > around:
            return f"along the depth dilation, or stride {stride}, kernel {kernel}"
    if isinstance(weight, Node) and is_dequantizer(weight):
        return "quantized weights"
    return static_volume(q, "input")


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
        Constraint(
            "3-D: static sizes, in floating point; transposed: layers without gaps", _plain_volume
        ),
        constant("weight", "bias"),
        Constraint("a transposed convolution's result covers its stride", _covers_its_stride),
    ),
    also="1-D: as an image of one row; 3-D: as an image for each layer of the result",
    accuracy=SUMS,
    quantization=convolutions(_not_dynamic),
    integers=f"static or dynamic int8 (depthwise: static), {WEIGHTS}; weights alone, 8-bit or "
    "4-bit, symmetric",
)
