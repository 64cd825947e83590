"""Elementwise operations on operands without their zero points, int64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.memory import Array

UNARY = ("LRELU", "ABS", "CLZ", "NOT")


def _shift_right(a: Array, b: Array, rounding: str) -> Array:
    b = np.clip(b, 0, 63)
    if rounding == "NATURAL":
        return np.asarray((a + np.where(b > 0, np.int64(1) << np.maximum(b - 1, 0), 0)) >> b)
    if rounding in ("TRUNCATE", "TRUNCATE_TO_LOWER"):
        return np.asarray(a >> b)
    if rounding in ("DBL", "DOUBLE_SYMMETRIC"):
        # Halves away from zero.
        half = np.where(b > 0, np.int64(1) << np.maximum(b - 1, 0), 0)
        return np.where(a < 0, -((-a + half) >> b), (a + half) >> b)
    raise NotSimulatedError(f"not simulated: SHR with rounding {rounding}")


def _leading_zeros(a: Array) -> Array:
    """Of 32 bits."""
    low = (a & 0xFFFFFFFF).astype(np.float64)
    return np.where(low == 0, 32, 31 - np.frexp(np.maximum(low, 1))[1] + 1).astype(np.int64)


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "MUL": np.multiply,
    "ADD": np.add,
    "SUB": np.subtract,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "SHL": lambda a, b: a << np.clip(b, 0, 31),
    "LSR": lambda a, b: (a & 0xFFFFFFFF) >> np.clip(b, 0, 63),
    "CMP_EQ": lambda a, b: (a == b).astype(np.int64),
    "CMP_NE": lambda a, b: (a != b).astype(np.int64),
    "CMP_GE": lambda a, b: (a >= b).astype(np.int64),
    "CMP_GT": lambda a, b: (a > b).astype(np.int64),
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "AND_NOT": lambda a, b: a & ~b,
}


def binary(mode: str, a: Array, b: Array, rounding: str) -> Array:
    if mode == "SHR":
        return _shift_right(a, b, rounding)
    if mode not in BINARY:
        raise NotSimulatedError(f"not simulated: elementwise {mode}")
    return BINARY[mode](a, b)


def unary(mode: str, a: Array) -> Array:
    if mode == "ABS":
        return np.abs(a)
    if mode == "CLZ":
        return _leading_zeros(a)
    if mode == "NOT":
        return ~a
    raise NotSimulatedError(f"not simulated: elementwise {mode}")
