"""Elementary functions that XNNPACK has no node for: powers, exponentials, logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import (
    CLAMPED,
    INVERSE_ROOT,
    LOGARITHM,
    ROOT,
    ROUNDED,
    floating,
)
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref, scalar
from edgewise.backends.xnnpack.lowering.precision import in_8_bits
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lower,
    Lowering,
    Query,
    define,
)
from edgewise.edge.signs import is_positive
from edgewise.partition.accuracy import Deviation

aten = torch.ops.aten
Args = dict[str, Any]


def in_float32(function: Callable[[Lowering, Ref], Ref]) -> Lower:
    """How a function of `self` is lowered whose steps need more than float16 has."""

    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        x = to.ref(args["self"])
        return to.b.convert(function(to, to.b.convert(x, torch.float32)), x.dtype)

    return lower


def reciprocal(to: Lowering, x: Ref) -> Ref:
    return to.b.binary("Div", scalar(1.0, x.dtype), x)


def inverse_root(to: Lowering, node: Node, x: Ref) -> Ref:
    """XNNPACK's own is NaN of zero, which models ask for before they choose something else there
    (a graph's node without neighbours); its root of negative numbers is -0 in float16."""
    source = node.args[0]
    if in_8_bits(node, to.constants) or (isinstance(source, Node) and is_positive(source)):
        return to.b.unary("ReciprocalSquareRoot", x)
    root = to.b.unary("SquareRoot", to.b.convert(x, torch.float32))
    return to.b.convert(reciprocal(to, root), x.dtype)


def _power(to: Lowering, node: Node, x: Ref, exponent: float) -> Ref:
    if exponent == -0.5:
        return inverse_root(to, node, x)
    if exponent < 0:  # first the quotient, whose powers leave the type where the result does
        return _power(to, node, reciprocal(to, x), -exponent)
    if exponent == 0.5:
        return to.b.unary("SquareRoot", x)
    if exponent == 1:
        return x
    half = _power(to, node, x, exponent // 2)
    square = to.b.unary("Square", half)
    return to.b.binary("Multiply", square, x) if exponent % 2 else square


def _known_exponent(q: Query) -> str | None:
    exponent = q.args["exponent"]
    known = isinstance(exponent, (int, float)) and exponent in EXPONENTS
    return None if known else f"exponent={exponent}"


EXPONENTS = (2, 0.5, 1, 3, 4, -0.5, -1, -2)


_LN2_HIGH = float.fromhex("0x1.62e8p-1")
"""ln 2 rounded up to 12 bits: products with the whole numbers of _exp2 are exact in float32."""


def _exp2(to: Lowering, x: Ref) -> Ref:
    """exp(n h) exp((x - n) ln 2 - n (h - ln 2)) with n = floor(x), h close to ln 2. A rounded
    x ln 2 would be off by half a unit of up to 88, and its exponential by 64 units."""
    x = to.b.unary("Clamp", x, clamp=(-200.0, 128.0))
    whole = to.b.unary("Floor", x)
    part = to.b.scale(to.b.binary("Subtract", x, whole), math.log(2))
    rest = to.b.binary("Add", part, to.b.scale(whole, math.log(2) - _LN2_HIGH))
    powers = to.b.unary("Exp", to.b.scale(whole, _LN2_HIGH)), to.b.unary("Exp", rest)
    return to.b.binary("Multiply", *powers)


define(
    "pow",
    (aten.pow.Tensor_Scalar,),
    lambda to, node, args: _power(to, node, to.ref(args["self"]), float(args["exponent"])),
    (
        Constraint(
            f"exponent={' or '.join(map(str, EXPONENTS))}",
            _known_exponent,
            "exp(exponent * log(x)), if x is positive",
        ),
    ),
    also="square; square root and its reciprocal; products and quotients of these",
    accuracy=floating(3.5),
    deviations=(
        Deviation(f"exponent 0.5: {ROOT.text}", ROOT.at),
        Deviation(f"exponent -0.5: {INVERSE_ROOT.text}", INVERSE_ROOT.at),
    ),
    integers=STATIC_INT8,
)
define(
    "reciprocal",
    (aten.reciprocal.default,),
    lambda to, node, args: reciprocal(to, to.ref(args["self"])),
    also="one divided by it",
    accuracy=ROUNDED,
)
define(
    "exp2",
    (aten.exp2.default,),
    in_float32(_exp2),
    keep=True,
    also="exp(n ln 2) exp(f ln 2), n = floor(x), f = x - n",
    deviations=(CLAMPED,),
    accuracy=floating(3, 0, 2.4e-38),
)


def _cosh(to: Lowering, x: Ref) -> Ref:
    """(h / 2) h + exp(-m) / 2 with m = |x|, h = exp(m / 2): exp(m) leaves the type before its half
    does."""
    magnitude = to.b.unary("Abs", x)
    root = to.b.unary("Exp", to.b.scale(magnitude, 0.5))
    large = to.b.binary("Multiply", to.b.scale(root, 0.5), root)
    small = to.b.scale(to.b.unary("Exp", to.b.unary("Negate", magnitude)), 0.5)
    return to.b.binary("Add", large, small)


define(
    "cosh",
    (aten.cosh.default,),
    in_float32(_cosh),
    also="(h / 2) h + exp(-m) / 2, m = |x|, h = exp(m / 2)",
    accuracy=floating(4),
)


def _sinh(to: Lowering, x: Ref) -> Ref:
    """tanh(x) cosh(x): both are exact to the last digits where x is small."""
    return to.b.binary("Multiply", to.b.unary("Tanh", x), _cosh(to, x))


def _expm1(to: Lowering, x: Ref) -> Ref:
    """tanh(x / 2) (exp(x) + 1), which is exact to the last digits where x is small, too."""
    half = to.b.unary("Tanh", to.b.scale(x, 0.5))
    return to.b.binary("Multiply", half, to.b.shift(to.b.unary("Exp", x), 1.0))


define(
    "sinh",
    (aten.sinh.default,),
    in_float32(_sinh),
    also="tanh(x) cosh(x)",
    accuracy=floating(9),
)
define(
    "expm1",
    (aten.expm1.default,),
    in_float32(_expm1),
    also="tanh(x / 2) (exp(x) + 1)",
    accuracy=floating(8, 0, 2.4e-38),
)
define(
    "log2",
    (aten.log2.default,),
    lambda to, node, args: to.b.scale(to.b.unary("Log", to.ref(args["self"])), 1 / math.log(2)),
    also="log(x) / log(2)",
    deviations=(LOGARITHM,),
    accuracy=floating(3, 0, 2e-7),
)
define(
    "log10",
    (aten.log10.default,),
    lambda to, node, args: to.b.scale(to.b.unary("Log", to.ref(args["self"])), 1 / math.log(10)),
    also="log(x) / log(10)",
    deviations=(LOGARITHM,),
    accuracy=floating(3, 0, 1e-7),
)
