"""Products of activations that are quantized at run time.

    FullyConnected(Dynamic(x), weights) -> FullyConnected(Convert(x), weights)

with a scale and a zero point for each row (each image of a convolution) where XNNPACK has
the kernel. Ensures: no `Dynamic` is left.
"""

from __future__ import annotations

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import (
    BLOCK_MULTIPLE,
    SMALLEST_BLOCK,
    PerBlock,
    PerChannel,
    PerTensor,
    PerToken,
)
from edgewise.passes import Property, declared

# Dimensions that share a scale.
_TOGETHER = {"FullyConnected": 1, "Conv2d": 3, "ConvTranspose2d": 3}


def _left(graph: Graph) -> str:
    count = sum(node.kind == "Dynamic" for node in graph.nodes)
    return f"{count} of them" if count else ""


NO_DYNAMIC: Property[Graph] = Property("no `Dynamic` is left", _left)


@declared(ensures=(NO_DYNAMIC,))
def use_dynamic_kernels(graph: Graph) -> bool:
    real: dict[Value, Value] = {}
    converted: dict[tuple[Value, int], Value] = {}
    padded: dict[tuple[Value, int], Value] = {}
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
            if isinstance(weights.quant, PerBlock) and weights.quant.size % BLOCK_MULTIPLE:
                size = weights.quant.size
                graph.padded.add(node.origin)
                weights = _padded_weights(weights, weights.quant)
                if (source, size) not in padded:
                    padded[source, size], steps = _padded(source, size, node.origin)
                    nodes += steps
                source = padded[source, size]
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


def _padded_size(size: int) -> int:
    return -(-size // BLOCK_MULTIPLE) * BLOCK_MULTIPLE


def _padded_weights(weights: Value, quant: PerBlock) -> Value:
    """Each block with zeros behind it, up to a size that XNNPACK has."""
    assert weights.data is not None
    rows, size = weights.data.shape[0], _padded_size(quant.size)
    blocks = weights.data.reshape(rows, -1, quant.size)
    data = torch.nn.functional.pad(blocks, (0, size - quant.size)).reshape(rows, -1)
    meaning = PerBlock(quant.scales, size, quant.bits)
    return Value(tuple(data.shape), weights.dtype, data=data, quant=meaning)


def _padded(x: Value, size: int, origin: int) -> tuple[Value, list[Node]]:
    """The activations with zeros where the weights have them, and the nodes that make that."""
    *lead, last = x.dims
    assert isinstance(last, int)
    blocks, wide = last // size, _padded_size(size)
    split = Value((*lead, blocks, size), x.dtype)
    longer = Value((*lead, blocks, wide), x.dtype)
    joined = Value((*lead, blocks * wide), x.dtype)
    amounts = [0] * len(lead) + [0, wide - size]
    around = {"pre_paddings": [0] * len(amounts), "post_paddings": amounts, "padding_value": 0.0}
    return joined, [
        _reshape(x, split, origin),
        Node("StaticConstantPad", [split], [longer], around, None, origin),
        _reshape(longer, joined, origin),
    ]


def _reshape(x: Value, result: Value, origin: int) -> Node:
    params = {"num_dims": len(result.dims), "new_shape": list(result.dims)}
    return Node("StaticReshape", [x], [result], params, None, origin)


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
    elif isinstance(quant, PerBlock) and (quant.bits != 4 or quant.size < SMALLEST_BLOCK):
        return None
    return Value(weight.dims, weight.dtype, data=data, quant=quant)


def _wide(bias: Value | None) -> Value | None:
    """These kernels have biases of float32."""
    if bias is None or bias.dtype == torch.float32:
        return bias
    assert bias.data is not None
    return Value(bias.dims, torch.float32, data=bias.data.float())


__all__ = ["use_dynamic_kernels"]
