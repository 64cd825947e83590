"""Rows of the operator table, by family. Importing this fills the table."""

from edgewise.backends.xnnpack.rows import (
    attention,
    convolution,
    elementwise,
    linear,
    normalization,
    pooling,
    shape,
)

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "linear",
    "normalization",
    "pooling",
    "shape",
]
