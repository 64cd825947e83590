"""Products of activations that are quantized at run time.

    FullyConnected(Dynamic(x), weights) -> FullyConnected(Convert(x), weights)

with a scale and a zero point for each row (each image of a convolution) where XNNPACK has
the kernel. Ensures: no `Dynamic` is left.
"""

from __future__ import annotations

import torch

from edgewise.backends.xnnpack.graph import Graph, Node, Value
from edgewise.backends.xnnpack.quant import (
    BLOCK_MULTIPLE,
    PerBlock,
    PerChannel,
    PerTensor,
    PerToken,
)

# Dimensions that share a scale.
_TOGETHER = {"FullyConnected": 1, "Conv2d": 3, "ConvTranspose2d": 3}


def use_dynamic_kernels(graph: Graph) -> bool:
    real: dict[Value, Value] = {}
    converted: dict[tuple[Value, int], Value] = {}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        source = node.inputs[0]
        assert source is not None
        if node.kind == "Dynamic":
            changed = True
            if node.outputs[0].output_index is not None:
                nodes.append(Node("Copy", [source], node.outputs, {}, None, node.origin))
            else:
                real[node.outputs[0]] = source
            continue
        weights = _weights(node) if source in real else None
        node.inputs = [real.get(v, v) if v is not None else None for v in node.inputs]
        source = node.inputs[0]
        assert source is not None
        if weights is not None:
            together = _TOGETHER[node.kind]
            key = (source, together)
            if key not in converted:
                converted[key] = Value(source.dims, source.dtype, quant=PerToken(together))
                nodes.append(Node("Convert", [source], [converted[key]], {}, None, node.origin))
            node.inputs = [converted[key], weights, _wide(node.inputs[2])]
            if node.kind == "ConvTranspose2d" and node.outputs[0].dtype == torch.float16:
                nodes += _in_float32(node)
                continue
        nodes.append(node)
    graph.nodes = nodes
    return changed


def _in_float32(node: Node) -> list[Node]:
    """The node and a conversion of its result, for which XNNPACK has no kernel in float16."""
    result = node.outputs[0]
    wide = Value(result.dims, torch.float32)
    node.outputs = [wide]
    return [node, Node("Convert", [wide], [result], {}, None, node.origin)]


def _weights(node: Node) -> Value | None:
    """The filter as the kernel for quantized activations has it, or None without one."""
    weight = node.inputs[1] if node.kind in _TOGETHER else None
    if weight is None or weight.data is None or weight.quant is None:
        return None
    quant, data = weight.quant, weight.data
    if node.kind != "FullyConnected" and not isinstance(quant, (PerTensor, PerChannel)):
        return None
    outputs, inputs = data.shape[0], data.shape[-1]
    if isinstance(quant, PerTensor):
        if quant.zero_point != 0 or quant.dtype != torch.int8:
            return None
        quant = PerChannel(torch.full((outputs,), quant.scale), 0)
    elif isinstance(quant, PerChannel):
        if quant.axis != 0:
            return None
        if quant.bits == 4 and (node.kind != "FullyConnected" or inputs % 2 == 1):
            quant = PerChannel(quant.scales, 0)
    elif isinstance(quant, PerBlock) and (quant.bits != 4 or quant.size % BLOCK_MULTIPLE != 0):
        return None
    return Value(weight.dims, weight.dtype, data=data, quant=quant)


def _wide(bias: Value | None) -> Value | None:
    """These kernels have biases of float32."""
    if bias is None or bias.dtype == torch.float32:
        return bias
    assert bias.data is not None
    return Value(bias.dims, torch.float32, data=bias.data.float())


__all__ = ["use_dynamic_kernels"]
