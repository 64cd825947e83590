"""Composites of integer kernels get integers between their steps.

    quantize(dequantize(x) * factor + offset)     (hardsigmoid)
    quantize(dequantize(y) * sigmoid(dequantize(x)))     (silu)

What lies between the steps is rounded too, so this is only done where that moves the result by
less than a step: rounded itself, it is the same integer or a neighbour.

Requires: `move_quantization`. `use_integer_kernels` makes integer nodes of the steps.
"""

from __future__ import annotations

import math

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import INTEGERS, PerTensor
from edgewise.backends.xnnpack.passes.move_quantization import (
    is_dequantize,
    is_quantize,
    move_quantization,
)
from edgewise.passes import declared


@declared()
def quantize_steps(graph: Graph) -> bool:
    users = graph.users()
    stored = {n.outputs[0]: n.inputs[0] for n in graph.nodes if is_dequantize(n)}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        nodes.append(node)
        quant = _of_step(node, users, stored)
        if quant is not None:
            nodes += _rounded(node, quant)
            changed = True
    graph.nodes = nodes
    if changed:
        move_quantization(graph)  # transposes between two products take integers, too
    return changed


def _of_step(
    node: Node, users: dict[Value, list[Node]], stored: dict[Value, Value | None]
) -> PerTensor | None:
    """How the node's result can be quantized, if it is a step between integers."""
    result = node.outputs[0]
    readers = users.get(result, [])
    if len(readers) != 1 or result.output_index is not None or result.quant is not None:
        return None
    if node.kind == "FullyConnected":
        return _of_first_mean(node, readers[0], users, stored)
    next_step = readers[0]
    ends = users.get(next_step.outputs[0], [])
    if len(ends) != 1 or not is_quantize(ends[0]) or node.clamp is not None:
        return None
    out = ends[0].outputs[0].quant
    assert isinstance(out, PerTensor)
    other = next((v for v in next_step.inputs if v is not result), None)
    if node.inputs[0] not in stored or other is None:
        return None
    if node.kind == "Sigmoid" and next_step.kind == "Multiply" and other in stored:
        operand = stored[node.inputs[0]].quant  # type: ignore[union-attr]
        assert isinstance(operand, PerTensor)
        return _of_gate(operand, stored[other], out)
    if node.kind == "Multiply" and next_step.kind == "Add":
        factor = node.inputs[1]
        if factor is not None and factor.number() is not None:
            return _of_product(other.number(), out)
    return None


def _of_first_mean(
    node: Node,
    reader: Node,
    users: dict[Value, list[Node]],
    stored: dict[Value, Value | None],
) -> PerTensor | None:
    """Of means of means, which the second averages again: half a step of the operand at most."""
    operand = stored.get(node.inputs[0])  # type: ignore[arg-type]
    while reader.kind in ("StaticTranspose", "StaticReshape"):
        readers = users.get(reader.outputs[0], [])
        if len(readers) != 1 or reader.outputs[0].output_index is not None:
            return None
        reader = readers[0]
    if operand is None or reader.kind != "FullyConnected":
        return None
    ends = users.get(reader.outputs[0], [])
    while len(ends) == 1 and ends[0].kind in ("StaticTranspose", "StaticReshape"):
        ends = users.get(ends[0].outputs[0], [])
    if len(ends) != 1 or not is_quantize(ends[0]):
        return None
    quant, out = operand.quant, ends[0].outputs[0].quant
    assert isinstance(quant, PerTensor) and isinstance(out, PerTensor)
    means = all(is_mean(n.inputs[1]) and n.inputs[2] is None for n in (node, reader))
    return quant if means and quant.scale / 2 < 0.9 * out.scale else None


def is_mean(weight: Value | None) -> bool:
    """Whether each row of weights is one number and zeros, with a sum of 1."""
    if weight is None or weight.data is None or weight.quant is not None:
        return False
    rows = weight.data.float()
    same = (rows == 0) | (rows == rows.amax(1, keepdim=True))
    return bool(same.all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all())


def _of_gate(operand: PerTensor, factor: Value | None, out: PerTensor) -> PerTensor | None:
    """Of numbers from 0 to the sigmoid of the largest: half a step of them times the factor is
    less than a step of the result."""
    assert factor is not None
    x = factor.quant
    assert isinstance(x, PerTensor)
    scale = 1 / (1 + math.exp(-operand.high)) / 255
    if max(-x.low, x.high) * scale / 2 >= 0.9 * out.scale:
        return None
    return PerTensor(scale, INTEGERS[out.dtype][0], out.dtype)


def _of_product(offset: float | None, out: PerTensor) -> PerTensor | None:
    """In the result's steps, so that an offset is added to it and nothing is lost at the ends."""
    if offset is None:
        return None
    zero_point = out.zero_point + round(offset / out.scale)
    low, high = INTEGERS[out.dtype]
    if not low <= zero_point <= high:
        return None
    return PerTensor(out.scale, zero_point, out.dtype)


def _rounded(node: Node, quant: PerTensor) -> list[Node]:
    """Quantizes the node's result and dequantizes it again."""
    result = node.outputs[0]
    real = Value(result.dims, result.dtype)
    integers = Value(result.dims, quant.dtype, quant=quant)
    node.outputs = [real]
    return [
        Node("Convert", [real], [integers], {}, None, node.origin),
        Node("Convert", [integers], [result], {}, None, node.origin),
    ]


__all__ = ["quantize_steps"]
