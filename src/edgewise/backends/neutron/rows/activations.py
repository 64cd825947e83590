"""Functions of one tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering import Computed, Lowering, Real, Stored, Tensor
from edgewise.backends.neutron.quantized import Quant, is_dequantize
from edgewise.backends.neutron.table import (
    SAME_QUANTIZATION,
    Constraint,
    OpRow,
    Query,
    add_row,
    along_dim,
    integer_weight,
)
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    LeakyReluOptions,
    SoftmaxOptions,
    SubOptions,
)
from edgewise.flatbuffer import Table

aten = torch.ops.aten

_INFINITY = math.inf
_CLAMPS = {
    (0.0, _INFINITY): (BuiltinOperator.RELU, Activation.RELU),
    (0.0, 6.0): (BuiltinOperator.RELU6, Activation.RELU6),
    (-1.0, 1.0): (BuiltinOperator.RELU_N1_TO_1, Activation.RELU_N1_TO_1),
    (0.0, 1.0): (BuiltinOperator.RELU_0_TO_1, None),
}
"""Bounds that TFLite has an operator for, and what other operators call it as a part of them."""


def bounds(args: dict[str, Any]) -> tuple[float, float]:
    """Of relu, hardtanh and clamp."""
    low = args.get("min_val", args.get("min", 0.0))
    high = args.get("max_val", args.get("max", _INFINITY))
    return (
        -_INFINITY if low is None else float(low),
        _INFINITY if high is None else float(high),
    )


def elementwise(
    to: Lowering, node: Node, code: BuiltinOperator, options: Table | None = None
) -> Computed:
    """One operator from the stored operand to the result."""
    x = to.tensor(node.args[0])

    def emit(quant: Quant, _: Activation) -> Tensor:
        return to.add(code, [x], to.result(node, x.shape, x.order, quant), options)

    return Computed(emit)


def _clamp(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    low, high = bounds(args)
    code, fused = _CLAMPS.get((low, high), (None, None))
    value = to.real(args["self"])
    if isinstance(value, Stored):
        if code is not None:
            return elementwise(to, node, code)
        return Computed(lambda quant, _: _cut(to, node, value.tensor, quant, low, high))
    if fused is not None and fused in value.fuses:
        return Computed(lambda quant, _: value.emit(quant, fused))

    def emit(quant: Quant, _: Activation) -> Tensor:
        x = value.quantized(quant)
        if code is None:
            return _cut(to, node, x, quant, low, high)
        return to.add(code, [x], to.result(node, x.shape, x.order, quant))

    return Computed(emit)


def _cut(to: Lowering, node: Node, x: Tensor, quant: Quant, low: float, high: float) -> Tensor:
    for code, bound in ((BuiltinOperator.MAXIMUM, low), (BuiltinOperator.MINIMUM, high)):
        if math.isinf(bound):
            continue
        number = np.full((1,) * len(x.order), quant.stored(bound), np.int8)
        value = to.b.constant(f"{node.name}_bound", number, x.value.quantization)
        x = to.add(code, [x, value], to.result(node, x.shape, x.order, quant))
    return x


def _has_a_bound(q: Query) -> str | None:
    return "no bound" if all(map(math.isinf, bounds(q.args))) else None


def _quantized_alike_if_cut(q: Query) -> str | None:
    """MAXIMUM and MINIMUM do not rescale; behind another operator nothing has to be."""
    if bounds(q.args) in _CLAMPS or not is_dequantize(q.args["self"]):
        return None
    quant = Quant.of(q.args["self"])
    return None if quant == q.result else f"{quant} and {q.result}"


for _name, _targets in (
    ("relu", (aten.relu.default,)),
    ("hardtanh", (aten.hardtanh.default, aten.relu6.default)),
    ("clamp", (aten.clamp.default,)),
):
    add_row(
        OpRow(
            _name,
            tuple(_targets),
            _clamp,
            (
                Constraint("a lower or an upper bound", _has_a_bound),
                Constraint(
                    "bounds (0, inf), (0, 6), (-1, 1) or (0, 1), or operand and result quantized "
                    "alike",
                    _quantized_alike_if_cut,
                    "NeutronQuantizer, which shares the scale",
                ),
            ),
            clamps=True,
            idle=True,
            tflite="RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, else MAXIMUM and MINIMUM",
        )
    )

for _name, _target, _code in (
    ("abs", aten.abs.default, BuiltinOperator.ABS),
    ("exp", aten.exp.default, BuiltinOperator.EXP),
    ("log", aten.log.default, BuiltinOperator.LOG),
    ("sigmoid", aten.sigmoid.default, BuiltinOperator.LOGISTIC),
    ("tanh", aten.tanh.default, BuiltinOperator.TANH),
):

    def _one(to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator = _code) -> Real:
        return elementwise(to, node, code)

    _fixed = {
        BuiltinOperator.LOGISTIC: (1 / 256, -128),
        BuiltinOperator.TANH: (1 / 128, 0),
    }.get(_code)

    def _is_fixed(q: Query, fixed: tuple[float, int] | None = _fixed) -> str | None:
        if fixed is None or (q.result.scale, q.result.zero_point) == fixed:
            return None
        return str(q.result)

    add_row(
        OpRow(
            _name,
            (_target,),
            _one,
            ()
            if _fixed is None
            else (
                Constraint(
                    f"a result with the scale 1/{round(1 / _fixed[0])} "
                    f"and the zero point {_fixed[1]}",
                    _is_fixed,
                    "NeutronQuantizer, which fixes it",
                ),
            ),
            tflite=_code.name,
        )
    )


def _leaky_relu(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    options = LeakyReluOptions(float(args["negative_slope"]))
    return elementwise(to, node, BuiltinOperator.LEAKY_RELU, options)


add_row(OpRow("leaky_relu", (aten.leaky_relu.default,), _leaky_relu, tflite="LEAKY_RELU"))


def _prelu(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["self"])
    slope = to.tensor(args["weight"])
    if slope.value.shape != (1,) and len(x.order) > 1:
        ones = [1] * len(x.order)
        ones[1] = slope.value.shape[0]
        slope = to.reshape(slope, ones, f"{node.name}_slope")
        slope = to.in_order(slope, x.order)
    made: Real = Computed(
        lambda quant, _: to.add(
            BuiltinOperator.PRELU, [x, slope], to.result(node, x.shape, x.order, quant)
        )
    )
    return made


add_row(
    OpRow(
        "prelu",
        (aten.prelu.default,),
        _prelu,
        (integer_weight("weight", per_channel=False),),
        keep=True,
        tflite="PRELU",
    )
)


def _neg(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["self"])
    zero = np.full((1,) * len(x.order), x.quant.zero_point, np.int8)
    nothing = to.b.constant(f"{node.name}_zero", zero, x.value.quantization)
    made: Real = Computed(
        lambda quant, _: to.add(
            BuiltinOperator.SUB,
            [nothing, x],
            to.result(node, x.shape, x.order, quant),
            SubOptions(pot_scale_int16=False),
        )
    )
    return made


add_row(OpRow("neg", (aten.neg.default,), _neg, tflite="SUB from zero"))


def _softmax(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["self"])
    rank = len(x.order)
    dim = args["dim"] % rank
    # TFLite sums over the last dimension.
    order = tuple(d for d in x.order if d != dim)
    x = to.in_order(x, (*order, dim))
    made: Real = Computed(
        lambda quant, _: to.add(
            BuiltinOperator.SOFTMAX,
            [x],
            to.result(node, x.shape, x.order, quant),
            SoftmaxOptions(1.0),
        )
    )
    return made


def _softmax_result(q: Query) -> str | None:
    fixed = (q.result.scale, q.result.zero_point) == (1 / 256, -128)
    return None if fixed else str(q.result)


def _softmax_dim(q: Query) -> str | None:
    rank = len(q.shape)
    allowed = {1, rank - 1} if rank == 4 else {rank - 1}
    dim = q.args["dim"] % rank if rank else 0
    return None if dim in allowed else f"dim={q.args['dim']} of {rank}-D"


def _softmax_sizes(q: Query) -> str | None:
    from edgewise.backends.neutron.targets import SOFTMAX_POSITIONS_LIMIT, SOFTMAX_SIZE_LIMIT

    target = q.rules.target
    assert target.macs is not None
    assert target.pipes is not None
    size = q.shape[q.args["dim"]]
    rows = math.prod(q.shape) // max(size, 1)
    if size % target.macs:
        return f"{size} channels, no multiple of {target.macs}"
    if size >= 4096 / target.pipes * 4:
        return f"{size} channels, not below {4096 // target.pipes * 4}"
    if rows > SOFTMAX_POSITIONS_LIMIT:
        return f"{rows} rows, above {SOFTMAX_POSITIONS_LIMIT}"
    if size * rows / target.macs > SOFTMAX_SIZE_LIMIT:
        return f"{size * rows} elements, above {SOFTMAX_SIZE_LIMIT * target.macs}"
    return None


def _at_least_2d(q: Query) -> str | None:
    return None if len(q.shape) >= 2 else f"{len(q.shape)}-D"


add_row(
    OpRow(
        "softmax",
        (aten._softmax.default,),
        _softmax,
        (
            Constraint("at least two dimensions", _at_least_2d),
            Constraint("dim is the last dimension, or the channels of an image", _softmax_dim),
            Constraint("sizes within the target's limits", _softmax_sizes),
            Constraint(
                "a result with the scale 1/256 and the zero point -128",
                _softmax_result,
                "NeutronQuantizer, which fixes it",
            ),
        ),
        along=along_dim,
        tflite="SOFTMAX",
    )
)

__all__ = ["SAME_QUANTIZATION", "bounds", "elementwise"]
