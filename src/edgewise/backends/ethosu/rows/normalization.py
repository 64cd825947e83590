"""Layer, group, instance and root-mean-square normalisation, in 32-bit integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import (
    Args,
    Ask,
    Constraint,
    Lowering,
    OpRow,
    Value,
    add_row,
)
from edgewise.backends.ethosu.lowering.tosa import INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored, Sums
from edgewise.backends.ethosu.rows.fixed_point import inverse_root
from edgewise.backends.ethosu.rows.shape import sizes
from edgewise.partition.constraints import constant

aten = torch.ops.aten

_LARGEST = 2.0**30.8
"""What sums of squares may reach."""
_KEPT = 17
"""Bits of normalised numbers before they are weighted."""
_WEIGHT = 12


def centred_squares(
    to: Lowering, x: Stored, shape: Sequence[int], small: float, centred: bool
) -> tuple[Tensor, Tensor, float]:
    """Of rows of x ([rows, n]): deviations in steps of x.scale / fine, sums of their squares, and
    fine.

    small: what is added to a mean square, in square steps of x. centred: deviations from the mean.
    """
    b = to.b
    n = shape[1]
    t = b.rescale(b.reshape(x.tensor, shape), [1.0], INT32, x.quant.zero_point)
    # So finely that squares just fit: those around a mean are a quarter as large.
    reach = (127.5 if centred else 255.0) + 1
    fine = math.sqrt(_LARGEST / (n * (reach**2 + small)))
    if centred:
        whole = b.binary("MUL", t, b.number(n, t))
        t = b.rescale(b.binary("SUB", whole, b.reduce("REDUCE_SUM", t, 1)), [fine / n], INT32)
    else:
        t = b.rescale(t, [fine], INT32)
    return t, b.reduce("REDUCE_SUM", b.binary("MUL", t, t), 1), fine


def _normalized(to: Lowering, x: Stored, shape: Sequence[int], eps: float, centred: bool) -> Sums:
    """Rows of x ([rows, n]) by their deviation."""
    b, n = to.b, shape[1]
    small = eps / x.quant.scale**2
    t, squares, fine = centred_squares(to, x, shape, small, centred)
    least = max(round(small * n * fine**2), 1)
    root, half = inverse_root(b, b.binary("ADD", squares, b.number(least, squares)))
    product = b.binary("MUL", t, root)
    # By a product: shifts are for positive numbers.
    power = b.binary("LOGICAL_LEFT_SHIFT", b.number(1, half), half)
    return Sums(b.binary("MUL", product, power), (math.sqrt(n) * 2.0**-29,))


def _weighted(
    to: Lowering, value: Sums, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> Real:
    """value * weight + bias; these of value's rank."""
    b, t, (step,) = to.b, value.tensor, value.scales
    if weight is None and bias is None:
        return value
    t, step = b.rescale(t, [2.0 ** (_KEPT - 29)], INT32), step * 2.0 ** (29 - _KEPT)
    if weight is not None:
        largest = float(weight.abs().max()) or 1.0
        unit = largest / 2**_WEIGHT
        factors = (weight.double() / unit).round().numpy()
        t, step = b.binary("MUL", t, b.const(factors, INT32)), step * unit
    if bias is not None:
        limit = 2**30
        steps = (bias.double() / step).round().clamp(-limit, limit).numpy()
        t = b.binary("ADD", t, b.const(steps, INT32))
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
    return _unfolded(to, _weighted(to, made, weight, bias), x.shape)


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
    return _unfolded(to, _weighted(to, Sums(shaped, made.scales), weight, bias), x.shape)


def _group_norm(to: Lowering, node: Node, args: Args) -> Real:
    return _by_groups(to, node, args, to.stored(args["input"]), int(args["num_groups"]))


def _instance_norm(to: Lowering, node: Node, args: Args) -> Real:
    x = to.stored(args["input"])
    return _by_groups(to, node, args, x, sizes(args["input"])[1])


def _of_input(q: Ask) -> str | None:
    return None if q.args["use_input_stats"] else "running statistics"


def _row(name: str, target: Any, lower: Any, *rules: Constraint) -> None:
    add_row(
        OpRow(
            name,
            (target,),
            lower,
            (constant("weight", "bias"), *rules),
            keep=not name.startswith("native"),
            int16=False,
            also="in 32 bits; the root by a table",
        )
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
