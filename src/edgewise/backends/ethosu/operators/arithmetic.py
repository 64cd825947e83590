"""Sums, products, minima and maxima of two tensors; clamps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.quant import Quant, is_mask
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lower,
    Lowering,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import (
    Combined,
    Constant,
    Mapped,
    Masked,
    Real,
    Stored,
    Sums,
    WholeRows,
    clamped,
)
from edgewise.backends.ethosu.operators.functions import mapped
from edgewise.backends.ethosu.operators.integers import integers
from edgewise.edge.graph import shape_of
from edgewise.quantize.patterns import BINARY, SAME_SCALE, UNARY

aten = torch.ops.aten

_HEADROOM = {INT8: 20, "INT16": 13}
"""Bits below a step of the result that operands of a sum keep."""
_A_LITTLE = 1 + 2.0**-30


def _directly(to: Lowering, operator: str, node: Node, args: Args) -> Real | Tensor | None:
    """In plain integers, or as a function of one quantized tensor, where it is either."""
    whole = integers(to, operator, args)
    return mapped(to, node) if whole is None else whole


def _sum(operator: str) -> Lower:
    def lower(to: Lowering, node: Node, args: Args) -> Real | Tensor:
        found = _directly(to, operator, node, args)
        if found is not None:
            return found
        mask = to.value(args["other"])
        if operator == "ADD" and isinstance(mask, (Constant, Mapped)):
            masked = _masked(to, to.stored(args["self"]), mask)
            if masked is not None:
                return masked
        a, b = to.stored(args["self"]), to.stored(args["other"])
        factor = float(args["alpha"])
        return added(to, operator, a, b, factor)

    return lower


def _masked(to: Lowering, scores: Stored, mask: Constant | Mapped) -> Masked | None:
    """The sum with a mask of zeros and minus infinities, or of zeros and one number that is as
    good for a softmax of these scores; None if it is no such mask."""
    if isinstance(mask, Constant):
        return Masked(scores, mask.values == 0) if is_mask(mask.values) else None
    if mask.source.tensor.dtype != INT8:
        return None
    quant, function = mask.source.quant, mask.function
    stored = torch.arange(quant.low, quant.high + 1)
    values = function((stored - quant.zero_point).float() * quant.scale)
    far = float(values.min())
    if not is_mask(torch.where(values == far, -math.inf, values)):
        return None
    wholly = WholeRows.UNDEFINED if math.isinf(far) else _whole_rows(scores.quant, far)
    if wholly is None:
        return None
    ones = Quant(1.0, 0, -128, 127, torch.int8)
    kept = Mapped(mask.source, lambda x: (function(x) == 0).to(x.dtype))
    return Masked(scores, kept.quantized(to.b, ones), wholly)


_VANISHES = -104.0
"""Of numbers below, exponentials are zero in float32."""
_KEEPS_DIFFERENCES = 2.0**14
"""Numbers up to it, added to scores in float32, change their exponentials by a part of 2048."""


def _whole_rows(scores: Quant, far: float) -> WholeRows | None:
    """What scores are once a number is added to all that a softmax reads; None if it does not leave
    a score out beside others, or if it rounds the scores."""
    numbers = scores.dequantize(torch.tensor([scores.low, scores.high]))
    if far + float(numbers[1] - numbers[0]) > _VANISHES:
        return None
    if bool((numbers + far == far).all()):
        return WholeRows.ALIKE
    exact = scores.type == INT8 and abs(far) <= _KEEPS_DIFFERENCES
    return WholeRows.THEMSELVES if exact else None


def added(to: Lowering, operator: str, a: Stored, b: Stored, factor: float = 1.0) -> Sums:
    """a + factor * b, or a - factor * b."""
    if factor < 0:
        operator, factor = {"ADD": "SUB", "SUB": "ADD"}[operator], -factor
    scales = a.quant.scale, b.quant.scale * factor
    # Twice the larger scale: the sum has one bit more.
    wide = any(s.tensor.dtype != INT8 for s in (a, b))
    step = 2 * max(scales) / 2 ** _HEADROOM["INT16" if wide else INT8]
    if wide and to.b.takes_apart and scales[0] != scales[1]:
        # Where both are whole numbers of 16 bits, Vela gives U55 and U65 the one of the other
        # operand. A part in 2**30 more is less than half of what is rounded.
        scales = scales[0] * _A_LITTLE, scales[1] * _A_LITTLE
    parts = [
        to.b.rescale(s.tensor, [scale / step], INT32, s.quant.zero_point, 0)
        for s, scale in zip((a, b), scales, strict=True)
    ]
    return Sums(to.b.binary(operator, parts[0], parts[1]), (step,))


def _product(to: Lowering, node: Node, args: Args) -> Real | Tensor:
    found = _directly(to, "MUL", node, args)
    if found is not None:
        return found
    a, b = to.stored(args["self"]), to.stored(args["other"])
    parts = [to.b.rescale(s.tensor, [1.0], INT32, s.quant.zero_point, 0) for s in (a, b)]
    return Sums(to.b.binary("MUL", parts[0], parts[1]), (a.quant.scale * b.quant.scale,))


def _quotient(to: Lowering, node: Node, args: Args) -> Real:
    found = mapped(to, node)
    if found is not None:
        return found
    a = to.stored(args["self"])
    inverse = Constant(to.constants.tensor(args["other"]).reciprocal()).stored(to.b)
    parts = [to.b.rescale(s.tensor, [1.0], INT32, s.quant.zero_point, 0) for s in (a, inverse)]
    return Sums(to.b.binary("MUL", parts[0], parts[1]), (a.quant.scale * inverse.quant.scale,))


def _known_divisor(q: Ask) -> str | None:
    other = q.args["other"]
    if isinstance(other, Node) and other not in q.constants:
        first = q.args["self"]
        if not isinstance(first, Node) or first in q.constants:
            return None  # a function of the divisor
        return f"{other.name} is computed"
    return None


_IN_32 = "in 32 bits; integers of 32 bits as they are"
define("add", (aten.add.Tensor,), _sum("ADD"), also=_IN_32, quantization=BINARY)
define(
    "sub",
    (aten.sub.Tensor,),
    _sum("SUB"),
    also=_IN_32,
    quantization=dict.fromkeys((aten.sub.Tensor, aten.rsub.Tensor), BINARY),
)
define("mul", (aten.mul.Tensor,), _product, also=_IN_32, quantization=BINARY)
define(
    "div",
    (aten.div.Tensor,),
    _quotient,
    (Constraint("a number or constant as divisor", _known_divisor, "x * y.reciprocal()"),),
    also="a product with the reciprocals",
    quantization=BINARY,
)


def _extreme(operator: str) -> Lower:
    def lower(to: Lowering, node: Node, args: Args) -> Real | Tensor:
        found = _directly(to, operator, node, args)
        if found is not None:
            return found
        operands = args["self"], args["other"]
        pair = tuple(map(to.real, operands))

        def make(ts: Sequence[Tensor], quant: Quant) -> Tensor:
            # TOSA compares integers of 32 bits only.
            wide = [to.b.rescale(t, [1.0], INT32, quant.zero_point, 0) for t in ts]
            chosen = to.b.binary(operator, wide[0], wide[1])
            return to.b.rescale(chosen, [1.0], quant.type, 0, quant.zero_point)

        return Combined(pair, _shape(node), make)

    return lower


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(int(s) for s in shape_of(node))


_WIDE = "integers of 32 bits as they are"
define(
    "maximum",
    (aten.maximum.default,),
    _extreme("MAXIMUM"),
    reads=ANY,
    also=_WIDE,
    quantization=BINARY,
)
define(
    "minimum",
    (aten.minimum.default,),
    _extreme("MINIMUM"),
    reads=ANY,
    also=_WIDE,
    quantization=BINARY,
)


def _clamp(to: Lowering, node: Node, args: Args) -> Real:
    low, high = args.get("min", args.get("min_val")), args.get("max", args.get("max_val"))
    return clamped(
        to.real(args["self"]),
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
    )


def _relu(to: Lowering, node: Node, args: Args) -> Real:
    return clamped(to.real(args["self"]), 0.0, math.inf)


def _relu6(to: Lowering, node: Node, args: Args) -> Real:
    return clamped(to.real(args["self"]), 0.0, 6.0)


_SLOPE_BITS = 15


def _prelu(to: Lowering, node: Node, args: Args) -> Real:
    """max(x, 0) + slope * min(x, 0), with the slopes as whole numbers of 2**-bits."""
    found = mapped(to, node)
    if found is not None:
        return found
    b, x, slopes = to.b, to.stored(args["self"]), to.constants.tensor(args["weight"])
    largest = max(float(slopes.abs().max()), 2.0**-_SLOPE_BITS)
    bits = min(_SLOPE_BITS, _SLOPE_BITS - math.frexp(largest)[1])
    whole = (slopes.double() * 2.0**bits).round().int()
    whole = whole.reshape(-1, *[1] * (len(x.shape) - 2))
    t = b.rescale(x.tensor, [1.0], INT32, x.quant.zero_point, 0)
    above = b.binary("MAXIMUM", t, b.number(0, t))
    below = b.binary("MINIMUM", t, b.number(0, t))
    products = b.binary("MUL", below, b.const(whole.numpy(), INT32))
    if bits > 0:
        above = b.rescale(above, [2.0**bits], INT32)
    return Sums(b.binary("ADD", above, products), (x.quant.scale * 2.0**-bits,))


def _small_slopes(q: Ask) -> str | None:
    slopes = q.constants.tensor(q.args["weight"])
    largest = float(slopes.abs().max())
    return None if largest < 2**_SLOPE_BITS else f"a slope of {largest:g}"


def _constant_slopes(q: Ask) -> str | None:
    return None if q.args["weight"] in q.constants else "weight is computed"


define(
    "prelu",
    (aten.prelu.default,),
    _prelu,
    (
        Constraint("constant weight", _constant_slopes),
        Constraint(
            f"slopes below 2**{_SLOPE_BITS}",
            lambda q: _small_slopes(q) if q.args["weight"] in q.constants else None,
        ),
    ),
    keep=True,
    int16=False,
    also="in 32 bits; one slope for all: a table",
    quantization=UNARY,
)

_CLAMP = "cut after its quantization"
define("relu", (aten.relu.default,), _relu, reads=ANY, also=_CLAMP, quantization=SAME_SCALE)
define("relu6", (aten.relu6.default,), _relu6, reads=ANY, also=_CLAMP, quantization=SAME_SCALE)
define(
    "clamp",
    (aten.clamp.default, aten.hardtanh.default),
    _clamp,
    reads=ANY,
    also=_CLAMP,
    quantization=SAME_SCALE,
)

__all__ = ["Mapped", "added"]
