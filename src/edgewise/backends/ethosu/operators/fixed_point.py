"""Reciprocals, roots and logarithms of positive 32-bit integers.

A number is shifted until its leading bit stands at a fixed position; the function of what is
then a mantissa is looked up in a table of 513 that TOSA interpolates. For results of 8 bits its 15
bits suffice. For those of 16 bits, two tables make 30, or a step of Newton's method does. What is
enlarged beyond 2**29 is multiplied: a RESCALE's results must be below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.tosa import INT16, INT32, Tensor

Function = Callable[[Any], Any]


def looked_up(b: Builder, t: Tensor, function: Function, bits: int) -> Tensor:
    """`round(2**bits * function(index))` for 16-bit indices, as int32; below 2**15."""
    index = (np.arange(513, dtype=np.float64) - 256) * 128
    values = np.clip(np.round(function(index) * 2.0**bits), -(2**15), 2**15 - 1)
    wide = b.table(t, values.astype(np.int16))
    return b.rescale(wide, [1 / 128], INT32)


def looked_up_finely(b: Builder, t: Tensor, function: Function) -> Tensor:
    """`round(2**30 * function(index))` for 16-bit indices, lines between each 128th: of a function
    from 0 to 1, whose upper and lower 15 bits are two tables."""
    index = (np.arange(513, dtype=np.float64) - 256) * 128
    values = np.clip(np.round(function(index) * 2.0**30), 0, 2**30 - 1).astype(np.int64)
    high = b.table(t, (values >> 15).astype(np.int16))
    high = b.binary("MUL", high, b.number(2**8, high))
    low = b.rescale(b.table(t, (values & (2**15 - 1)).astype(np.int16)), [2.0**-7], INT32)
    return b.binary("ADD", high, low)


def of_count(b: Builder, count: Tensor, function: Function) -> Tensor:
    """`round(2**30 * function(count))` of integers from 0 to 511."""
    index = b.rescale(b.binary("SUB", count, b.number(256, count)), [128.0], INT16)
    return looked_up_finely(b, index, lambda i: function(i / 128 + 256))


def exponential(b: Builder, below: Tensor, scale: float) -> Tensor:
    """`round(2**30 * exp(below * scale))` of integers from -2**16 + 1 to 0."""
    far = b.binary("SUB", b.number(0, below), below)
    # floor(far / 256): a rescale rounds halves up.
    twice = b.binary("SUB", b.binary("ADD", far, far), b.number(255, far))
    coarse = b.rescale(twice, [2.0**-9], INT32)
    fine = b.binary("SUB", far, b.binary("MUL", coarse, b.number(256, coarse)))
    parts = [
        of_count(b, count, lambda k, step=step: np.exp(-k * step * scale))  # type: ignore[misc]
        for count, step in ((coarse, 256), (fine, 1))
    ]
    return b.binary("MUL", parts[0], parts[1], shift=30)


def summed(b: Builder, t: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """32-bit integers divided by `2**bits`; and their sum, which may be larger than 32 bits,
    divided, too, and rounded once."""
    if bits == 0:
        return t, b.reduce("REDUCE_SUM", t, dim)
    high = b.rescale(t, [2.0**-bits], INT32)
    low = b.binary("SUB", t, b.binary("MUL", high, b.number(2**bits, high)))
    rest = b.rescale(b.reduce("REDUCE_SUM", low, dim), [2.0**-bits], INT32)
    return high, b.binary("ADD", b.reduce("REDUCE_SUM", high, dim), rest)


def normalized(b: Builder, value: Tensor) -> tuple[Tensor, Tensor]:
    """Of positive numbers: `value * 2**(zeros - 1)`, from 2**30 to 2**31, and how many leading
    `zeros` they had: value = mantissa * 2**(31 - zeros)."""
    zeros = b.unary("CLZ", value)
    up = b.binary("SUB", zeros, b.number(1, zeros))
    return b.binary("LOGICAL_LEFT_SHIFT", value, up), zeros


def mantissa_index(b: Builder, high: Tensor) -> Tensor:
    """Of numbers from 2**30 to 2**31: 16-bit indices of mantissas, see `of_mantissa`."""
    middle = b.binary("SUB", high, b.number(3 << 29, high))
    return b.rescale(middle, [2.0**-14], INT16)


def of_mantissa(function: Function) -> Function:
    """The function of the mantissa (1 to 2) that an index of `mantissa_index` stands for."""
    return lambda index: function(np.clip((index / 2.0**16 + 1.5), 1.0, 2.0))


def reciprocal(b: Builder, high: Tensor) -> Tensor:
    """`2**60 / high` of numbers from 2**30 to 2**31, within 2 parts of 2**29."""
    guess = looked_up(b, mantissa_index(b, high), of_mantissa(lambda m: 1 / m * (1 - 2.0**-15)), 15)
    r = b.binary("MUL", guess, b.number(2**15, guess))
    # r * (2 - m * r)
    product = b.binary("MUL", high, r, shift=31)
    return b.binary("MUL", r, b.binary("SUB", b.number(1 << 30, product), product), shift=29)


def _halved(b: Builder, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of positive numbers: `value * 2**(2 * half)`, from 2**29 to 2**31; half; 16-bit indices."""
    zeros = b.unary("CLZ", value)
    # floor((zeros - 1) / 2), as a rescale: see `Builder.binary`.
    twice = b.binary("SUB", b.binary("ADD", zeros, zeros), b.number(3, zeros))
    half = b.rescale(twice, [0.25], INT32)
    even = b.binary("ADD", half, half)
    high = b.binary("LOGICAL_LEFT_SHIFT", value, even)
    # From 2**29..2**31 to -3 * 2**13..3 * 2**13
    middle = b.binary("SUB", high, b.number(5 << 28, high))
    return high, half, b.rescale(middle, [2.0**-15], INT16)


def _root(index: Any) -> Any:
    return 1 / np.sqrt(np.clip(index / 2.0**15 + 1.25, 0.5, 2.0))


def inverse_root(b: Builder, value: Tensor) -> tuple[Tensor, Tensor]:
    """Of positive numbers: r below 2**15 and h with 1 / sqrt(value) = r * 2**(h - 29)."""
    _, half, index = _halved(b, value)
    return looked_up(b, index, _root, 14), half


def inverse_root_finely(b: Builder, value: Tensor) -> tuple[Tensor, Tensor]:
    """Of positive numbers: r below 2**30 and h with 1 / sqrt(value) = r * 2**(h - 44)."""
    high, half, index = _halved(b, value)
    guess = looked_up(b, index, _root, 14)
    r = b.binary("MUL", guess, b.number(2**15, guess))
    # r * (3 - m * r * r) / 2
    square = b.binary("MUL", r, r, shift=29)
    product = b.binary("MUL", square, high, shift=30)
    return b.binary("MUL", r, b.binary("SUB", b.number(3 << 29, r), product), shift=30), half
