"""Unary and binary elementwise operators, activations, softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Operand, Ref
from edgewise.backends.xnnpack.table import (
    Constraint,
    Lowering,
    OpRow,
    Query,
    add_row,
    equals,
    last_dim,
)

aten = torch.ops.aten
Args = dict[str, Any]


def _same_type(q: Query) -> str | None:
    types = {n.meta["val"].dtype for n in [q.node, *q.node.all_input_nodes]}
    return None if len(types) == 1 else ", ".join(sorted(map(str, types)))


ONE_TYPE = Constraint("operands of one data type", _same_type)


def _unary(name: str, kind: str, *targets: torch._ops.OpOverload) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        return to.b.unary(kind, to.ref(node.args[0]))

    add_row(OpRow(name, targets, lower))


_unary("abs", "Abs", aten.abs.default)
_unary("ceil", "Ceiling", aten.ceil.default)
_unary("cos", "Cos", aten.cos.default)
_unary("exp", "Exp", aten.exp.default)
_unary("floor", "Floor", aten.floor.default)
_unary("log", "Log", aten.log.default)
_unary("neg", "Negate", aten.neg.default)
_unary("rsqrt", "ReciprocalSquareRoot", aten.rsqrt.default)
_unary("sigmoid", "Sigmoid", aten.sigmoid.default)
_unary("sin", "Sin", aten.sin.default)
_unary("sqrt", "SquareRoot", aten.sqrt.default)
_unary("tanh", "Tanh", aten.tanh.default)


def _binary(name: str, kind: str, *targets: torch._ops.OpOverload, alpha: bool = False) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        return to.b.binary(kind, to.operand(node.args[0]), to.operand(node.args[1]))

    one = equals("alpha", 1, hint="multiplying the second operand first")
    add_row(OpRow(name, targets, lower, (ONE_TYPE, one) if alpha else (ONE_TYPE,)))


_binary("add", "Add", aten.add.Tensor, aten.add.Scalar, alpha=True)
_binary("sub", "Subtract", aten.sub.Tensor, aten.sub.Scalar, alpha=True)
_binary("mul", "Multiply", aten.mul.Tensor, aten.mul.Scalar)
_binary("div", "Div", aten.div.Tensor, aten.div.Scalar)
_binary("maximum", "Maximum", aten.maximum.default)
_binary("minimum", "Minimum", aten.minimum.default)


def _pow(to: Lowering, node: Node, args: Args) -> Operand:
    return to.b.unary("Square", to.ref(args["self"]))


add_row(OpRow("pow", (aten.pow.Tensor_Scalar,), _pow, (equals("exponent", 2),)))


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


# --- activations -------------------------------------------------------------------------


def _hardsigmoid(to: Lowering, node: Node, args: Args) -> Operand:
    """clamp(x / 6 + 1/2, 0, 1)"""
    return to.b.shift(to.b.scale(to.ref(args["self"]), 1 / 6), 0.5, clamp=(0.0, 1.0))


def _silu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    return to.b.binary("Multiply", x, to.b.unary("Sigmoid", x))


def _gelu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    if args["approximate"] == "none":
        return to.b.unary("Gelu", x)
    # x * sigmoid(2u) = x / 2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3)
    root = math.sqrt(2 / math.pi)
    square = to.b.unary("Square", x)
    inner = to.b.shift(to.b.scale(square, 2 * root * 0.044715), 2 * root)
    gate = to.b.unary("Sigmoid", to.b.binary("Multiply", inner, x))
    return to.b.binary("Multiply", x, gate)


def _elu(to: Lowering, node: Node, args: Args) -> Operand:
    return to.b.unary("ELU", to.ref(args["self"]), alpha=float(args["alpha"]))


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
add_row(
    OpRow(
        "elu",
        (aten.elu.default,),
        _elu,
        (equals("scale", 1), equals("input_scale", 1)),
        keep=True,
    )
)
add_row(OpRow("leaky_relu", (aten.leaky_relu.default,), _leaky_relu, keep=True))


def _softmax(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    if x.perm[-1] != x.rank - 1:
        x = to.b.in_order(x, tuple(range(x.rank)))
    return to.b.unary("Softmax", x)


add_row(
    OpRow(
        "softmax",
        (aten._softmax.default,),
        _softmax,
        (last_dim(), equals("half_to_float", False)),
    )
)

__all__ = ["ONE_TYPE", "clamp"]
