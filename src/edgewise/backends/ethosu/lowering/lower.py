"""From a program's nodes to a TOSA graph, by their definitions."""

from __future__ import annotations

from collections import Counter

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.constants import IntegerConstants
from edgewise.backends.ethosu.lowering.quant import TYPES, Quant, ScaleOutOfReach
from edgewise.backends.ethosu.lowering.table import Lowering, Refused, Value
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, Tensor, Tosa
from edgewise.backends.ethosu.lowering.values import Real, Stored
from edgewise.backends.ethosu.operators import TABLE
from edgewise.edge.graph import arguments, fake, is_call, is_getitem, op_name
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import at_node, internal_errors
from edgewise.edge.program import output_node
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.errors import PartitionError
from edgewise.partition.following import AT_THE_BORDER
from edgewise.partition.spec import Refusal

_TYPES_OF_REALS = "quantized to int8 or int16"
_AROUND_ZERO = "16-bit values around zero"
UNFIT = (_TYPES_OF_REALS, _AROUND_ZERO)
"""Rules of quantizations themselves."""


def input_tensor(b: Builder, node: Node) -> Tensor:
    """An input of the graph, lying in memory as the program's does."""
    value = fake(node)
    if value.dtype not in TYPES:
        kind = str(value.dtype).removeprefix("torch.")
        raise Refused(Refusal("tensors of integers with 8, 16 or 32 bits", f"{node.name}: {kind}"))
    order = dim_order(value)
    return b.tosa.input([int(value.shape[d]) for d in order], TYPES[value.dtype], order)


def lower_node(to: Lowering, node: Node) -> Value | tuple[Value, ...]:
    """What the node computes. Raises Refused."""
    if is_quantize(node):
        quant = _checked(Quant.of(node), node)
        source = node.args[0]
        if source not in to.done and source not in to.constants:
            raise Refused(Refusal(AT_THE_BORDER, str(source)))
        real = to.value(source)
        if not isinstance(real, Real):
            raise Refused(Refusal("real numbers are quantized", f"{node.args[0]}: integers"))
        try:
            return real.quantized(to.b, quant)
        except ValueError as error:  # a table's, or a scale out of reach
            raise Refused(Refusal(str(error))) from error
    if is_dequantize(node):
        return Stored(to.plain(node.args[0]), _checked(Quant.of(node), node))
    if is_getitem(node):
        found = to.done.get(node.args[0])  # type: ignore[arg-type]
        index = node.args[1]
        if not isinstance(found, tuple) or not isinstance(index, int) or index >= len(found):
            raise Refused(Refusal("a result that is delegated", f"item {index}"))
        return found[index]
    definition = TABLE.of(node)
    if definition is None:
        raise Refused(Refusal("an operator of the Ethos-U table", op_name(node)))
    if not definition.int16:
        for operand in node.all_input_nodes:
            value = to.done.get(operand)
            if isinstance(value, Stored) and value.quant.type == INT16:
                rule = f"{definition.name} of 8-bit operands"
                raise Refused(Refusal(rule, f"{operand.name}: int16"))
    with internal_errors(f"lowering {definition.name} for Ethos-U", node):
        try:
            return definition.lower(to, node, arguments(node))
        except ScaleOutOfReach as error:
            raise Refused(Refusal(str(error))) from error


def _checked(quant: Quant, node: Node) -> Quant:
    kind = str(quant.dtype).removeprefix("torch.")
    if TYPES.get(quant.dtype) not in (INT8, INT16):
        raise Refused(Refusal(_TYPES_OF_REALS, kind))
    if TYPES[quant.dtype] == INT16 and quant.zero_point:
        raise Refused(Refusal(_AROUND_ZERO, f"zero_point={quant.zero_point}"))
    return quant


def build(program: ExportedProgram, family: str) -> Tosa:
    """The graph of a partition: inputs and outputs in the program's order and layout.

    family: of processors (`Target.family`), some of which have operators that others have not.
    """
    constants = IntegerConstants(program)
    builder = Builder(family)
    to = Lowering(builder, constants, family)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node not in constants:
            to.done[node] = input_tensor(builder, node)
        elif is_call(node) and node not in constants:
            builder.tosa.origin = node.name
            try:
                made = to.done[node] = lower_node(to, node)
            except Refused as refused:
                raise PartitionError(
                    f"{at_node(node)} {refused}; try a partitioner that tags what "
                    f"EthosUPartitioner accepts"
                ) from refused
            _check_shape(node, made)
    builder.tosa.origin = ""
    results: list[Node] = list(output_node(program.graph).args[0])  # type: ignore[arg-type]
    lying = [builder.in_order(to.plain(n), dim_order(fake(n))) for n in results]
    # Vela drops results that are another one, or an input, in another shape or order.
    sources = Counter([*(t.name for t in builder.tosa.inputs), *map(builder.source, lying)])
    for tensor in lying:
        alone = sources[builder.source(tensor)] == 1
        builder.tosa.output(tensor if alone else builder.written(tensor))
    return builder.tosa


def _check_shape(node: Node, made: Value | tuple[Value, ...]) -> None:
    """A definition that lowers to another shape than torch's is wrong."""
    values = node.meta["val"]
    pairs = zip(values, made, strict=False) if isinstance(made, tuple) else [(values, made)]
    for value, found in pairs:
        if not isinstance(value, torch.Tensor):
            continue
        if isinstance(found, Tensor) and TYPES.get(value.dtype, found.dtype) != found.dtype:
            raise PartitionError(
                f"{at_node(node)} a definition must lower to the operator's type; "
                f"got {found.dtype} for {value.dtype}"
            )
        if tuple(found.shape) != tuple(value.shape):
            raise PartitionError(
                f"{at_node(node)} a definition must lower to the operator's shape; "
                f"got {tuple(found.shape)} for {tuple(value.shape)}"
            )
