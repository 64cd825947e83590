"""Unary and binary elementwise operators, activations, softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import (
    CLAMPED,
    EXACT,
    INVERSE_ROOT,
    LOGARITHM,
    NAN_LOST,
    PLAIN_ZERO,
    ROOT,
    ROUNDED,
    WIDE,
    floating,
)
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref, holds
from edgewise.backends.xnnpack.lowering.dynamic_quant import is_one_of
from edgewise.backends.xnnpack.lowering.precision import STATIC, in_8_bits
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
    equals,
)
from edgewise.backends.xnnpack.node_kinds import BINARY_ON_INTEGERS, UNARY_ON_INTEGERS
from edgewise.backends.xnnpack.operators.elementary import inverse_root
from edgewise.edge.graph import fake
from edgewise.operators.definition import Patterns
from edgewise.partition.accuracy import Accuracies, Accuracy, Deviation
from edgewise.quantize.patterns import (
    MINUS_ONE_TO_ONE,
    SAME_SCALE,
    UNARY,
    ZERO_TO_ONE,
    Elementwise,
    Pattern,
)

aten = torch.ops.aten
Args = dict[str, Any]


def _same_type(q: Query) -> str | None:
    types = {n.meta["val"].dtype for n in [q.node, *q.node.all_input_nodes]}
    return None if len(types) == 1 else ", ".join(sorted(map(str, types)))


ONE_TYPE = Constraint("operands of one data type", _same_type, "x.to(y.dtype) on one of them")


SURE = (-200.0, 200.0)
"""Beyond these a sigmoid is what it is there. XNNPACK's is NaN beyond 1e26, with AVX-512."""


def _sigmoid(to: Lowering, node: Node, x: Ref) -> Ref:
    if x.dtype == torch.float32 and not in_8_bits(node, to.constants):
        x = to.b.unary("Clamp", x, clamp=SURE)
    return to.b.unary("Sigmoid", x)


def _unary(
    name: str,
    kind: str,
    *targets: torch._ops.OpOverload,
    accuracy: Accuracies = EXACT,
    deviations: tuple[Deviation, ...] = (),
    quantization: Pattern | None = None,
) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        return to.b.unary(kind, to.ref(node.args[0]))

    define(
        name,
        targets,
        lower,
        quantization=quantization,
        integers=STATIC_INT8 if kind in UNARY_ON_INTEGERS else "",
        accuracy=accuracy,
        deviations=deviations,
    )


_unary("abs", "Abs", aten.abs.default)
_unary("ceil", "Ceiling", aten.ceil.default)
_unary("cos", "Cos", aten.cos.default, accuracy=floating(1))
_unary("exp", "Exp", aten.exp.default, accuracy=floating(1))
_unary("floor", "Floor", aten.floor.default)
_unary(
    "log",
    "Log",
    aten.log.default,
    accuracy=floating(2, 0, 1.3e-7),
    deviations=(LOGARITHM,),
)
define(
    "rsqrt",
    (aten.rsqrt.default,),
    lambda to, node, args: inverse_root(to, node, to.ref(args["self"])),
    also="of what may be zero: one divided by the square root, in float32",
    accuracy=floating(3.5),
    deviations=(INVERSE_ROOT,),
    integers=STATIC_INT8,
)
define(
    "sigmoid",
    (aten.sigmoid.default,),
    lambda to, node, args: _sigmoid(to, node, to.ref(args["self"])),
    accuracy=floating(4, 0, 1.3e-38),
    also="of float32: of x between -200 and 200",
    deviations=(CLAMPED,),
    quantization=ZERO_TO_ONE,
    integers=STATIC_INT8,
)
_unary("sin", "Sin", aten.sin.default, accuracy=floating(1))
_unary(
    "sqrt",
    "SquareRoot",
    aten.sqrt.default,
    accuracy=floating(3.5),
    deviations=(ROOT,),
)
_unary("tanh", "Tanh", aten.tanh.default, accuracy=floating(5.5), quantization=MINUS_ONE_TO_ONE)


def _neg(to: Lowering, node: Node, args: Args) -> Operand:
    """-x, of zero -0: XNNPACK's own node makes 0 of zero."""
    x = to.ref(args["self"])
    return to.b.unary("Negate", x) if in_8_bits(node, to.constants) else to.b.scale(x, -1.0)


define("neg", (aten.neg.default,), _neg, also="times -1", integers=STATIC_INT8)


def _is_held(x: Any, dtype: torch.dtype) -> bool:
    return isinstance(x, Node) or holds(dtype, float(x))


def _in_float32(to: Lowering, x: Any) -> Operand:
    """As PyTorch multiplies float16 by a number and divides it. Sums round the number first."""
    found = to.operand(x)
    return to.b.convert(found, torch.float32) if isinstance(found, Ref) else found.float()


def _binary(
    name: str,
    kind: str,
    *targets: torch._ops.OpOverload,
    alpha: bool = False,
    accuracy: Accuracies = ROUNDED,
    deviations: tuple[Deviation, ...] = (),
    also: str = "",
    quantization: Patterns | None = None,
    keep: bool = False,
) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        dtype = fake(node).dtype
        if not all(_is_held(x, dtype) for x in node.args[:2]) and kind in ("Multiply", "Div"):
            a, b = (_in_float32(to, x) for x in node.args[:2])
            return to.b.convert(to.b.binary(kind, a, b), dtype)
        a, b = (to.operand(x, dtype) for x in node.args[:2])
        return to.b.binary(kind, a, b)

    one = equals("alpha", 1, hint="multiplying the second operand first")
    rules = (ONE_TYPE, one) if alpha else (ONE_TYPE,)
    define(
        name,
        targets,
        lower,
        rules,
        also=also,
        quantization=quantization,
        integers=STATIC_INT8 if kind in BINARY_ON_INTEGERS else "",
        accuracy=accuracy,
        deviations=deviations,
        keep=keep,
    )


_IN_FLOAT32 = "float16 and a number that it does not hold: in float32"
for _name, _kind, _packet, _also in (
    ("add", "Add", aten.add, ""),
    ("sub", "Subtract", aten.sub, ""),
    ("mul", "Multiply", aten.mul, _IN_FLOAT32),
):
    _binary(
        _name,
        _kind,
        _packet.Tensor,
        _packet.Scalar,
        alpha=_name != "mul",
        also=_also,
        # Numbers are tensors once a quantizer has seen the program.
        quantization={_packet.Tensor: Elementwise()},
    )
_binary("div", "Div", aten.div.Tensor, aten.div.Scalar, also=_IN_FLOAT32)
for _name, _kind, _target in (
    ("maximum", "Maximum", aten.maximum.default),
    ("minimum", "Minimum", aten.minimum.default),
):
    # Kept: of these, choices by computed booleans are made (edge/bounded_choices.py).
    _binary(_name, _kind, _target, accuracy=EXACT, deviations=(NAN_LOST,), keep=True)


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

define(
    "clamp",
    (aten.clamp.default,),
    lambda to, node, args: clamp(to, to.ref(args["self"]), *_bounds(args)),
    (NOT_EMPTY,),
    deviations=(CLAMPED,),
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)
define(
    "relu",
    (aten.relu.default,),
    lambda to, node, args: clamp(to, to.ref(args["self"]), 0.0, math.inf),
    deviations=(CLAMPED,),
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)
define(
    "hardtanh",
    (aten.hardtanh.default,),
    lambda to, node, args: clamp(to, to.ref(args["self"]), *_bounds(args)),
    (NOT_EMPTY,),
    deviations=(CLAMPED,),
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _clamp_tensor(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.operand(args["self"])
    for kind, bound in (("Maximum", args["min"]), ("Minimum", args["max"])):
        if bound is not None:
            x = to.b.binary(kind, x, to.operand(bound))
    return x


define(
    "clamp_tensor",
    (aten.clamp.Tensor,),
    _clamp_tensor,
    (ONE_TYPE,),
    also="maximum and minimum",
    deviations=(NAN_LOST,),
)


# --- activations -------------------------------------------------------------------------


def _hardsigmoid(to: Lowering, node: Node, args: Args) -> Operand:
    """clamp(x / 6 + 1/2, 0, 1)"""
    return to.b.shift(to.b.scale(to.ref(args["self"]), 1 / 6), 0.5, clamp=(0.0, 1.0))


def _silu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    return to.b.binary("Multiply", x, to.b.unary("Sigmoid", x))


def _rounds_to_8_bits(to: Lowering, node: Node) -> bool:
    """Rounded to steps beside which the two forms of gelu (5e-4 at most) are the same."""
    if not in_8_bits(node, to.constants):
        return False
    return all(is_one_of(u, STATIC[:1]) and u.args[1] > 2e-3 for u in node.users)  # type: ignore[operator]


def _gelu(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    if args["approximate"] == "none" or _rounds_to_8_bits(to, node):
        return to.b.unary("Gelu", x)
    # x * sigmoid(2u) = x / 2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3)
    root = math.sqrt(2 / math.pi)
    square = to.b.unary("Square", x)
    inner = to.b.shift(to.b.scale(square, 2 * root * 0.044715), 2 * root)
    gate = to.b.unary("Sigmoid", to.b.binary("Multiply", inner, x, clamp=SURE))
    return to.b.binary("Multiply", x, gate)


def _leaky_relu(to: Lowering, node: Node, args: Args) -> Operand:
    slope = float(args["negative_slope"])
    return to.b.unary("LeakyReLU", to.ref(args["self"]), negative_slope=slope)


define(
    "hardswish",
    (aten.hardswish.default,),
    lambda to, node, args: to.b.unary("Hardswish", to.ref(args["self"])),
    keep=True,
    accuracy=floating(3, 2),
    quantization=UNARY,
    integers=STATIC_INT8,
)
define(
    "hardsigmoid",
    (aten.hardsigmoid.default,),
    _hardsigmoid,
    keep=True,
    also="multiply, add and clamp",
    deviations=(CLAMPED,),
    accuracy=floating(2, 1),
    quantization=ZERO_TO_ONE,
)
define(
    "silu",
    (aten.silu.default,),
    _silu,
    keep=True,
    also="sigmoid and multiply",
    accuracy=floating(5, 0, 2e-36),
    deviations=(WIDE,),
    quantization=UNARY,
)
define(
    "gelu",
    (aten.gelu.default,),
    _gelu,
    keep=True,
    accuracy=floating(3, 0, 8e-7, Accuracy(1, 1, 1e-6)),
    deviations=(Deviation("infinity: infinity", lambda x: x == math.inf),),
    quantization=UNARY,
    integers=STATIC_INT8,
)
define(
    "leaky_relu",
    (aten.leaky_relu.default,),
    _leaky_relu,
    keep=True,
    accuracy=floating(1),
    deviations=(PLAIN_ZERO,),
    quantization=UNARY,
    integers=STATIC_INT8,
)


def _softmax(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.b.convert(to.ref(args["self"]), fake(node).dtype)
    if not x.rank:
        return to.b.view(to.b.unary("Softmax", to.b.view(x, (1,))), ())
    dim = args["dim"] % x.rank
    if x.perm[-1] != dim:
        x = to.b.in_order(x, (*(d for d in range(x.rank) if d != dim), dim))
    return to.b.unary("Softmax", x)


define(
    "softmax",
    (aten._softmax.default,),
    _softmax,
    also="over another dimension than the last: that is moved last in memory",
    accuracy=floating(4, 1, 1e-37),
)

__all__ = ["ONE_TYPE", "clamp"]
