"""Operators on two tensors, with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Tensor, tflite
from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.lowering.table import (
    PADDED_HINT,
    SAME_QUANTIZATION,
    Constraint,
    Query,
    coarse_product,
    define,
    padded,
)
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    AddOptions,
    BuiltinOperator,
    MulOptions,
    SubOptions,
)
from edgewise.edge.orders import identity
from edgewise.flatbuffer import Table
from edgewise.quantize.patterns import BINARY, Joined

aten = torch.ops.aten
_STEPS = 127
_LEAST, _MOST = 1e-30, 1e30
_FUSES = (Activation.NONE, Activation.RELU, Activation.RELU_N1_TO_1, Activation.RELU6)


def _options(code: BuiltinOperator, activation: Activation) -> Table | None:
    if code == BuiltinOperator.ADD:
        return AddOptions(activation, pot_scale_int16=False)
    if code == BuiltinOperator.SUB:
        return SubOptions(activation, pot_scale_int16=False)
    return MulOptions(activation) if code == BuiltinOperator.MUL else None


def _lower(to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator) -> Real:
    shape = tuple(node.meta["val"].shape)
    operands = (args["self"], args["other"])
    given = [
        to.tensor(x) if isinstance(x, Node) else _number(to, node, x, len(shape)) for x in operands
    ]
    a, b = to.aligned(given, len(shape))

    def emit(quant: Quant, activation: Activation) -> Tensor:
        result = to.result(node, shape, a.order, quant)
        return to.add(code, [a, b], result, _options(code, activation))

    fuses = _FUSES if _options(code, Activation.NONE) is not None else (Activation.NONE,)
    return Computed(emit, fuses)


def _div(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return _lower(to, node, args | {"other": 1 / args["other"]}, BuiltinOperator.MUL)


def _number(to: Lowering, node: Node, value: float, rank: int) -> Tensor:
    """The number as a tensor of one element: 127 steps of its own size."""
    scale = abs(value) / _STEPS if value else 1.0
    stored = np.full((1,) * rank, int(math.copysign(_STEPS, value)) if value else 0, np.int8)
    quant = Quant(scale, 0, -128, 127, torch.int8)
    made = to.b.constant(f"{node.name}_number", stored, tflite(quant))
    return Tensor(made, identity(rank), quant)


def _finite(q: Query) -> str | None:
    for name in ("self", "other"):
        value = q.args[name]
        if isinstance(value, Node):
            continue
        # Of the reciprocal, too, there must be a scale in float32.
        divides = q.node.target is aten.div.Scalar
        is_so = math.isfinite(value) and (value == 0 or _LEAST < abs(value) < _MOST)
        if not is_so or (divides and value == 0):
            return f"{name}={value}"
    return None


def _one_has_all(q: Query) -> str | None:
    """One of the operands is as large as the result."""
    if not all(isinstance(q.args[name], Node) for name in ("self", "other")):
        return None
    a, b = q.shape_of("self"), q.shape_of("other")
    if math.prod(q.shape) in (math.prod(a), math.prod(b)):
        return None
    return f"{list(a)} and {list(b)}"


def _quantized(q: Query) -> str | None:
    for name in ("self", "other"):
        value = q.args[name]
        is_constant = isinstance(value, Node) and value in q.constants
        if is_constant and not q.constants.is_dequantized(value):
            return f"{value.name} in floating point"
    return None


def _alpha(q: Query) -> str | None:
    return None if q.args.get("alpha", 1) == 1 else f"alpha={q.args['alpha']}"


def _steps(q: Query) -> str | None:
    """LiteRT adds in 2**-20 of twice the larger operand's step, and ends if the result's is
    smaller."""
    found = [q.quant(x) if isinstance(x, Node) else None for x in (q.args["self"], q.args["other"])]
    largest = max((quant.scale for quant in found if quant is not None), default=0.0)
    return None if largest < 2.0**19 * q.result.scale else f"{largest:g} and {q.result.scale:g}"


def _size(q: Query) -> str | None:
    return padded(q, [math.prod(q.shape)])


_SIZE = Constraint("one operand has the result's size", _one_has_all)
_QUANTIZED = Constraint("constants that are quantized", _quantized, "NeutronQuantizer")
_OPERANDS = (Constraint("a tensor, or a finite number", _finite), _SIZE, _QUANTIZED)
_ALPHA = Constraint("alpha=1", _alpha)
_STEPS_OF_SUMS = Constraint("operands whose scales are below 2**19 of the result's", _steps)
_MULTIPLE = Constraint(
    "a number of elements that the target's multiply-accumulates divide (converters before 2026)",
    _size,
    PADDED_HINT,
)

_JOINED = Joined((0, 1))

for _name, _targets, _code, _rules, _patterns in (
    (
        "add",
        (aten.add.Tensor, aten.add.Scalar),
        BuiltinOperator.ADD,
        (*_OPERANDS, _ALPHA, _STEPS_OF_SUMS),
        {aten.add.Tensor: BINARY},
    ),
    (
        "sub",
        (aten.sub.Tensor, aten.sub.Scalar),
        BuiltinOperator.SUB,
        (*_OPERANDS, _ALPHA, _STEPS_OF_SUMS),
        {aten.sub.Tensor: BINARY, aten.rsub.Scalar: BINARY},
    ),
    (
        "mul",
        (aten.mul.Tensor, aten.mul.Scalar),
        BuiltinOperator.MUL,
        (*_OPERANDS, _MULTIPLE, coarse_product("self", "other")),
        {aten.mul.Tensor: BINARY},
    ),
    (
        "maximum",
        (aten.maximum.default,),
        BuiltinOperator.MAXIMUM,
        (_SIZE, _QUANTIZED, SAME_QUANTIZATION),
        {aten.maximum.default: _JOINED},
    ),
    (
        "minimum",
        (aten.minimum.default,),
        BuiltinOperator.MINIMUM,
        (_SIZE, _QUANTIZED, SAME_QUANTIZATION),
        {aten.minimum.default: _JOINED},
    ),
):

    def _binary(
        to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator = _code
    ) -> Real:
        return _lower(to, node, args, code)

    define(_name, _targets, _binary, _rules, also=_code.name, quantization=_patterns)

define(
    "div",
    (aten.div.Scalar,),
    _div,
    (Constraint("a finite number, not 0", _finite), _MULTIPLE),
    also="MUL by the reciprocal",
    quantization={aten.div.Tensor: BINARY},
)
