"""Layer, group, instance and root-mean-square normalisation, in 32-bit integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.table import (
    Args,
    Ask,
    Constraint,
    Lowering,
    Refused,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored, Sums
from edgewise.backends.ethosu.operators.fixed_point import (
    inverse_root,
    inverse_root_finely,
    of_count,
    summed,
)
from edgewise.backends.ethosu.operators.shape import sizes
from edgewise.partition.constraints import constant
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import UNARY

aten = torch.ops.aten

_LARGEST = 2.0**30.8
"""What sums of squares may reach."""
_KEPT = 17
"""Bits of normalised numbers before they are weighted."""
_WEIGHT = 12
_BEHIND = 13
"""Bits behind the point of deviations of 16-bit numbers, which have 16 before it."""
_MOST_ADDED = 2.0**48
"""To a mean square of 16-bit numbers, in their square steps: leaves 6 bits behind the point."""
_MOST = 2**15
"""Elements of a row of 16-bit numbers: their sum times their number must have 31 bits."""


def centred_squares(
    to: Lowering, x: Stored, shape: Sequence[int], small: float, centred: bool
) -> tuple[Tensor, Tensor, float]:
    """Of rows of 8-bit numbers ([rows, n]): deviations in steps of x.scale / fine, sums of their
    squares, and fine.

    small: what is added to a mean square, in square steps of x. centred: deviations from the mean.
    """
    b = to.b
    n = shape[1]
    t = b.rescale(b.reshape(x.tensor, shape), [1.0], INT32, x.quant.zero_point)
    # So finely that squares just fit: those around a mean are a quarter as large.
    reach = (127.5 if centred else 255.0) + 1
    fine = math.sqrt(_LARGEST / (n * (reach**2 + small)))
    if centred:
        t = _deviations(b, t, b.reduce("REDUCE_SUM", t, 1), n, fine)
    else:
        t = b.rescale(t, [fine], INT32)
    return t, b.reduce("REDUCE_SUM", b.binary("MUL", t, t), 1), fine


def _deviations(b: Builder, t: Tensor, total: Tensor, n: int, fine: float) -> Tensor:
    """From the mean of rows of n whose sums are `total`, `fine` times as large."""
    whole = b.binary("MUL", t, b.number(n, t))
    return b.rescale(b.binary("SUB", whole, total), [fine / n], INT32)


def mean_squares(to: Lowering, x: Stored, shape: Sequence[int]) -> tuple[Tensor, float]:
    """Of rows of 16-bit numbers ([rows, n]): sums of squared deviations from the mean, and how many
    square steps of x they count in."""
    b = to.b
    t = b.rescale(b.reshape(x.tensor, shape), [1.0], INT32, x.quant.zero_point)
    t = _deviations(b, t, b.reduce("REDUCE_SUM", t, 1), shape[1], 2.0**_BEHIND)
    squares = b.binary("MUL", t, t, shift=2 * _BEHIND + 2)
    # Their mean is at most a quarter of the largest.
    bits = max(_bits(shape[1]) - 2, 0)
    return summed(b, squares, 1, bits)[1], 2.0 ** (bits + 2)


def _bits(count: int) -> int:
    return math.ceil(math.log2(count))


def _normalized(to: Lowering, x: Stored, shape: Sequence[int], eps: float, centred: bool) -> Sums:
    """Rows of x ([rows, n]) by their deviation."""
    small = eps / x.quant.scale**2
    b, n = to.b, shape[1]
    wide = _is_wide(x)
    if small > (_MOST_ADDED if wide else _LARGEST / n):  # deviations would lose their bits
        rule = "eps is small beside the input's steps, squared"
        raise Refused(Refusal(rule, f"eps={eps:g}, steps of {x.quant.scale:.2g}"))
    if wide:
        return _normalized_finely(to, x, shape, small, centred)
    t, squares, fine = centred_squares(to, x, shape, small, centred)
    least = max(round(small * n * fine**2), 1)
    root, half = inverse_root(b, b.binary("ADD", squares, b.number(least, squares)))
    product = b.binary("MUL", t, root)
    return Sums(b.binary("MUL", product, _power(b, half)), (math.sqrt(n) * 2.0**-29,))


def _normalized_finely(
    to: Lowering, x: Stored, shape: Sequence[int], small: float, centred: bool
) -> Sums:
    """Of 16-bit numbers: each row is enlarged until its largest deviation has 31 bits.

    small: what is added to a mean square, in square steps of x.
    """
    b, n = to.b, shape[1]
    if n > _MOST:
        raise Refused(Refusal(f"rows of 16 bits have at most {_MOST} elements", f"{n}"))
    root_of_small = math.sqrt(small)
    behind = min(_BEHIND, math.floor(30 - math.log2(root_of_small))) if small else _BEHIND
    fine = 2.0**behind
    narrow = b.reshape(x.tensor, shape)
    t = b.rescale(narrow, [1.0], INT32, x.quant.zero_point)
    ends = [
        b.rescale(b.reduce(f"REDUCE_{end}", narrow, 1), [1.0], INT32, x.quant.zero_point)
        for end in ("MAX", "MIN")
    ]
    if centred:
        total = b.reduce("REDUCE_SUM", t, 1)

        def deviations(of: Tensor) -> Tensor:
            return _deviations(b, of, total, n, fine)
    else:

        def deviations(of: Tensor) -> Tensor:
            return b.rescale(of, [fine], INT32)

    t, high, low = deviations(t), *map(deviations, ends)
    reach = b.binary("MAXIMUM", high, b.binary("SUB", b.number(0, low), low))
    # What is added counts as a deviation: the sum must not outgrow 31 bits by it.
    reach = b.binary("MAXIMUM", reach, b.number(max(math.ceil(root_of_small * fine), 1), reach))
    up = b.binary("SUB", b.unary("CLZ", reach), b.number(1, reach))
    t = b.binary("MUL", t, _power(b, up))
    bits = _bits(n)
    _, squares = summed(b, b.binary("MUL", t, t, shift=33), 1, bits)
    unit = 2.0 ** (33 + bits)
    added = of_count(
        b, up, lambda k: n * small * (fine * 2.0 ** np.minimum(k, 31)) ** 2 / unit / 2**30
    )
    squares = b.binary("MAXIMUM", b.binary("ADD", squares, added), b.number(1, added))
    root, half = inverse_root_finely(b, squares)
    shift = 31 + math.ceil(bits / 2)
    product = b.binary("MUL", t, root, shift=shift)
    step = math.sqrt(n / unit) * 2.0 ** (shift - 44)
    return Sums(b.binary("MUL", product, _power(b, half)), (step,))


def _power(b: Builder, exponent: Tensor) -> Tensor:
    """Of two. For products: shifts are for positive numbers."""
    return b.binary("LOGICAL_LEFT_SHIFT", b.number(1, exponent), exponent)


def _weighted(
    to: Lowering, value: Sums, weight: torch.Tensor | None, bias: torch.Tensor | None, wide: bool
) -> Real:
    """value * weight + bias; these of value's rank."""
    if weight is None and bias is None:
        return value
    return (_weighted_finely if wide else _weighted_shortly)(to.b, value, weight, bias)


def _weighted_shortly(
    b: Builder, value: Sums, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> Real:
    t, (step,) = value.tensor, value.scales
    t, step = b.rescale(t, [2.0 ** (_KEPT - 29)], INT32), step * 2.0 ** (29 - _KEPT)
    limit = 2**30
    if weight is not None:
        largest = float(weight.abs().max()) or 1.0
        unit = largest / 2**_WEIGHT
        if bias is not None:  # coarser factors where the bias would not fit
            unit = max(unit, float(bias.abs().max()) / (step * limit))
        factors = (weight.double() / unit).round().numpy()
        t, step = b.binary("MUL", t, b.const(factors, INT32)), step * unit
    if bias is not None:
        steps = (bias.double() / step).round().clamp(-limit, limit).numpy()
        t = b.binary("ADD", t, b.const(steps, INT32))
    return Sums(t, (step,))


def _weighted_finely(
    b: Builder, value: Sums, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> Real:
    t, (step,) = value.tensor, value.scales
    if weight is not None:
        largest = float(weight.abs().max()) or 1.0
        factors = (weight.double() / largest * 2**30).round().numpy()
        t, step = b.binary("MUL", t, b.const(factors, INT32), shift=30), step * largest
    if bias is not None:
        wanted = max(step, float(bias.abs().max()) * 2.0**-29)
        if wanted > step:
            t, step = b.rescale(t, [step / wanted], INT32), wanted
        t = b.binary("ADD", t, b.const((bias.double() / step).round().numpy(), INT32))
    return Sums(t, (step,))


def _known(to: Lowering, node: Node | None, shape: Sequence[int]) -> torch.Tensor | None:
    return None if node is None else to.constants.tensor(node).reshape(tuple(shape))


def _over_last(to: Lowering, node: Node, args: Args, centred: bool) -> Real:
    x = to.stored(args["input"])
    n = math.prod(args["normalized_shape"])
    shape = (math.prod(x.shape) // n, n)
    eps = args["eps"]
    made = _normalized(to, x, shape, torch.finfo().eps if eps is None else float(eps), centred)
    weight, bias = (_known(to, args.get(k), (1, n)) for k in ("weight", "bias"))
    return _unfolded(to, _weighted(to, made, weight, bias, _is_wide(x)), x.shape)


def _is_wide(x: Stored) -> bool:
    return x.tensor.dtype != INT8


def _unfolded(to: Lowering, value: Real, shape: Sequence[int]) -> Real:
    return Combined((value,), tuple(shape), lambda ts, quant: to.b.reshape(ts[0], shape))


def _layer_norm(to: Lowering, node: Node, args: Args) -> Real:
    return _over_last(to, node, args, True)


def _native_layer_norm(to: Lowering, node: Node, args: Args) -> tuple[Value, ...]:
    return (_over_last(to, node, args, True),)


def _rms_norm(to: Lowering, node: Node, args: Args) -> Real:
    return _over_last(to, node, args, False)


def _by_groups(to: Lowering, node: Node, args: Args, x: Stored, groups: int) -> Real:
    n, c = x.shape[:2]
    rows = n * groups
    made = _normalized(to, x, (rows, math.prod(x.shape) // rows), float(args["eps"]), True)
    whole = (n, c, math.prod(x.shape[2:]))
    shaped: Tensor = to.b.reshape(made.tensor, whole)
    weight, bias = (_known(to, args[k], (1, c, 1)) for k in ("weight", "bias"))
    weighted = _weighted(to, Sums(shaped, made.scales), weight, bias, _is_wide(x))
    return _unfolded(to, weighted, x.shape)


def _group_norm(to: Lowering, node: Node, args: Args) -> Real:
    return _by_groups(to, node, args, to.stored(args["input"]), int(args["num_groups"]))


def _instance_norm(to: Lowering, node: Node, args: Args) -> Real:
    x = to.stored(args["input"])
    return _by_groups(to, node, args, x, sizes(args["input"])[1])


def _of_input(q: Ask) -> str | None:
    return None if q.args["use_input_stats"] else "running statistics"


def _row(name: str, target: Any, lower: Any, *rules: Constraint) -> None:
    keep = not name.startswith("native")
    define(
        name,
        (target,),
        lower,
        (constant("weight", "bias"), *rules),
        keep=keep,
        quantization=UNARY if keep else None,
        also="in 32 bits; the root by a table, in 16 bits and a step of Newton's method",
    )


_row("layer_norm", aten.layer_norm.default, _layer_norm)
_row("native_layer_norm", aten.native_layer_norm.default, _native_layer_norm)
_row("rms_norm", aten.rms_norm.default, _rms_norm)
_row("group_norm", aten.group_norm.default, _group_norm)
_row(
    "instance_norm",
    aten.instance_norm.default,
    _instance_norm,
    Constraint("statistics of the input", _of_input),
)
