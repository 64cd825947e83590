"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Tensor
from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.lowering.table import (
    Constraint,
    Query,
    coarse_product,
    constant,
    define,
    equals,
    integer_weight,
    rank,
)
from edgewise.backends.neutron.operators.convolution import BIAS, FUSES
from edgewise.backends.neutron.tflite.model import Quantization
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BatchMatMulOptions,
    BuiltinOperator,
    FullyConnectedOptions,
)
from edgewise.edge.graph import dtype_name, fake, op_name
from edgewise.edge.orders import identity
from edgewise.quantize.patterns import Elementwise, Weighted

aten = torch.ops.aten


def _weights(node: Node) -> tuple[Node, bool]:
    """The dequantized matrix, and whether the node is its transpose."""
    if op_name(node) == "aten.permute_copy.default":
        source = node.args[0]
        assert isinstance(source, Node)
        return source, True
    return node, False


def _product(
    to: Lowering, node: Node, x: Node, weight: Node, bias: Node | None, rows_are_outputs: bool
) -> Real:
    source, transposed = _weights(weight)
    operand = to.tensor(x)
    data, scales, _ = to.weight_for(source, bias, operand.quant)
    if rows_are_outputs == transposed:
        data = data.T
    operand = to.in_order(operand, identity(len(operand.order)))
    shape = tuple(fake(node).shape)
    products = tuple(scale * operand.quant.scale for scale in scales)

    def emit(quant: Quant, activation: Activation) -> Tensor:
        own, sums = to.factors(scales, operand.quant, quant)
        kept = to.b.constant(source.name, data, Quantization(own, (0,) * len(own), 0))
        added = to.bias(bias, products, sums, data.shape[0])
        result = to.result(node, shape, identity(len(shape)), quant)
        options = FullyConnectedOptions(activation, keep_num_dims=len(shape) != 2)
        return to.add(BuiltinOperator.FULLY_CONNECTED, [operand, kept, added], result, options)

    return Computed(emit, FUSES)


def _linear(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return _product(to, node, args["input"], args["weight"], args["bias"], True)


def _addmm(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return _product(to, node, args["mat1"], args["mat2"], args["self"], False)


def _mm(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return _product(to, node, args["self"], args["mat2"], None, False)


def _matrix(name: str) -> tuple[Constraint, ...]:
    """A constant in int8, or its transpose, with a scale for each output at most."""

    def check(q: Query) -> str | None:
        source, transposed = _weights(q.args[name])
        if source not in q.constants:
            return f"{name} is computed by {source.name}"
        found = q.constants.integers(source)
        if found is None:
            return f"{name} in floating point"
        if found.data.dtype != torch.int8:
            return f"{name} in {dtype_name(found.data.dtype)}"
        if found.axis == (1 if transposed else 0):
            return f"{name} with scales along its inputs"
        return None

    return (Constraint(f"constant {name} in int8, symmetric", check, "NeutronQuantizer"),)


define(
    "linear",
    (aten.linear.default,),
    _linear,
    (
        constant("weight", "bias"),
        integer_weight("weight"),
        BIAS,
    ),
    keep=True,
    also="FULLY_CONNECTED",
    quantization=Weighted(one_scale=True),
)


def _addend(q: Query) -> str | None:
    node = q.args["self"]
    if node not in q.constants:
        return f"computed by {node.name}"
    shape = tuple(fake(node).shape)
    return None if shape in ((q.shape[1],), (1, q.shape[1])) else f"{list(shape)}"


define(
    "addmm",
    (aten.addmm.default,),
    _addmm,
    (
        rank("mat1", 2),
        *_matrix("mat2"),
        Constraint("a constant vector is added", _addend),
        equals("alpha", 1),
        equals("beta", 1),
    ),
    also="FULLY_CONNECTED",
    quantization=Weighted(one_scale=True, positions=(1, 2, 0)),
)
define(
    "mm",
    (aten.mm.default,),
    _mm,
    (rank("self", 2), *_matrix("mat2")),
    also="FULLY_CONNECTED",
    quantization=Weighted(one_scale=True),
)


def _bmm(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    a, b = (to.tensor(args[name]) for name in ("self", "mat2"))
    a = to.in_order(a, identity(3))
    swapped = b.order == (0, 2, 1)
    if not swapped:
        b = to.in_order(b, identity(3))
    shape = tuple(fake(node).shape)

    def emit(quant: Quant, _: Activation) -> Tensor:
        result = to.result(node, shape, identity(3), quant)
        return to.add(
            BuiltinOperator.BATCH_MATMUL, [a, b], result, BatchMatMulOptions(False, swapped)
        )

    return Computed(emit)


def _no_zero_points(q: Query) -> str | None:
    for name in ("self", "mat2"):
        quant = q.quant(q.args[name])
        if quant is not None and quant.zero_point:
            return f"{name} with {quant.zero_point}"
    return None


define(
    "bmm",
    (aten.bmm.default,),
    _bmm,
    (
        rank("self", 3),
        Constraint(
            "operands with a zero point of 0",
            _no_zero_points,
            "NeutronQuantizer, which quantizes them symmetrically",
        ),
        coarse_product("self", "mat2"),
    ),
    also="BATCH_MATMUL",
    quantization=dict.fromkeys(
        (aten.bmm.default, aten.matmul.default), Elementwise(symmetric=True)
    ),
)
