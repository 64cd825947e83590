"""Reciprocals, roots and logarithms of positive 32-bit integers.

A number is shifted until its leading bit stands at a fixed place; the function of what is
then a mantissa is looked up in a table of 513 that TOSA interpolates.
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


def mantissa(b: Builder, value: Tensor) -> tuple[Tensor, Tensor]:
    """Of positive numbers: 16-bit indices of mantissas (see `of_mantissa`), and how many
    leading zeros they had: value = mantissa * 2**(31 - zeros)."""
    zeros = b.unary("CLZ", value)
    up = b.binary("SUB", zeros, b.number(1, zeros))
    high = b.binary("LOGICAL_LEFT_SHIFT", value, up)
    # From 2**30..2**31 to -2**15..2**15
    middle = b.binary("SUB", high, b.number(3 << 29, high))
    return b.rescale(middle, [2.0**-14], INT16), zeros


def of_mantissa(function: Function) -> Function:
    """The function of the mantissa (1 to 2) that an index of `mantissa` stands for."""
    return lambda index: function(np.clip((index / 2.0**16 + 1.5), 1.0, 2.0))


def inverse_root(b: Builder, value: Tensor) -> tuple[Tensor, Tensor]:
    """Of positive numbers: r below 2**15 and h with 1 / sqrt(value) = r * 2**(h - 29)."""
    zeros = b.unary("CLZ", value)
    # floor((zeros - 1) / 2), as a rescale: see `Builder.binary`.
    twice = b.binary("SUB", b.binary("ADD", zeros, zeros), b.number(3, zeros))
    half = b.rescale(twice, [0.25], INT32)
    even = b.binary("ADD", half, half)
    high = b.binary("LOGICAL_LEFT_SHIFT", value, even)
    # From 2**29..2**31 to -3 * 2**13..3 * 2**13
    middle = b.binary("SUB", high, b.number(5 << 28, high))
    index = b.rescale(middle, [2.0**-15], INT16)

    def root(i: Any) -> Any:
        return 1 / np.sqrt(np.clip(i / 2.0**15 + 1.25, 0.5, 2.0))

    return looked_up(b, index, root, 14), half
