"""Functions of one tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Stored, Tensor
from edgewise.backends.neutron.lowering.quantized import Cluster, Quant
from edgewise.backends.neutron.lowering.table import (
    SAME_QUANTIZATION,
    Constraint,
    Query,
    coarse_product,
    coarse_result,
    define,
    fine_operand,
    integer_weight,
)
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    HardSwishOptions,
    LeakyReluOptions,
    SubOptions,
)
from edgewise.edge.graph import arguments
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.flatbuffer import Table
from edgewise.partition.constraints import HAS_DIMS
from edgewise.quantize.patterns import (
    MINUS_ONE_TO_ONE,
    SAME_SCALE,
    UNARY,
    ZERO_TO_ONE,
    Fixed,
    Weighted,
)

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


def cuts(node: Node, cluster: Cluster) -> bool:
    """Whether a clamp changes some numbers that are stored before it. One that TFLite has an
    operator for must leave some apart, too: NXP's converter makes a constant of others."""
    quant, limits = Quant.of(cluster.inputs[0]), bounds(arguments(node))
    stored = np.arange(quant.low, quant.high + 1)
    real = np.clip((stored - quant.zero_point) * quant.scale, *limits)
    cut = np.clip(np.rint(real / quant.scale) + quant.zero_point, quant.low, quant.high)
    return bool((cut != stored).any() and (limits not in _CLAMPS or cut.min() != cut.max()))


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


for _name, _targets, _pattern in (
    ("relu", (aten.relu.default,), UNARY),
    ("hardtanh", (aten.hardtanh.default, aten.relu6.default), SAME_SCALE),
    ("clamp", (aten.clamp.default,), SAME_SCALE),
):
    define(
        _name,
        tuple(_targets),
        _clamp,
        (
            Constraint("a lower or an upper bound", _has_a_bound),
            Constraint(
                "bounds (0, inf), (0, 6), (-1, 1) or (0, 1), or operand and result quantized alike",
                _quantized_alike_if_cut,
                "NeutronQuantizer, which shares the scale",
            ),
        ),
        clamps=True,
        idle=True,
        also="RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, else MAXIMUM and MINIMUM",
        quantization=_pattern,
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
        BuiltinOperator.LOGISTIC: ZERO_TO_ONE,
        BuiltinOperator.TANH: MINUS_ONE_TO_ONE,
    }.get(_code)

    def _is_fixed(q: Query, fixed: Fixed | None = _fixed) -> str | None:
        if fixed is None or Fixed(q.result.scale, q.result.zero_point) == fixed:
            return None
        return str(q.result)

    define(
        _name,
        (_target,),
        _one,
        ((coarse_result(22),) if _name == "abs" else ())
        if _fixed is None
        else (
            Constraint(
                f"a result with the scale 1/{round(1 / _fixed.scale)} "
                f"and the zero point {_fixed.zero_point}",
                _is_fixed,
                "NeutronQuantizer, which fixes it",
            ),
            fine_operand(-26),
        ),
        also=_code.name,
        quantization=_fixed or UNARY,
    )


def _positive(q: Query) -> str | None:
    """The kernel ends with an error at a negative number."""
    quant = q.quant(q.args["self"])
    good = quant is not None and quant.zero_point == quant.low
    return None if good else f"{quant or 'a computed operand'}"


define(
    "rsqrt",
    (aten.rsqrt.default,),
    lambda to, node, args: elementwise(to, node, BuiltinOperator.RSQRT),
    (
        Constraint(
            "an operand whose quantization has no negative numbers",
            _positive,
            "calibration data whose values are all at least 0 there",
        ),
    ),
    also="RSQRT",
    quantization=UNARY,
)
define(
    "hardswish",
    (aten.hardswish.default,),
    lambda to, node, args: elementwise(to, node, BuiltinOperator.HARD_SWISH, HardSwishOptions()),
    (coarse_result(7),),
    keep=True,
    also="HARD_SWISH",
    quantization=UNARY,
)


def _leaky_relu(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    options = LeakyReluOptions(float(args["negative_slope"]))
    return elementwise(to, node, BuiltinOperator.LEAKY_RELU, options)


define(
    "leaky_relu",
    (aten.leaky_relu.default,),
    _leaky_relu,
    (coarse_result(22),),
    also="LEAKY_RELU",
    quantization=UNARY,
)


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


define(
    "prelu",
    (aten.prelu.default,),
    _prelu,
    (
        HAS_DIMS,
        integer_weight("weight", per_channel=False),
        coarse_result(22),
        coarse_product("self", "weight"),
    ),
    keep=True,
    also="PRELU",
    quantization=Weighted(one_scale=True),
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


define(
    "neg",
    (aten.neg.default,),
    _neg,
    (coarse_result(18),),
    also="SUB from zero",
    quantization=UNARY,
)


__all__ = ["SAME_QUANTIZATION", "bounds", "elementwise"]
