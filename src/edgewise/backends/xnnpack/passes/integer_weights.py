"""Quantized weights of products that are computed in floating point stay integers in the file.

    FullyConnected(x, dequantized weights) -> FullyConnected(x, integers)

XNNPACK has kernels for linear layers with a scale for each channel. For the rest the runtime of
this project expands the weights when it packs them (`weight_only.py` says for which nodes);
the peer's runtime refuses those. Every other node reads the real numbers.

Requires: no `Dynamic` is left. Ensures: quantized constants are only read by nodes that compute
with them.
"""

from __future__ import annotations

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import (
    BLOCK_MULTIPLE,
    PerBlock,
    PerChannel,
    PerTensor,
    Quant,
    dequantize,
)
from edgewise.backends.xnnpack.passes.dynamic_kernels import NO_DYNAMIC
from edgewise.backends.xnnpack.passes.move_quantization import is_dequantize
from edgewise.passes import declared

_OUTPUT_DIM = {"FullyConnected": 0, "Conv2d": 0, "ConvTranspose2d": 0, "DepthwiseConv2d": 3}


@declared(requires=(NO_DYNAMIC,))
def keep_integer_weights(graph: Graph) -> bool:
    plain: dict[Value, Value] = {}
    changed = False
    for node in graph.nodes:
        if node.outputs[0].quant is not None or is_dequantize(node) or _computes_in_integers(node):
            continue
        weight = _weights(node, graph)
        if weight is None:
            node.inputs = [_plain(v, plain) for v in node.inputs]
        else:
            bias = _plain(node.inputs[2], plain)
            node.inputs = [node.inputs[0], weight, _bias(bias, weight, node)]
            changed = True
    return changed or bool(plain)


def _computes_in_integers(node: Node) -> bool:
    x = node.inputs[0]
    return node.kind in _OUTPUT_DIM and x is not None and x.quant is not None


def _weights(node: Node, graph: Graph) -> Value | None:
    """The filter as the file has it, or None if it must be floating point."""
    weight = node.inputs[1] if node.kind in _OUTPUT_DIM else None
    if weight is None or weight.data is None or weight.quant is None:
        return None
    quant, data, axis = weight.quant, weight.data, _OUTPUT_DIM[node.kind]
    if isinstance(quant, PerTensor):
        if quant.zero_point != 0 or quant.dtype != torch.int8:
            return None
        quant = PerChannel(torch.full((data.shape[axis],), quant.scale), axis)
    elif isinstance(quant, PerBlock):
        if quant.size % BLOCK_MULTIPLE != 0:
            return None
    elif not isinstance(quant, PerChannel) or quant.axis != axis:
        return None
    if isinstance(quant, PerChannel) and quant.bits == 4 and data.shape[-1] % 2 == 1:
        quant = PerChannel(quant.scales, axis)
    if not _has_kernel(node, quant) and node.origin not in graph.expands:
        return None
    return Value(weight.dims, weight.dtype, data=data, quant=quant)


def _has_kernel(node: Node, quant: Quant | None) -> bool:
    """Of XNNPACK's own."""
    is_linear = node.kind == "FullyConnected" and isinstance(quant, PerChannel)
    return is_linear and node.outputs[0].dtype == torch.float32


def _bias(bias: Value | None, weight: Value, node: Node) -> Value | None:
    """float32; in steps of the weights for XNNPACK's kernels, which multiply the sum of bias and
    products by the scale."""
    if bias is None or bias.data is None:
        return bias
    data = bias.data.float()
    if _has_kernel(node, weight.quant):
        assert isinstance(weight.quant, PerChannel)
        data = data / weight.quant.scales
    return Value(bias.dims, torch.float32, data=data)


def _plain(value: Value | None, plain: dict[Value, Value]) -> Value | None:
    if value is None or value.data is None or value.quant is None:
        return value
    if value not in plain:
        data = dequantize(value.data, value.quant, value.dtype)
        plain[value] = Value(value.dims, value.dtype, data=data)
    return plain[value]


__all__ = ["keep_integer_weights"]
