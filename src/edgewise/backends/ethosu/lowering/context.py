"""What Ethos-U's definitions are given to lower a node."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.quant import TYPES, Quant, ScaleOutOfReach
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, Tensor
from edgewise.backends.ethosu.lowering.values import Constant, Real, Stored
from edgewise.edge.graph import dtype_name, fake, is_getitem, op_name, tensors_of
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.layout import dim_order
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators import OperatorTable, lowering
from edgewise.operators.lowering import Refused
from edgewise.partition.following import AT_THE_BORDER
from edgewise.partition.spec import Refusal

Value = Real | Tensor

_TYPES_OF_REALS = "quantized to int8 or int16"
_AROUND_ZERO = "16-bit values around zero"
UNFIT = (_TYPES_OF_REALS, _AROUND_ZERO)
"""Rules of quantizations themselves."""


QUANTIZE_IT = (
    "edgewise.compile(..., quantize='int8', calibration=...), or EthosUQuantizer with prepare_pt2e"
)


def not_quantized(node: Node, reader: str) -> Refused:
    tensors = tensors_of(node)
    if tensors and not any(t.is_floating_point() for t in tensors):
        dtype = dtype_name(tensors[0].dtype)
        return Refused(Refusal(f"operands of {reader} are quantized", f"{node.name}: {dtype}"))
    got = f"floating point from {_said(node)}"
    return Refused(Refusal(f"operands of {reader} are quantized", got, QUANTIZE_IT))


def _said(node: Node) -> str:
    """What computes a value, in the reader's words."""
    if is_getitem(node) and isinstance(node.args[0], Node):
        return op_name(node.args[0])
    return "outside" if node.op == "placeholder" else op_name(node)


class Lowering(lowering.Lowering[Builder, IntegerConstants, Value]):
    """Nodes become operators of the builder's TOSA graph, for a family of processors."""

    backend = "Ethos-U"
    partitioner = "EthosUPartitioner"

    def __init__(self, builder: Builder, constants: IntegerConstants, family: str) -> None:
        super().__init__(builder, constants)
        self.family = family

    def value(self, node: Any) -> Value:
        """The argument; a constant or a number as real numbers."""
        if not isinstance(node, Node):
            return Constant(torch.tensor(float(node)))
        if node in self.constants:
            return self._constant(node)
        found = self.done.get(node)
        if found is None:
            raise not_quantized(node, "what runs on the NPU")
        assert not isinstance(found, tuple)
        return found

    def _constant(self, node: Node) -> Value:
        weight = self.constants.integers(node)
        if weight is not None and weight.axis is None:
            quant = Quant.of(node)
            if TYPES.get(quant.dtype) in (INT8, INT16):
                return Stored(self.b.const(weight.data.numpy(), quant.type), quant)
        tensor = self.constants.tensor(node)
        if not tensor.is_floating_point():
            if tensor.dtype not in TYPES:
                kind = dtype_name(tensor.dtype)
                raise Refused(Refusal("integers of 8, 16 or 32 bits", f"{node.name}: {kind}"))
            return self.b.const(tensor.numpy(), TYPES[tensor.dtype])
        return Constant(tensor)

    def real(self, node: Any) -> Real:
        found = self.value(node)
        if not isinstance(found, Real):
            raise Refused(Refusal("operands are quantized real numbers", f"{node}: integers"))
        return found

    def plain(self, node: Any) -> Tensor:
        """An operand that is no real number: indices, conditions."""
        found = self.value(node)
        if not isinstance(found, Tensor):
            raise Refused(Refusal("operands are integers or booleans", f"{node}: real numbers"))
        return found

    def stored(self, node: Any) -> Stored:
        """An operand that was dequantized; a constant in floating point as 16 bits."""
        found = self.real(node)
        if isinstance(found, Constant):
            return found.stored(self.b)
        if not isinstance(found, Stored):
            raise not_quantized(node, "this operator")
        return found

    def input(self, node: Node) -> Tensor:
        """Lying in memory as the program's does."""
        value = fake(node)
        if value.dtype not in TYPES:
            kind = dtype_name(value.dtype)
            rule = "tensors of integers with 8, 16 or 32 bits"
            raise Refused(Refusal(rule, f"{node.name}: {kind}"))
        order = dim_order(value)
        return self.b.tosa.input([int(value.shape[d]) for d in order], TYPES[value.dtype], order)

    def begin(self, number: int, node: Node) -> None:
        """See `lowering.Lowering`."""
        self.b.tosa.origin = node.name

    def lower(self, node: Node, table: OperatorTable[..., Any]) -> Value | tuple[Value, ...]:
        """See `lowering.Lowering`; what quantizes and dequantizes has no definition."""
        if is_dequantize(node):
            return Stored(self.plain(node.args[0]), _checked(Quant.of(node), node))
        if not is_quantize(node):
            return super().lower(node, table)
        quant = _checked(Quant.of(node), node)
        source = node.args[0]
        if source not in self.done and source not in self.constants:
            raise Refused(Refusal(AT_THE_BORDER, str(source)))
        real = self.value(source)
        if not isinstance(real, Real):
            raise Refused(Refusal("real numbers are quantized", f"{source}: integers"))
        try:
            return real.quantized(self.b, quant)
        except ValueError as error:  # a table's, or a scale out of reach
            raise Refused(Refusal(str(error))) from error

    def call(self, definition: Any, node: Node) -> Value | tuple[Value, ...]:
        """See `lowering.Lowering`."""
        for operand in [] if definition.int16 else node.all_input_nodes:
            value = self.done.get(operand)
            if isinstance(value, Stored) and value.quant.type == INT16:
                rule = f"{definition.name} of 8-bit operands"
                raise Refused(Refusal(rule, f"{operand.name}: int16"))
        try:
            return super().call(definition, node)
        except ScaleOutOfReach as error:
            raise Refused(Refusal(str(error))) from error

    def difference(self, value: Any, made: Value) -> str:
        """In type or shape."""
        if not isinstance(value, torch.Tensor):
            return ""
        if isinstance(made, Tensor) and TYPES.get(value.dtype, made.dtype) != made.dtype:
            return f"type; got {made.dtype} for {value.dtype}"
        shape, want = tuple(made.shape), tuple(value.shape)
        return "" if shape == want else f"shape; got {shape} for {want}"


def _checked(quant: Quant, node: Node) -> Quant:
    kind = dtype_name(quant.dtype)
    if TYPES.get(quant.dtype) not in (INT8, INT16):
        raise Refused(Refusal(_TYPES_OF_REALS, kind))
    if TYPES[quant.dtype] == INT16 and quant.zero_point:
        raise Refused(Refusal(_AROUND_ZERO, f"zero_point={quant.zero_point}"))
    return quant
