"""Rows of the operator table, by family. Importing this fills the table."""

from collections.abc import Sequence

from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import BY_TARGET, ROWS, OpRow
from edgewise.backends.ethosu.rows import (
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


def all_rows() -> Sequence[OpRow]:
    return ROWS


def row_of(node: Node) -> OpRow | None:
    """The row of the node's operator, if it has one."""
    return BY_TARGET.get(node.target)


__all__ = [
    "all_rows",
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
    "row_of",
    "selection",
    "shape",
    "softmax",
]
