"""Definitions of operators, by family. Importing this fills the table."""

from __future__ import annotations

from edgewise.backends.neutron.lowering.table import TABLE
from edgewise.backends.neutron.operators import (
    activations,
    convolution,
    elementwise,
    linear,
    moves,
    pooling,
    reductions,
    resize,
    softmax,
)

__all__ = [
    "TABLE",
    "activations",
    "convolution",
    "elementwise",
    "linear",
    "moves",
    "pooling",
    "reductions",
    "resize",
    "softmax",
]
