"""Quantization moves up and dequantization down, past nodes that do not mind.

Moving, joining, padding and picking the largest of numbers commute with rounding them:

    quantize(move(x))            -> move(quantize(x))
    move(dequantize(q))          -> dequantize(move(q))
    quantize(dequantize(q))      -> q, or a conversion of scales
    move(Dynamic(x))             -> Dynamic(move(x))

What is left between a dequantization and a quantization is arithmetic. Bilinear resizing
of integers rounds its result, so it is only done where a quantization follows (and in the
scale of its operand, for that of its result may be too narrow for the peaks it averages).

Requires: clamps are fused. Ensures: no node of `DATA_MOVEMENT` reads what was dequantized if it
could read integers, and no two conversions convert the same value to the same type.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import PerTensor, Quant, dequantize
from edgewise.backends.xnnpack.passes.fuse_clamp import CLAMPS_ARE_FUSED
from edgewise.passes import declared

DATA_MOVEMENT = {
    "StaticReshape",
    "StaticTranspose",
    "StaticSlice",
    "StaticConstantPad",
    "MaxPooling2d",
    "Clamp",
    "Copy",
    "Concatenate2",
    "Concatenate3",
    "Concatenate4",
    "Concatenate5",
}
_RESHAPERS = {"StaticReshape", "StaticTranspose"}


def is_quantize(node: Node) -> bool:
    """Real numbers to integers with known scale."""
    return (
        node.kind == "Convert"
        and isinstance(node.outputs[0].quant, PerTensor)
        and node.inputs[0] is not None
        and node.inputs[0].quant is None
    )


def is_dequantize(node: Node) -> bool:
    return (
        node.kind == "Convert"
        and node.outputs[0].quant is None
        and node.inputs[0] is not None
        and isinstance(node.inputs[0].quant, PerTensor)
    )


@declared(requires=(CLAMPS_ARE_FUSED,))
def move_quantization(graph: Graph) -> bool:
    if not any(isinstance(v.quant, PerTensor) for v in graph.values()) and not any(
        n.kind == "Dynamic" for n in graph.nodes
    ):
        return False
    _share_conversions(graph)
    _move_up(graph)
    _move_down(graph)
    _share_conversions(graph)
    return True


def _move_up(graph: Graph) -> None:
    producers = graph.producers()
    uses = Counter(v for n in graph.nodes for v in n.inputs if v is not None)
    before: dict[Node, list[Node]] = {}
    pending, done = list(graph.nodes), []
    while pending:
        node = pending.pop()
        movement = producers.get(node.inputs[0]) if is_quantize(node) else None  # type: ignore[arg-type]
        if movement is None or not _may_follow(movement, producers, uses):
            done.append(node)
            pending += before.pop(node, [])
            continue
        result = node.outputs[0]
        quant = result.quant
        assert isinstance(quant, PerTensor)
        made = before.setdefault(movement, [])
        for index, source in enumerate(movement.inputs):
            assert source is not None
            uses[source] -= 1
            if source.data is not None:
                movement.inputs[index] = _quantized(source, quant)
                continue
            integers = Value(source.dims, quant.dtype, quant=quant)
            convert = Node("Convert", [source], [integers], {}, None, node.origin)
            movement.inputs[index] = integers
            uses[source] += 1
            uses[integers] += 1
            producers[integers] = convert
            made.append(convert)
        movement.outputs = [result]
        producers[result] = movement
    graph.nodes = done[::-1]


def _may_follow(movement: Node, producers: dict[Value, Node], uses: Counter[Value]) -> bool:
    result = movement.outputs[0]
    if movement.kind not in DATA_MOVEMENT or uses[result] != 1 or result.output_index is not None:
        return False
    if movement.kind == "StaticSlice":
        # Converts more than it needs: only where it saves the floating point.
        source = producers.get(movement.inputs[0])  # type: ignore[arg-type]
        return source is not None and is_dequantize(source)
    return True


def _quantized(constant: Value, quant: PerTensor) -> Value:
    """The constant in integers of another kind."""
    assert constant.data is not None
    real = constant.data
    if constant.quant is not None:
        if constant.quant == quant:
            return constant
        real = dequantize(real, constant.quant, torch.float32)
    return Value(constant.dims, constant.dtype, data=quant.quantize(real), quant=quant)


def _move_down(graph: Graph) -> None:
    integers: dict[Value, Value] = {}
    """Of dequantized numbers, what they were dequantized from."""
    real: dict[Value, Value] = {}
    """Of what stands for numbers quantized at run time, the numbers."""
    same: dict[Value, Value] = {}
    nodes: list[Node] = []
    users = graph.users()
    for node in graph.nodes:
        node.inputs = [same.get(v, v) if v is not None else None for v in node.inputs]
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None
        if is_dequantize(node):
            integers[result] = source
        elif node.kind == "Dynamic":
            real[result] = source
        elif is_quantize(node) and source in integers:
            if _requantize(node, integers[source], same, nodes):
                continue
        elif node.kind in _RESHAPERS and source in real:
            moved = Value(result.dims, result.dtype)
            node.inputs, node.outputs = [real[source]], [moved]
            nodes.append(node)
            node = Node("Dynamic", [moved], [result], {}, None, node.origin)
            real[result] = moved
        elif result.quant is None and _may_move(node, users, integers):
            quant = _common_quant(node, integers)
            if quant is not None:
                node.inputs = _integer_inputs(node, integers, quant)
                moved = Value(result.dims, quant.dtype, quant=quant)
                node.outputs = [moved]
                nodes.append(node)
                node = Node("Convert", [moved], [result], {}, None, node.origin)
                integers[result] = moved
        nodes.append(node)
    graph.nodes = nodes


def _may_move(node: Node, users: dict[Value, list[Node]], integers: dict[Value, Value]) -> bool:
    return node.kind in DATA_MOVEMENT or _repeats(node) or _may_round(node, users, integers)


def _repeats(node: Node) -> bool:
    """A product with ones: that is how elements are repeated."""
    ones = node.inputs[1] if node.kind == "Multiply" else None
    return ones is not None and node.clamp is None and ones.number() == 1


def _integer_inputs(
    node: Node, integers: dict[Value, Value], quant: PerTensor
) -> list[Value | None]:
    found = [integers.get(v, v) for v in node.inputs if v is not None]
    if _repeats(node):
        ones = found[1]
        one = PerTensor(1.0, 0, quant.dtype)
        data = torch.ones(ones.dims, dtype=quant.dtype)
        found[1] = Value(ones.dims, ones.dtype, data=data, quant=one)
    return list(found)


def _may_round(node: Node, users: dict[Value, list[Node]], integers: dict[Value, Value]) -> bool:
    """A resize between quantizations: its result is rounded anyway. Half a step of the operand
    must be less than a step of the result."""
    if node.kind != "StaticResizeBilinear2D" or node.outputs[0].output_index is not None:
        return False
    source = integers.get(node.inputs[0])  # type: ignore[arg-type]
    if source is None or not isinstance(source.quant, PerTensor):
        return False
    widest = 1.8  # the rest is for XNNPACK's weights of 11 bits
    return all(
        is_quantize(reader) and source.quant.scale <= widest * _scale(reader.outputs[0])
        for reader in users.get(node.outputs[0], [])
    )


def _scale(value: Value) -> float:
    assert isinstance(value.quant, PerTensor)
    return value.quant.scale


def _requantize(node: Node, source: Value, same: dict[Value, Value], nodes: list[Node]) -> bool:
    """Integers from integers. Whether the node is dealt with."""
    result = node.outputs[0]
    old, new = source.quant, result.quant
    assert isinstance(old, PerTensor)
    assert isinstance(new, PerTensor)
    if old == new:
        if result.output_index is None:
            same[result] = source
            return True
        nodes.append(Node("Copy", [source], [result], {}, None, node.origin))
        return True
    if old.dtype == new.dtype and 2.0**-8 <= old.scale / new.scale < 2.0**7:
        node.inputs = [source]
    return False


def _common_quant(node: Node, integers: dict[Value, Value]) -> PerTensor | None:
    """The quantization of all operands, if they have one and the node can work in it."""
    found: Quant | None = None
    for value in node.inputs[:1] if _repeats(node) else node.inputs:
        assert value is not None
        stored = integers.get(value, value)
        if not isinstance(stored.quant, PerTensor) or (found is not None and stored.quant != found):
            return None
        found = stored.quant
    assert isinstance(found, PerTensor)
    numbers = list(node.clamp or ())
    if node.kind == "StaticConstantPad":
        padding = node.params["padding_value"]
        numbers.append(padding)
        if not found.low <= padding <= found.high:
            return None
    return found if all(math.isinf(n) or found.holds(n) for n in numbers) else None


def _share_conversions(graph: Graph) -> None:
    """One conversion for each value and type; nobody reads the others, which drop_dead drops."""
    known: dict[tuple[Value | None, Quant | None, torch.dtype, str], Value] = {}
    same: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = [same.get(v, v) if v is not None else None for v in node.inputs]
        result = node.outputs[0]
        if node.kind in ("Convert", "Dynamic") and result.output_index is None:
            key = (node.inputs[0], result.quant, result.dtype, node.kind)
            if key in known:
                same[result] = known[key]
            else:
                known[key] = result
