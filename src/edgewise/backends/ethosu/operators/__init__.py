"""Definitions of operators, by family. Importing this fills the table."""

from edgewise.backends.ethosu.lowering.table import TABLE
from edgewise.backends.ethosu.operators import (
    arithmetic,
    bits,
    comparisons,
    convolution,
    functions,
    normalization,
    pieces,
    pooling,
    puts,
    reductions,
    resample,
    selection,
    shape,
    softmax,
)

__all__ = [
    "TABLE",
    "arithmetic",
    "bits",
    "comparisons",
    "convolution",
    "functions",
    "normalization",
    "pieces",
    "pooling",
    "puts",
    "reductions",
    "resample",
    "selection",
    "shape",
    "softmax",
]
