"""Operators on two tensors, with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering import Computed, Lowering, Real, Tensor, tflite
from edgewise.backends.neutron.quantized import Quant
from edgewise.backends.neutron.table import (
    PADDED_HINT,
    SAME_QUANTIZATION,
    Constraint,
    OpRow,
    Query,
    add_row,
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
    other = args["other"]
    second = to.tensor(other) if isinstance(other, Node) else _number(to, node, other, len(shape))
    a, b = to.aligned([to.tensor(args["self"]), second], len(shape))

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
    quant = Quant(scale, 0, torch.int8, -128, 127)
    made = to.b.constant(f"{node.name}_number", stored, tflite(quant))
    return Tensor(made, identity(rank), quant)


def _finite(q: Query) -> str | None:
    other = q.args["other"]
    if isinstance(other, Node):
        return None
    # Of the reciprocal, too, there must be a scale in float32.
    divides = q.node.target is aten.div.Scalar
    is_so = math.isfinite(other) and (other == 0 or _LEAST < abs(other) < _MOST)
    return None if is_so and not (divides and other == 0) else f"other={other}"


def _one_has_all(q: Query) -> str | None:
    """One of the operands is as large as the result."""
    if not isinstance(q.args["other"], Node):
        return None
    a, b = q.shape_of("self"), q.shape_of("other")
    if math.prod(q.shape) in (math.prod(a), math.prod(b)):
        return None
    return f"{list(a)} and {list(b)}"


def _alpha(q: Query) -> str | None:
    return None if q.args.get("alpha", 1) == 1 else f"alpha={q.args['alpha']}"


def _size(q: Query) -> str | None:
    return padded(q, [math.prod(q.shape)])


_TENSORS = (
    Constraint("a tensor, or a finite number", _finite),
    Constraint("one operand has the result's size", _one_has_all),
)
_ALPHA = Constraint("alpha=1", _alpha)
_MULTIPLE = Constraint(
    "a number of elements that the target's multiply-accumulates divide (converters before 2026)",
    _size,
    PADDED_HINT,
)

for _name, _targets, _code, _rules in (
    ("add", (aten.add.Tensor, aten.add.Scalar), BuiltinOperator.ADD, (*_TENSORS, _ALPHA)),
    ("sub", (aten.sub.Tensor, aten.sub.Scalar), BuiltinOperator.SUB, (*_TENSORS, _ALPHA)),
    ("mul", (aten.mul.Tensor, aten.mul.Scalar), BuiltinOperator.MUL, (*_TENSORS, _MULTIPLE)),
    ("maximum", (aten.maximum.default,), BuiltinOperator.MAXIMUM, (*_TENSORS, SAME_QUANTIZATION)),
    ("minimum", (aten.minimum.default,), BuiltinOperator.MINIMUM, (*_TENSORS, SAME_QUANTIZATION)),
):

    def _binary(
        to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator = _code
    ) -> Real:
        return _lower(to, node, args, code)

    add_row(OpRow(_name, _targets, _binary, _rules, tflite=_code.name))

add_row(
    OpRow(
        "div",
        (aten.div.Scalar,),
        _div,
        (Constraint("a finite number, not 0", _finite), _MULTIPLE),
        tflite="MUL by the reciprocal",
    )
)
