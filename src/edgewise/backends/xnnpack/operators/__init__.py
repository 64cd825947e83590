"""Definitions of operators, by family. Importing this fills the table."""

from edgewise.backends.xnnpack.lowering.table import TABLE
from edgewise.backends.xnnpack.operators import (
    activations,
    attention,
    convolution,
    elementary,
    elementwise,
    linear,
    normalization,
    pooling,
    quantization,
    recurrent,
    reductions,
    resample,
    selection,
    shape,
    statistics,
    volumes,
)

__all__ = [
    "TABLE",
    "activations",
    "attention",
    "convolution",
    "elementary",
    "elementwise",
    "linear",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reductions",
    "resample",
    "selection",
    "shape",
    "statistics",
    "volumes",
]
