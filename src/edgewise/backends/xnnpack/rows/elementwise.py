"""Unary and binary elementwise operators, activations, softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Operand, Ref
from edgewise.backends.xnnpack.dynamic_quant import is_one_of
from edgewise.backends.xnnpack.precision import STATIC, ConfigPrecisionType, precision
from edgewise.backends.xnnpack.quantized_constants import QuantizedConstants
from edgewise.backends.xnnpack.table import (
    Constraint,
    Lowering,
    OpRow,
    Query,
    add_row,
    equals,
)
from edgewise.edge.graph import fake

aten = torch.ops.aten
Args = dict[str, Any]


def _same_type(q: Query) -> str | None:
    types = {n.meta["val"].dtype for n in [q.node, *q.node.all_input_nodes]}
    return None if len(types) == 1 else ", ".join(sorted(map(str, types)))


ONE_TYPE = Constraint("operands of one data type", _same_type, "x.to(y.dtype) on one of them")


def _unary(name: str, kind: str, *targets: torch._ops.OpOverload, also: str = "") -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        return to.b.unary(kind, to.ref(node.args[0]))

    add_row(OpRow(name, targets, lower, also=also))


_unary("abs", "Abs", aten.abs.default)
_unary("ceil", "Ceiling", aten.ceil.default)
_unary("cos", "Cos", aten.cos.default)
_unary("exp", "Exp", aten.exp.default)
_unary("floor", "Floor", aten.floor.default)
_unary("log", "Log", aten.log.default, also="denormal numbers count as zero")
_unary("neg", "Negate", aten.neg.default)
_unary(
    "rsqrt",
    "ReciprocalSquareRoot",
    aten.rsqrt.default,
    also="of zero and infinity: NaN on some CPUs",
)
_unary("sigmoid", "Sigmoid", aten.sigmoid.default)
_unary("sin", "Sin", aten.sin.default)
_unary("sqrt", "SquareRoot", aten.sqrt.default, also="of infinity: NaN on some CPUs")
_unary("tanh", "Tanh", aten.tanh.default)


NO_NAN = "NaN among the operands may be passed over"


def _binary(
    name: str,
    kind: str,
    *targets: torch._ops.OpOverload,
    alpha: bool = False,
    also: str = "",
) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        a, b = (to.operand(x, fake(node).dtype) for x in node.args[:2])
        return to.b.binary(kind, a, b)

    one = equals("alpha", 1, hint="multiplying the second operand first")
    add_row(OpRow(name, targets, lower, (ONE_TYPE, one) if alpha else (ONE_TYPE,), also=also))


_binary("add", "Add", aten.add.Tensor, aten.add.Scalar, alpha=True)
_binary("sub", "Subtract", aten.sub.Tensor, aten.sub.Scalar, alpha=True)
_binary("mul", "Multiply", aten.mul.Tensor, aten.mul.Scalar)
_binary("div", "Div", aten.div.Tensor, aten.div.Scalar)
_binary("maximum", "Maximum", aten.maximum.default, also=NO_NAN)
_binary("minimum", "Minimum", aten.minimum.default, also=NO_NAN)


# --- clamps: merged into the node before by passes/fuse_clamp ---------------------------


def clamp(to: Lowering, x: Ref, low: float, high: float) -> Ref:
    return to.b.unary("Clamp", x, clamp=(low, high))


def _bounds(args: Args) -> tuple[float, float]:
    """Of clamp's arguments, or of hardtanh's."""
    low = args["min"] if "min" in args else args["min_val"]
    high = args["max"] if "max" in args else args["max_val"]
    return (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))


def _low_below_high(q: Query) -> str | None:
    low, high = _bounds(q.args)
    return None if low < high else f"min={low}, max={high}"


NOT_EMPTY = Constraint("min < max", _low_below_high)

add_row(
    OpRow(
        "clamp",
        (aten.clamp.default,),
        lambda to, node, args: clamp(to, to.ref(args["self"]), *_bounds(args)),
        (NOT_EMPTY,),
    )
)
add_row(
    OpRow(
        "relu",
        (aten.relu.default,),
        lambda to, node, args: clamp(to, to.ref(args["self"]), 0.0, math.inf),
    )
)
add_row(
    OpRow(
        "hardtanh",
        (aten.hardtanh.default,),
        lambda to, node, args: clamp(to, to.ref(args["self"]), *_bounds(args)),
        (NOT_EMPTY,),
    )
)


def _clamp_tensor(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.operand(args["self"])
    for kind, bound in (("Maximum", args["min"]), ("Minimum", args["max"])):
        if bound is not None:
            x = to.b.binary(kind, x, to.operand(bound))
    return x


add_row(
    OpRow(
        "clamp_tensor",
        (aten.clamp.Tensor,),
        _clamp_tensor,
        (ONE_TYPE,),
        also=f"maximum and minimum; {NO_NAN}",
    )
)


# --- activations -------------------------------------------------------------------------


def _hardsigmoid(to: Lowering, node: Node, args: Args) -> Operand:
    """clamp(x / 6 + 1/2, 0, 1)"""
    return to.b.shift(to.b.scale(to.ref(args["self"]), 1 / 6), 0.5, clamp=(0.0, 1.0))


def _silu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    return to.b.binary("Multiply", x, to.b.unary("Sigmoid", x))


def _is_in_8_bits(to: Lowering, node: Node) -> bool:
    """Rounded to steps beside which the two forms of gelu (5e-4 at most) are the same."""
    constants = to.constants
    assert isinstance(constants, QuantizedConstants)
    if precision(node, constants) != ConfigPrecisionType.STATIC_QUANT:
        return False
    return all(is_one_of(u, STATIC[:1]) and u.args[1] > 2e-3 for u in node.users)  # type: ignore[operator]


def _gelu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    if args["approximate"] == "none" or _is_in_8_bits(to, node):
        return to.b.unary("Gelu", x)
    # x * sigmoid(2u) = x / 2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3)
    root = math.sqrt(2 / math.pi)
    square = to.b.unary("Square", x)
    inner = to.b.shift(to.b.scale(square, 2 * root * 0.044715), 2 * root)
    gate = to.b.unary("Sigmoid", to.b.binary("Multiply", inner, x))
    return to.b.binary("Multiply", x, gate)


def _leaky_relu(to: Lowering, node: Node, args: Args) -> Operand:
    slope = float(args["negative_slope"])
    return to.b.unary("LeakyReLU", to.ref(args["self"]), negative_slope=slope)


add_row(
    OpRow(
        "hardswish",
        (aten.hardswish.default,),
        lambda to, node, args: to.b.unary("Hardswish", to.ref(args["self"])),
        keep=True,
    )
)
add_row(
    OpRow(
        "hardsigmoid",
        (aten.hardsigmoid.default,),
        _hardsigmoid,
        keep=True,
        also="multiply, add and clamp",
    )
)
add_row(OpRow("silu", (aten.silu.default,), _silu, keep=True, also="sigmoid and multiply"))
add_row(OpRow("gelu", (aten.gelu.default,), _gelu, keep=True))
add_row(OpRow("leaky_relu", (aten.leaky_relu.default,), _leaky_relu, keep=True))


def _softmax(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.b.convert(to.ref(args["self"]), fake(node).dtype)
    if x.rank:
        dim = args["dim"] % x.rank
        if x.perm[-1] != dim:
            x = to.b.in_order(x, (*(d for d in range(x.rank) if d != dim), dim))
    return to.b.unary("Softmax", x)


add_row(
    OpRow(
        "softmax",
        (aten._softmax.default,),
        _softmax,
        also="over another dimension than the last: that is moved last in memory",
    )
)

__all__ = ["ONE_TYPE", "clamp"]
