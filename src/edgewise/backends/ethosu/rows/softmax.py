"""Softmax and its logarithm, in 32-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import Args, Lowering, OpRow, add_row
from edgewise.backends.ethosu.lowering.tosa import INT16, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Masked, Real, Stored, Sums
from edgewise.backends.ethosu.rows.fixed_point import looked_up, mantissa, of_mantissa

aten = torch.ops.aten

_ONE = 2**15 - 1


def _exponentials(to: Lowering, given: Real, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """x - max(x) in steps of x, its exponentials with 15 bits, and their sums."""
    b = to.b
    x = given.value if isinstance(given, Masked) else given
    assert isinstance(x, Stored)
    zero = x.quant.zero_point
    t = b.rescale(x.tensor, [1.0], INT32, zero)
    if isinstance(given, Masked):
        # What is not kept must not be the maximum, and counts nothing.
        keep, limits = _limits(to, given, -128 - zero)
        t = b.binary("MINIMUM", t, limits)
        narrow = b.rescale(t, [1.0], x.quant.type, 0, zero)
    else:
        narrow = x.tensor
    most = b.rescale(b.reduce("REDUCE_MAX", narrow, dim), [1.0], INT32, zero)
    below = b.binary("SUB", t, most)
    # The table has an entry for each of the 256 differences.
    index = b.rescale(below, [128.0], INT16)
    scale = x.quant.scale

    def exponential(i: Any) -> Any:
        return np.exp(np.minimum(i / 128, 0) * scale) * (_ONE / 2**15)

    powers = looked_up(b, index, exponential, 15)
    if isinstance(given, Masked):
        powers = b.binary("MUL", powers, keep)
    return below, powers, b.reduce("REDUCE_SUM", powers, dim)


def _limits(to: Lowering, given: Masked, least: int) -> tuple[Tensor, Tensor]:
    """In 32 bits: ones where numbers are kept, else zeros; and what numbers may be there: anything,
    or `least`."""
    b, keep = to.b, given.keep
    shape = (1,) * (len(given.shape) - len(keep.shape)) + tuple(keep.shape)
    if isinstance(keep, torch.Tensor):
        known = keep.reshape(shape).numpy()
        return b.const(known, INT32), b.const(np.where(known, 2**15, least), INT32)
    ones = b.rescale(b.reshape(keep, shape), [1.0], INT32)
    raised = b.binary("MUL", ones, b.number(2**15 - least, ones))
    return ones, b.binary("ADD", raised, b.number(least, raised))


def _operand(to: Lowering, node: Any) -> Stored | Masked:
    found = to.real(node)
    return found if isinstance(found, Masked) else to.stored(node)


def _softmax(to: Lowering, node: Node, args: Args) -> Real:
    b, x = to.b, _operand(to, args["self"])
    _, powers, total = _exponentials(to, x, args["dim"] % len(x.shape))
    index, zeros = mantissa(b, total)
    inverse = looked_up(b, index, of_mantissa(lambda m: 1 / m * (_ONE / 2**15)), 15)
    # No term is larger than the sum: shifted up as far, it has at most 31 bits, and the product
    # of its upper 16 with the inverse mantissa at most 31 again.
    up = b.binary("SUB", zeros, b.number(1, zeros))
    high = b.rescale(b.binary("LOGICAL_LEFT_SHIFT", powers, up), [2.0**-15], INT32)
    return Sums(b.binary("MUL", high, inverse), (1 / (_ONE * 2.0**15),))


def _log_softmax(to: Lowering, node: Node, args: Args) -> Real:
    b, x = to.b, to.stored(args["self"])
    below, _, total = _exponentials(to, x, args["dim"] % len(x.shape))
    index, zeros = mantissa(b, total)
    bits = 15
    logarithm = looked_up(b, index, of_mantissa(lambda m: np.log(m) * (_ONE / 2**15)), bits)
    # log(total / one) = log(mantissa) + (31 - zeros) * log(2) - log(one), in steps of 2**-bits
    twos = b.rescale(b.binary("SUB", b.number(31, zeros), zeros), [np.log(2) * 2**bits], INT32)
    one = b.number(round(np.log(_ONE) * 2**bits), twos)
    log_total = b.binary("SUB", b.binary("ADD", logarithm, twos), one)
    scaled = b.rescale(below, [x.quant.scale * 2**bits], INT32)
    return Sums(b.binary("SUB", scaled, log_total), (2.0**-bits,))


_EXPONENTIALS = "in 32 bits: exponentials of the distance from the maximum, by tables"
add_row(OpRow("softmax", (aten._softmax.default,), _softmax, int16=False, also=_EXPONENTIALS))
add_row(
    OpRow(
        "log_softmax",
        (aten._log_softmax.default,),
        _log_softmax,
        int16=False,
        also=_EXPONENTIALS,
    )
)
