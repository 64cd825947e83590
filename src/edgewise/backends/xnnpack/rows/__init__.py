"""Rows of the operator table, by family. Importing this fills the table."""

from collections.abc import Sequence

from torch.fx import Node

from edgewise.backends.xnnpack.lowering.table import BY_TARGET, ROWS, OpRow
from edgewise.backends.xnnpack.rows import (
    activations,
    attention,
    convolution,
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
)


def all_rows() -> Sequence[OpRow]:
    return ROWS


def row_of(node: Node) -> OpRow | None:
    """The row of the node's operator, if it has one."""
    return BY_TARGET.get(node.target) or BY_TARGET.get(str(node.target))


__all__ = [
    "activations",
    "all_rows",
    "attention",
    "convolution",
    "elementwise",
    "linear",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reductions",
    "resample",
    "row_of",
    "selection",
    "shape",
    "statistics",
]
