"""The rows of the operator table, by family."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from edgewise.backends.neutron.lowering.table import BY_TARGET, ROWS, OpRow
from edgewise.backends.neutron.rows import (
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

_FAMILIES = (
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


def all_rows() -> Sequence[OpRow]:
    """In the order in which the families add them."""
    return ROWS


def row_of(node: Node) -> OpRow | None:
    """The row of a call; None if the NPU has none for it."""
    return BY_TARGET.get(node.target)
