"""Convolutions in one and two dimensions, depthwise and transposed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Tensor
from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.lowering.table import (
    PADDED_HINT,
    Constraint,
    Query,
    constant,
    define,
    integer_weight,
    padded,
)
from edgewise.backends.neutron.operators.windows import image, limited, pair, same_padding, sequence
from edgewise.backends.neutron.targets import WEIGHTS_OF_AN_OUTPUT_LIMIT
from edgewise.backends.neutron.tflite.model import Quantization, Value
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    Padding,
    TransposeConvOptions,
)
from edgewise.edge.graph import arguments, dtype_name, fake
from edgewise.edge.orders import NHWC
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.quantize.patterns import convolutions
from edgewise.quantize.transposed import Geometry

aten = torch.ops.aten
CHANNELS_AT_A_TIME = 8
"""Multiply-accumulates of a pipeline of the N3-64."""
MOST_CONVOLUTIONS = 64
"""Those that one in groups becomes."""
FUSES = (Activation.NONE, Activation.RELU, Activation.RELU_N1_TO_1, Activation.RELU6)


def _is_depthwise(args: dict[str, Any]) -> bool:
    inputs = fake(args["input"]).shape[1]
    outputs = fake(args["weight"]).shape[0]
    groups = args["groups"]
    return bool(groups == inputs and groups > 1 and outputs % groups == 0)


def _lower(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["input"])
    rank = len(x.order)
    picture = image(to, x)
    if args["transposed"]:
        return _transposed(to, node, args, picture, rank)
    weight, scales, _ = to.weight_for(args["weight"], args["bias"], picture.quant)
    if rank == 3:
        weight = weight[:, :, None]
    stride, dilation = pair(args["stride"]), pair(args["dilation"])
    padding = pair(args["padding"], 0)
    kernel = weight.shape[2:]
    how = same_padding(picture.shape[2:], kernel, stride, padding, dilation)
    if how is None:
        how = Padding.VALID
        edges = {dim: (p, p) for dim, p in zip((2, 3), padding, strict=True)}
        picture = to.padded(picture, edges, picture.quant.zero_point)
    n, outputs, (h, w) = picture.shape[0], weight.shape[0], _sizes(node, rank)
    products = tuple(scale * x.quant.scale for scale in scales)
    depthwise = _is_depthwise(args)
    groups = 1 if depthwise else args["groups"]
    joined = _joined_of(args)
    if joined > 1:
        weight, groups = _block_diagonal(weight, groups, joined), groups // joined
    inputs, step = picture.shape[1] // groups, outputs // groups

    def parts(quant: Quant) -> Iterator[tuple[str, Tensor, Value, Value]]:
        stored, sums = to.factors(scales, x.quant, quant)
        for group in range(groups):
            part = slice(group * step, (group + 1) * step)
            # [outputs, inputs, kh, kw] to OHWI; of a depthwise one to [1, kh, kw, outputs].
            data = weight[part].transpose((1, 2, 3, 0) if depthwise else (0, 2, 3, 1))
            own = stored[part] if len(stored) > 1 else stored
            quantization = Quantization(own, (0,) * len(own), 3 if depthwise else 0)
            kept = to.b.constant(args["weight"].name, data, quantization)
            bias = to.bias(args["bias"], products, sums, outputs, part)
            name = node.name if groups == 1 else f"{node.name}_{group}"
            source = to.cut(picture, {1: (group * inputs, inputs)}, f"{name}_input")
            yield name, source, kept, bias

    def emit(quant: Quant, activation: Activation) -> Tensor:
        if depthwise:
            code = BuiltinOperator.DEPTHWISE_CONV_2D
            multiplier = outputs // args["groups"]
            options: Any = DepthwiseConv2DOptions(
                how, stride[1], stride[0], multiplier, activation, dilation[1], dilation[0]
            )
        else:
            code = BuiltinOperator.CONV_2D
            options = Conv2DOptions(how, stride[1], stride[0], activation, dilation[1], dilation[0])
        made = [
            to.add(
                code,
                [source, kept, bias],
                to.result(name, (n, step, h, w), NHWC, quant),
                options,
            )
            for name, source, kept, bias in parts(quant)
        ]
        whole = made[0]
        if groups > 1:
            whole = to.result(node, (n, outputs, h, w), NHWC, quant)
            joined = ConcatenationOptions(NHWC.index(1), Activation.NONE)
            to.add(BuiltinOperator.CONCATENATION, made, whole, joined)
        return sequence(to, whole, rank)

    return Computed(emit, FUSES)


def _joined(inputs: int, groups: int) -> int:
    """How many groups are computed as one convolution, whose weights between them are zeros: what
    fills the channels that the NPU reads at a time costs nothing; more, where they are many."""

    def enough(count: int) -> bool:
        return count * inputs >= CHANNELS_AT_A_TIME and groups // count <= MOST_CONVOLUTIONS

    divisors = [count for count in range(1, groups + 1) if groups % count == 0]
    return next(filter(enough, divisors), groups)


def _block_diagonal(weight: Any, groups: int, joined: int) -> Any:
    """weight: [outputs, inputs of a group, kh, kw]. Of `joined` groups each, [outputs, inputs of
    all of them, kh, kw]."""
    outputs, inputs, *kernel = weight.shape
    blocks = weight.reshape(groups // joined, joined, outputs // groups, inputs, *kernel)
    whole = np.zeros(
        (groups // joined, joined, outputs // groups, joined, inputs, *kernel), weight.dtype
    )
    for i in range(joined):
        whole[:, i, :, i] = blocks[:, i]
    return whole.reshape(outputs, joined * inputs, *kernel)


def _sizes(node: Node, rank: int) -> tuple[int, int]:
    shape = fake(node).shape
    return (1, int(shape[2])) if rank == 3 else (int(shape[2]), int(shape[3]))


def _transposed(to: Lowering, node: Node, args: dict[str, Any], picture: Tensor, rank: int) -> Real:
    """TFLite has no padding but VALID that fits torch's: the border is cut off afterwards."""
    weight, scales, _ = to.weight_for(args["weight"], args["bias"], picture.quant)
    if rank == 3:
        weight = weight[:, :, None]
    stride, padding = pair(args["stride"]), pair(args["padding"], 0)
    outputs, kernel = weight.shape[1], weight.shape[2:]
    data = weight.transpose(1, 2, 3, 0)  # [inputs, outputs, kh, kw] -> OHWI
    products = tuple(scale * picture.quant.scale for scale in scales)
    n = picture.shape[0]
    whole = [
        (size - 1) * s + k for size, s, k in zip(picture.shape[2:], stride, kernel, strict=True)
    ]
    h, w = _sizes(node, rank)

    def emit(quant: Quant, _: Activation) -> Tensor:
        own, sums = to.factors(scales, picture.quant, quant)
        kept = to.b.constant(args["weight"].name, data, Quantization(own, (0,) * len(own), 0))
        bias = to.bias(args["bias"], products, sums, outputs)
        made = to.result(node, (n, outputs, *whole), NHWC, quant)
        shape = to.ints(f"{node.name}_shape", [n, *whole, outputs])
        options = TransposeConvOptions(Padding.VALID, stride[1], stride[0])
        made = to.add(BuiltinOperator.TRANSPOSE_CONV, [shape, kept, picture, bias], made, options)
        made = to.cut(made, {2: (padding[0], h), 3: (padding[1], w)}, f"{node.name}_cut")
        return sequence(to, made, rank)

    return Computed(emit)


def _joined_of(args: dict[str, Any]) -> int:
    groups = args["groups"]
    if groups == 1 or args["transposed"] or _is_depthwise(args):
        return 1
    return _joined(fake(args["input"]).shape[1] // groups, groups)


def _groups(q: Query) -> str | None:
    groups = q.args["groups"]
    return f"groups={groups}" if groups > 1 and q.args["transposed"] else None


def _dims(q: Query) -> str | None:
    rank = len(q.shape_of("input"))
    return None if rank in (3, 4) else f"{rank - 2}-D"


def _window(q: Query) -> str | None:
    macs = q.rules.target.macs
    assert macs is not None
    shape = q.shape_of("weight")
    inputs = shape[0] if q.args["transposed"] else shape[1] * _joined_of(q.args)
    found = math.prod(shape[2:]) * -(-inputs // macs) * macs
    return f"{found}" if found > WEIGHTS_OF_AN_OUTPUT_LIMIT else None


def _transposed_window(q: Query) -> str | None:
    if not q.args["transposed"]:
        return None
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    return beyond_window(Geometry.of(q.shape_of("weight")[2:], *(q.args[n] for n in names)))


def beyond_window(transposed: Geometry) -> str | None:
    """What TRANSPOSE_CONV does not do."""
    if any(transposed.output_padding):
        return f"output_padding={list(transposed.output_padding)}"
    for k, s, p, d in zip(
        transposed.kernel,
        transposed.stride,
        transposed.padding,
        transposed.dilation,
        strict=True,
    ):
        if s > 2 or s > k:
            return f"stride {s} with a kernel of {k}"
        if p >= k:
            return f"padding {p} with a kernel of {k}"
        if d != 1:
            return f"dilation {d}"
    return None


def _channels(q: Query) -> str | None:
    if _is_depthwise(q.args):
        return padded(q, [q.shape[1]])
    groups = q.args["groups"] // _joined_of(q.args)
    return padded(q, [shape[1] // groups for shape in (q.shape_of("input"), q.shape)])


def _bias_fits(q: Query) -> str | None:
    """Of a bias that is quantized: int32."""
    node = q.args["bias"]
    if node is None or node in q.constants:
        return None
    data = arguments(node)["input"] if is_dequantize(node) else node
    if data not in q.constants:
        return None
    dtype = q.constants.tensor(data).dtype
    return None if dtype == torch.int32 else dtype_name(dtype)


BIAS = Constraint("a bias in int32 or floating point", _bias_fits)
CHANNELS = Constraint(
    "numbers of channels that the target's multiply-accumulates divide (converters before 2026)",
    _channels,
    PADDED_HINT,
)

define(
    "convolution",
    (aten.convolution.default,),
    _lower,
    (
        Constraint("one or two dimensions", _dims),
        constant("weight", "bias"),
        integer_weight("weight"),
        BIAS,
        Constraint("transposed: groups=1", _groups),
        limited("weight", "stride", "dilation"),
        Constraint(
            f"kernel size times input channels of at most {WEIGHTS_OF_AN_OUTPUT_LIMIT}",
            _window,
        ),
        Constraint(
            "transposed: stride at most 2 and the kernel's size, padding below it, no "
            "dilation, no output_padding",
            _transposed_window,
        ),
        CHANNELS,
    ),
    images=True,
    also="CONV_2D (for each group or several, CONCATENATION), DEPTHWISE_CONV_2D or "
    "TRANSPOSE_CONV, with PAD, SLICE, RESHAPE as needed",
    quantization=convolutions(),
)

__all__ = ["BIAS", "FUSES", "beyond_window"]
