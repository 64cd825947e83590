"""Operators on two tensors, with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering import Computed, Lowering, Real, Tensor
from edgewise.backends.neutron.quantized import Quant
from edgewise.backends.neutron.table import (
    SAME_QUANTIZATION,
    Constraint,
    OpRow,
    Query,
    add_row,
)
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    AddOptions,
    BuiltinOperator,
    MulOptions,
    SubOptions,
)
from edgewise.flatbuffer import Table

aten = torch.ops.aten
_FUSES = (Activation.NONE, Activation.RELU, Activation.RELU_N1_TO_1, Activation.RELU6)


def _options(code: BuiltinOperator, activation: Activation) -> Table | None:
    if code == BuiltinOperator.ADD:
        return AddOptions(activation, pot_scale_int16=False)
    if code == BuiltinOperator.SUB:
        return SubOptions(activation, pot_scale_int16=False)
    return MulOptions(activation) if code == BuiltinOperator.MUL else None


def _lower(to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator) -> Real:
    shape = tuple(node.meta["val"].shape)
    a, b = to.aligned([to.tensor(args["self"]), to.tensor(args["other"])], len(shape))

    def emit(quant: Quant, activation: Activation) -> Tensor:
        result = to.result(node, shape, a.order, quant)
        return to.add(code, [a, b], result, _options(code, activation))

    fuses = _FUSES if _options(code, Activation.NONE) is not None else (Activation.NONE,)
    return Computed(emit, fuses)


def _two_tensors(q: Query) -> str | None:
    for name in ("self", "other"):
        if not isinstance(q.args[name], Node):
            return f"{name}={q.args[name]}"
    return None


def _one_has_all(q: Query) -> str | None:
    """One of the operands is as large as the result."""
    a, b = q.shape_of("self"), q.shape_of("other")
    if math.prod(q.shape) in (math.prod(a), math.prod(b)):
        return None
    return f"{list(a)} and {list(b)}"


def _alpha(q: Query) -> str | None:
    return None if q.args.get("alpha", 1) == 1 else f"alpha={q.args['alpha']}"


def _size(q: Query) -> str | None:
    macs = q.rules.target.macs
    if q.rules.padded_channels or macs is None or math.prod(q.shape) % macs == 0:
        return None
    return f"{math.prod(q.shape)} elements, and {macs} for {q.rules.target.name}"


_TENSORS = (
    Constraint("two tensors", _two_tensors, "a buffer instead of the number"),
    Constraint("one operand has the result's size", _one_has_all),
)
_ALPHA = Constraint("alpha=1", _alpha)
_MULTIPLE = Constraint(
    "a number of elements that the target's multiply-accumulates divide (converters before 2026)",
    _size,
    "a newer converter (eiq_neutron_sdk)",
)

for _name, _target, _code, _rules in (
    ("add", aten.add.Tensor, BuiltinOperator.ADD, (*_TENSORS, _ALPHA)),
    ("sub", aten.sub.Tensor, BuiltinOperator.SUB, (*_TENSORS, _ALPHA)),
    ("mul", aten.mul.Tensor, BuiltinOperator.MUL, (*_TENSORS, _MULTIPLE)),
    ("maximum", aten.maximum.default, BuiltinOperator.MAXIMUM, (*_TENSORS, SAME_QUANTIZATION)),
    ("minimum", aten.minimum.default, BuiltinOperator.MINIMUM, (*_TENSORS, SAME_QUANTIZATION)),
):

    def _binary(
        to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator = _code
    ) -> Real:
        return _lower(to, node, args, code)

    add_row(OpRow(_name, (_target,), _binary, _rules, tflite=_code.name))
