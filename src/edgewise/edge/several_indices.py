"""Constant indices of several neighbouring dimensions (`x[:, rows, columns]`) as those of one.

What backends take is slices of one dimension.

Requires: one spelling (`normalize`), constants that are folded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.graph import call, fake, is_static
from edgewise.edge.indices import flattened
from edgewise.edge.program import Constants, replace_calls

aten = torch.ops.aten


def neighbours(indices: Sequence[Any]) -> tuple[int, int] | None:
    """The first of several dimensions that have an index, one behind the other, and how many; None
    if there is one only, or others between them."""
    given = [dim for dim, index in enumerate(indices) if index is not None]
    joined = len(given) > 1 and given == list(range(given[0], given[-1] + 1))
    return (given[0], len(given)) if joined else None


def join_indices(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    return replace_calls(program, aten.index.Tensor, _joined)


def _joined(graph: Graph, node: Node, constants: Constants) -> Node | None:
    x: Any = node.args[0]
    indices: Any = node.args[1]
    found = neighbours(indices)
    if found is None or not is_static(fake(x).shape):
        return None
    first, count = found
    behind = first + count
    if not all(index in constants for index in indices[first:behind]):
        return None
    shape = list(fake(x).shape)
    known = [constants.tensor(index) for index in indices[first:behind]]
    flat = flattened(known, shape[first:behind])
    if flat is None:
        return None
    joined = [*shape[:first], math.prod(shape[first:behind]), *shape[behind:]]
    view = call(graph, aten.view_copy.default, (x, joined), node, fake(x).new_empty(joined))
    index = constants.add(f"{node.name}_indices", flat)
    return call(graph, node.target, (view, [*[None] * first, index]), node, fake(node))


__all__ = ["join_indices", "neighbours"]
