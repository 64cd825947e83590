"""Multiplication by scale / 2**shift, exact in 64 bits, in the NPU's ways of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.memory import Array

_SPLIT = 31


def scale(value: Array, multiplier: Any, shift: Any, rounding: str) -> Array:
    """round(value * multiplier / 2**shift), int64.

    value: int64. multiplier (below 2**32), shift (0 to 63): numbers, or one for each channel.
    """
    multiplier = np.asarray(multiplier, np.int64)
    shift = np.asarray(shift, np.int64)
    if not shift.any() and np.all(multiplier == 1):
        return value
    if value.size == 0:
        return value
    largest = max(int(value.max()), -int(value.min()), 1)
    if largest * int(np.abs(multiplier).max()) < 1 << 62:
        product = value * multiplier
        # The half that is added can be no more than 2**62 either.
        return _shift_right(np.asarray(product), shift, rounding)
    return _scale_wide(value, multiplier, shift, rounding)


def _half(shift: Array) -> Array:
    return np.asarray(np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0))


def _shift_right(product: Array, shift: Array, rounding: str) -> Array:
    if rounding == "NATURAL":
        return (product + _half(shift)) >> shift
    if rounding in ("DBL", "DOUBLE_SYMMETRIC", "DOUBLE_ASYMMETRIC"):
        nudge = np.where(shift > _SPLIT, np.int64(1) << 30, 0)
        return (product + _half(shift) + np.where(product >= 0, nudge, -nudge)) >> shift
    if rounding == "SYMMETRIC":
        magnitude = (np.abs(product) + _half(shift)) >> shift
        return np.where(product < 0, -magnitude, magnitude)
    if rounding in ("TRUNCATE", "TRUNCATE_TO_ZERO"):
        magnitude = np.abs(product) >> shift
        return np.where(product < 0, -magnitude, magnitude)
    if rounding == "TRUNCATE_TO_LOWER":
        return product >> shift
    raise NotSimulatedError(f"not simulated: rounding {rounding}")


def _scale_wide(value: Array, multiplier: Array, shift: Array, rounding: str) -> Array:
    """The same where the product needs more than 63 bits: value in two parts of 31 bits."""
    if rounding not in ("NATURAL", "TRUNCATE_TO_LOWER"):
        raise NotSimulatedError(f"not simulated: products of more than 63 bits, {rounding}")
    high, low = value >> _SPLIT, value & (1 << _SPLIT) - 1
    half = _half(shift) if rounding == "NATURAL" else np.zeros_like(shift)
    # A half of 2**31 and more goes to the upper part.
    lower = low * multiplier + (half & (1 << _SPLIT) - 1)
    upper = high * multiplier + (half >> _SPLIT) + (lower >> _SPLIT)
    rest = lower & (1 << _SPLIT) - 1
    above = upper >> np.maximum(shift - _SPLIT, 0)
    below = (upper << np.maximum(_SPLIT - shift, 0)) | (rest >> np.minimum(shift, _SPLIT))
    return np.where(shift >= _SPLIT, above, below)
