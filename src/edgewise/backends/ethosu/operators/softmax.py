"""Softmax and its logarithm, in 32-bit integers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import Args, Ask, Constraint, Lowering, define
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, INT32, RANGE, Tensor
from edgewise.backends.ethosu.lowering.values import (
    Combined,
    Masked,
    Real,
    Stored,
    Sums,
    WholeRows,
)
from edgewise.backends.ethosu.operators.fixed_point import (
    exponential,
    looked_up,
    looked_up_finely,
    mantissa_index,
    normalized,
    of_mantissa,
    reciprocal,
    summed,
)
from edgewise.edge.graph import fake
from edgewise.partition.constraints import HAS_DIMS
from edgewise.quantize.patterns import UNARY

aten = torch.ops.aten

_ONE = 2**15 - 1
_FREE = 2**16
"""Above all that is stored."""
_FEW = 200
"""Exponentials of 8-bit numbers whose sum is exact enough, though each of them has 15 bits: it is
off by at most as many halves in 2**15, less than a step of 256."""
_MOST_TERMS = 2**16
"""Elements that Vela sums at once, whose sum has 31 bits."""


def _distances(to: Lowering, given: Real, dim: int) -> tuple[Tensor, Tensor | None, float]:
    """x - max(x) in steps of x; ones where numbers are kept, if not all are; and the step."""
    b = to.b
    x = given.value if isinstance(given, Masked) else given
    assert isinstance(x, Stored)
    zero = x.quant.zero_point
    t = b.rescale(x.tensor, [1.0], INT32, zero)
    keep = None
    if isinstance(given, Masked):
        # What is not kept must not be the maximum, and counts nothing.
        keep, limits = _limits(to, given, RANGE[x.tensor.dtype][0] - zero, dim)
        t = b.binary("MINIMUM", t, limits)
        narrow = b.rescale(t, [1.0], x.quant.type, 0, zero)
    else:
        narrow = x.tensor
    most = b.rescale(b.reduce("REDUCE_MAX", narrow, dim), [1.0], INT32, zero)
    return b.binary("SUB", t, most), keep, x.quant.scale


def _exponentials(to: Lowering, given: Real, dim: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """x - max(x) in steps of x, its exponentials, their sums, and what of these is 1."""
    b = to.b
    below, keep, scale = _distances(to, given, dim)
    count = given.shape[dim]

    def kept(t: Tensor) -> Tensor:
        return t if keep is None else b.binary("MUL", t, keep)

    if _is_wide(given):
        # The sum must be at most 2**30.
        bits = max(math.ceil(math.log2(count)), 1)
        powers, total = summed(b, kept(exponential(b, below, scale)), dim, bits)
        return below, powers, total, 2.0 ** (30 - bits)
    # The tables have an entry for each of the 256 differences.
    index = b.rescale(below, [128.0], INT16)

    def power(i: Any) -> Any:
        return np.exp(np.minimum(i / 128, 0) * scale) * _ONE

    powers = kept(looked_up(b, index, lambda i: power(i) / 2**15, 15))
    total = b.reduce("REDUCE_SUM", powers, dim)
    if count > _FEW:
        rest = kept(looked_up(b, index, lambda i: power(i) - np.round(power(i)), 15))
        rest = b.rescale(b.reduce("REDUCE_SUM", rest, dim), [2.0**-15], INT32)
        total = b.binary("ADD", total, rest)
    return below, powers, total, float(_ONE)


def _is_wide(given: Real) -> bool:
    x = given.value if isinstance(given, Masked) else given
    return isinstance(x, Stored) and x.tensor.dtype != INT8


def _limits(to: Lowering, given: Masked, least: int, dim: int) -> tuple[Tensor, Tensor]:
    """In 32 bits: ones where numbers count, else zeros; and what numbers may be there: anything,
    or `least`."""
    b, keep = to.b, given.keep
    if isinstance(keep, torch.Tensor):
        known = keep.numpy()
        return b.const(known, INT32), b.const(np.where(known, _FREE, least), INT32)
    ones = b.rescale(keep, [1.0], INT32)
    counted = ones
    if given.wholly != WholeRows.UNDEFINED:
        some = b.rescale(b.reduce("REDUCE_MAX", keep, dim), [1.0], INT32)
        counted = b.binary("MAXIMUM", ones, b.binary("SUB", b.number(1, some), some))
    free = counted if given.wholly == WholeRows.THEMSELVES else ones
    raised = b.binary("MUL", free, b.number(_FREE - least, free))
    return counted, b.binary("ADD", raised, b.number(least, raised))


def _operand(to: Lowering, node: Any) -> Stored | Masked:
    found = to.real(node)
    return found if isinstance(found, Masked) else to.stored(node)


_MOST_DIMS = 4
"""Of more, Vela mistakes on U55 and U65 where the repeated results of 32-bit operators lie."""


def _in_three(to: Lowering, x: Stored | Masked, dim: int) -> tuple[Stored | Masked, int]:
    """What has too many dimensions as [before, dim, behind], and the dimension there. A mask gets
    the dimensions of what is masked."""
    rank, sizes = len(x.shape), x.shape
    if isinstance(x, Masked):
        x = replace(x, keep=_ranked(to, x.keep, rank))
    if rank <= _MOST_DIMS:
        return x, dim
    shape = (math.prod(sizes[:dim]), sizes[dim], math.prod(sizes[dim + 1 :]))

    def moved(given: Stored) -> Stored:
        return Stored(to.b.reshape(given.tensor, shape), given.quant)

    if isinstance(x, Stored):
        return moved(x), 1
    keep = x.keep
    if isinstance(keep, torch.Tensor):
        keep = keep.expand(sizes).reshape(shape)
    else:
        times = [n if m == 1 else 1 for m, n in zip(keep.shape, sizes, strict=True)]
        keep = to.b.reshape(to.b.tile(keep, times), shape)
    return Masked(moved(x.value), keep, x.wholly), 1


def _ranked(to: Lowering, keep: torch.Tensor | Tensor, rank: int) -> torch.Tensor | Tensor:
    """The mask with dimensions of size 1 before its own."""
    shape = (1,) * (rank - len(keep.shape)) + tuple(keep.shape)
    return keep.reshape(shape) if isinstance(keep, torch.Tensor) else to.b.reshape(keep, shape)


def _of_any_rank(lower: Any, masked: bool) -> Any:
    def lowered(to: Lowering, node: Node, args: Args) -> Real:
        x = _operand(to, args["self"]) if masked else to.stored(args["self"])
        made: Real = lower(to, *_in_three(to, x, args["dim"] % len(x.shape)))
        if len(x.shape) <= _MOST_DIMS:
            return made
        return Combined((made,), x.shape, lambda ts, quant: to.b.reshape(ts[0], x.shape))

    return lowered


def _softmax(to: Lowering, x: Stored | Masked, dim: int) -> Real:
    b = to.b
    _, powers, total, _ = _exponentials(to, x, dim)
    high, zeros = normalized(b, total)
    # No term is larger than the sum: shifted up as far, it has at most 31 bits.
    up = b.binary("SUB", zeros, b.number(1, zeros))
    shifted = b.binary("LOGICAL_LEFT_SHIFT", powers, up)
    if _is_wide(x):
        return Sums(b.binary("MUL", shifted, reciprocal(b, high), shift=30), (2.0**-30,))
    inverse = looked_up(
        b, mantissa_index(b, high), of_mantissa(lambda m: 1 / m * (_ONE / 2**15)), 15
    )
    # The product of its upper 16 bits with the inverse mantissa has at most 31 again.
    return Sums(
        b.binary("MUL", b.rescale(shifted, [2.0**-15], INT32), inverse), (1 / (_ONE * 2.0**15),)
    )


def _log_softmax(to: Lowering, x: Stored | Masked, dim: int) -> Real:
    b = to.b
    assert isinstance(x, Stored)
    below, _, total, one = _exponentials(to, x, dim)
    high, zeros = normalized(b, total)
    index = mantissa_index(b, high)
    scale = x.quant.scale
    if _is_wide(x):
        step = (2**16 * scale + 32) / 2**29
        logarithm = looked_up_finely(b, index, of_mantissa(np.log))
        logarithm = b.rescale(logarithm, [2.0**-30 / step], INT32)
    else:
        step = max(2.0**-15, (2**8 * scale + 32) / 2**29)
        logarithm = looked_up(b, index, of_mantissa(lambda m: np.log(m) * (_ONE / 2**15)), 15)
        if step > 2.0**-15:  # of inputs so far apart that finer steps would outgrow 32 bits
            logarithm = b.rescale(logarithm, [2.0**-15 / step], INT32)
    # log(total / one) = log(mantissa) + (31 - zeros) * log(2) - log(one), in steps
    twos = b.rescale(b.binary("SUB", b.number(31, zeros), zeros), [np.log(2) / step], INT32)
    log_one = b.number(round(np.log(one) / step), twos)
    log_total = b.binary("SUB", b.binary("ADD", logarithm, twos), log_one)
    scaled = b.rescale(below, [scale / step], INT32)
    return Sums(b.binary("SUB", scaled, log_total), (step,))


_EXPONENTIALS = "in 32 bits: exponentials of the distance from the maximum, by tables"


def _few_terms(q: Ask) -> str | None:
    shape = fake(q.args["self"]).shape
    count = int(shape[q.args["dim"]]) if shape else 1
    return None if count <= _MOST_TERMS else f"{count}"


for _name, _target, _lower in (
    ("softmax", aten._softmax.default, _softmax),
    ("log_softmax", aten._log_softmax.default, _log_softmax),
):
    _limit = Constraint(f"along a dimension of at most {_MOST_TERMS} elements", _few_terms)
    define(
        _name,
        (_target,),
        _of_any_rank(_lower, _name == "softmax"),
        (HAS_DIMS, _limit),
        also=_EXPONENTIALS,
        quantization=UNARY,
    )
