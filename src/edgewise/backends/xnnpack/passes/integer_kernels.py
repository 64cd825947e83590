"""Arithmetic between a dequantization and a quantization is done on integers.

A node all of whose operands are dequantized or quantized constants, and whose result is
only read by one quantization, becomes a node on the integers, where XNNPACK has a kernel
for it and the scales are within that kernel's limits. A factor or summand that is one number
counts as quantized. Biases become int32 in the scale of
the products. An average over windows without padding is a depthwise convolution with equal
weights; the unary kinds are tables of 256 numbers in XNNPACK.

Requires: `move_quantization`. What this leaves in floating point is right, only slower.
"""

from __future__ import annotations

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import (
    INTEGERS,
    PerChannel,
    PerTensor,
    dequantize,
    is_scale,
)
from edgewise.backends.xnnpack.node_kinds import BINARY_ON_INTEGERS, UNARY_ON_INTEGERS
from edgewise.backends.xnnpack.passes.move_quantization import is_dequantize, is_quantize
from edgewise.edge.integer_biases import in_coarser_steps, least_scales
from edgewise.passes import declared

# Dimension of the filter that is the output channel.
_WEIGHTED = {"FullyConnected": 0, "Conv2d": 0, "ConvTranspose2d": 0, "DepthwiseConv2d": 3}
_LEAST_RATIO = 2.0**-31
"""Of a product's scale to the result's: XNNPACK takes 2**-32."""
_LEAST_PRODUCT = 2.0**-125
"""A scale of products: XNNPACK's are normal numbers of float32."""
_LEAST_SUMMAND = 2.0**-10
"""XNNPACK's limit on a summand's scale divided by the result's."""


@declared()
def use_integer_kernels(graph: Graph) -> bool:
    users = graph.users()
    integers: dict[Value, Value] = {}
    gone: set[Node] = set()
    for node in graph.nodes:
        source = node.inputs[0]
        if is_dequantize(node):
            assert source is not None
            integers[node.outputs[0]] = source
            continue
        result = node.outputs[0]
        readers = users.get(result, [])
        if len(readers) != 1 or not is_quantize(readers[0]) or result.output_index is not None:
            continue
        if _to_integers(node, readers[0].outputs[0], integers):
            gone.add(readers[0])
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _to_integers(node: Node, target: Value, integers: dict[Value, Value]) -> bool:
    operands = node.inputs[:1] if node.kind in _WEIGHTED else node.inputs
    out = target.quant
    assert isinstance(out, PerTensor)
    stored = [integers.get(v, v) if v is not None else None for v in operands]
    if node.kind in BINARY_ON_INTEGERS:
        stored = [_one_number(v, out) if v is not None else None for v in stored]
    if node.kind in ("Add", "Subtract"):
        stored = [_summand(v, out) if v is not None else None for v in stored]
    quants = [v.quant if v is not None else None for v in stored]
    if not all(isinstance(q, PerTensor) and q.dtype == out.dtype for q in quants):
        return False
    ins = [q for q in quants if isinstance(q, PerTensor)]
    if node.kind in _WEIGHTED:
        weights = _weights(node, ins[0], out)
        if weights is None:
            return False
        node.inputs = [stored[0], *weights]
    elif node.kind == "AvgPooling2d":
        if not _averages(node, ins[0], out, stored):
            return False
    elif _fits(node, ins, out):
        node.inputs = stored
    else:
        return False
    node.outputs = [target]
    return True


def _fits(node: Node, ins: list[PerTensor], out: PerTensor) -> bool:
    """XNNPACK's limits on scales."""
    ratios = [q.scale / out.scale for q in ins]
    if node.kind in ("Add", "Subtract"):
        return all(_LEAST_SUMMAND <= r < 2.0**8 for r in ratios)
    if node.kind == "Multiply":
        product = ins[0].scale * ins[1].scale
        return is_scale(product) and 2.0**-16 <= product / out.scale < 2.0**8
    if node.kind == "LeakyReLU":
        slope = node.params["negative_slope"]
        steep = abs(slope) * ratios[0]
        return 2.0**-8 <= ratios[0] < 2.0**7 and 2.0**-8 <= steep < 2.0**7
    return node.kind in UNARY_ON_INTEGERS or node.kind == "GlobalAvgPooling2d"


def _weights(node: Node, x: PerTensor, out: PerTensor) -> list[Value | None] | None:
    """Filter and bias for int8 activations, or None if XNNPACK cannot have them."""
    _, weight, bias = node.inputs
    assert weight is not None
    weight = _uniform(weight)
    quant = weight.quant
    if x.dtype != torch.int8 or weight.data is None or (bias is not None and bias.data is None):
        return None
    if isinstance(quant, PerTensor):
        if quant.zero_point != 0 or quant.dtype != torch.int8:
            return None
        scales = torch.tensor([quant.scale], dtype=torch.float64)
    elif isinstance(quant, PerChannel) and quant.axis == _WEIGHTED[node.kind]:
        scales = quant.scales
    else:
        return None
    least = torch.as_tensor(least_scales(None if bias is None else bias.data, x.scale))
    least = least.clamp(min=max(_LEAST_RATIO * out.scale, _LEAST_PRODUCT) / x.scale)
    axis = quant.axis if isinstance(quant, PerChannel) else None
    data, scales = in_coarser_steps(weight.data, scales, axis, least)
    if isinstance(quant, PerChannel):
        quant = PerChannel(scales.float(), quant.axis)
    elif data is not weight.data:
        quant = PerTensor(float(scales), 0)
    if quant is not weight.quant:
        weight = Value(weight.dims, weight.dtype, data=data, quant=quant)
    products = scales * x.scale
    ratios = products / out.scale
    if float(ratios.max()) >= 256:
        return None
    if bias is None:
        return [weight, None]
    assert bias.data is not None
    steps = torch.round(bias.data.double().reshape(-1) / products)
    low, high = INTEGERS[torch.int32]
    if float(steps.min()) < low or float(steps.max()) > high:
        return None
    if isinstance(quant, PerTensor):
        meaning: PerTensor | PerChannel = PerTensor(float(products), 0, torch.int32)
    else:
        meaning = PerChannel(products.float(), 0, 32)
    stored = Value(bias.dims, bias.dtype, data=steps.to(torch.int32), quant=meaning)
    return [weight, stored]


def _uniform(weight: Value) -> Value:
    """Weights of means, a number 1/N and perhaps zeros in a row, are ones with that scale."""
    data = weight.data
    if data is None or weight.quant is not None:
        return weight
    rows = data.float().reshape(data.shape[0], -1)
    scales = rows.amax(1)
    if not bool(((rows == 0) | (rows == scales[:, None])).all()):
        return weight
    if not all(is_scale(s) for s in (float(scales.min()), float(scales.max()))):
        return weight
    ones = (data != 0).to(torch.int8)
    quant: PerTensor | PerChannel = PerChannel(scales, 0)
    if bool((scales == scales[0]).all()):
        quant = PerTensor(float(scales[0]), 0)
    return Value(weight.dims, weight.dtype, data=ones, quant=quant)


def _one_number(value: Value, out: PerTensor) -> Value:
    """A constant whose elements are all the same is exact in integers: they are its sign."""
    number = value.number()
    if number is None or not is_scale(abs(number) / 127):
        return value
    quant = PerTensor(abs(number) / 127, 0 if out.dtype == torch.int8 else 128, out.dtype)
    data = quant.quantize(torch.full(value.dims, number))
    return Value(value.dims, value.dtype, data=data, quant=quant)


def _summand(value: Value, out: PerTensor) -> Value:
    """A constant whose steps are too small beside the result's is rounded to the smallest that
    XNNPACK adds, whose 127 are an eighth of a step of the result's."""
    quant, least = value.quant, _LEAST_SUMMAND * out.scale
    if value.data is None or not isinstance(quant, PerTensor) or quant.scale >= least:
        return value
    wider = PerTensor(least, 0 if quant.dtype == torch.int8 else 128, quant.dtype)
    data = wider.quantize(dequantize(value.data, quant, torch.float32))
    return Value(value.dims, value.dtype, data=data, quant=wider)


def _averages(node: Node, x: PerTensor, out: PerTensor, stored: list[Value | None]) -> bool:
    """The average as a convolution; False where windows would differ at the border."""
    p = node.params
    if any(p[f"padding_{side}"] for side in ("top", "right", "bottom", "left")):
        return False
    height, width = p["pooling_height"], p["pooling_width"]
    scale = 1 / (height * width)
    channels = node.outputs[0].dims[-1]
    ratio = x.scale * scale / out.scale
    if x.dtype != torch.int8 or not isinstance(channels, int) or not 2.0**-32 <= ratio < 256:
        return False
    dims = (1, height, width, channels)
    ones = torch.ones(dims, dtype=torch.int8)
    filters = Value(dims, torch.float32, data=ones, quant=PerTensor(scale, 0))
    node.kind = "DepthwiseConv2d"
    node.inputs = [stored[0], filters, None]
    node.params = {
        **{f"padding_{side}": 0 for side in ("top", "right", "bottom", "left")},
        "kernel_height": height,
        "kernel_width": width,
        "subsampling_height": p["stride_height"],
        "subsampling_width": p["stride_width"],
        "dilation_height": 1,
        "dilation_width": 1,
        "group_input_channels": 1,
        "group_output_channels": 1,
        "groups": channels,
        "adjustment_height": 0,
        "adjustment_width": 0,
    }
    return True


__all__ = ["use_integer_kernels"]
