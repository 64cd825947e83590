"""Attention by relative positions without `gather`.

    gather(x @ C, -1, indices)      C and the indices constant, the indices a Toeplitz matrix
    cut(x @ C[:, picked])           one column for each distance

are the same: the second's columns are those of the first, in an order in which each row is the
row above, moved by one element. So that rows need only be cut, not searched; and there is one
column for each distance that occurs, not for each that the model was trained for.

Requires: one spelling (`normalize`), constants that are folded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.graph import arguments, call, fake, is_static
from edgewise.edge.indices import ByDistance, by_distance
from edgewise.edge.program import Constants, replace_calls

aten = torch.ops.aten

_PRODUCTS = (aten.matmul.default, aten.bmm.default, aten.mm.default)
_VIEWS = (aten.view_copy.default, aten.view.default)
_EXPANSIONS = (aten.expand_copy.default, aten.expand.default)

MOST_COLUMNS = 4
"""A product may grow by this factor: a long row against few trained distances is gathered."""


def multiply_by_distance(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    return replace_calls(program, aten.gather.default, _multiplied)


def _multiplied(graph: Graph, node: Node, constants: Constants) -> Node | None:
    args = arguments(node)
    after = fake(node).shape
    product = _product(args["self"])
    if product is None or not is_static(after) or len(after) < 2:
        return None
    x, matrix = product.args
    if args["dim"] % len(after) != len(after) - 1 or matrix not in constants:
        return None
    if fake(args["self"]).shape[:-1] != after[:-1]:
        return None
    known = _distances(args["index"], constants)
    assert isinstance(matrix, Node)
    if known is None or (known.rows, known.columns) != tuple(after[-2:]):
        return None
    columns = constants.tensor(matrix)
    if columns.dim() < 2 or len(known.picked) > MOST_COLUMNS * columns.shape[-1]:
        return None
    name = f"{matrix.name.removeprefix('p_').removeprefix('c_')}_by_distance"
    picked = constants.add(name, columns.index_select(-1, known.picked).contiguous())
    count = len(known.picked)

    def shaped(target: Any, args: tuple[Any, ...], *shape: int) -> Node:
        return call(graph, target, args, node, fake(node).new_empty(shape))

    rows, before = known.rows, after[:-2]
    y = shaped(product.target, (x, picked), *fake(product).shape[:-1], count)
    if rows == 1:
        return shaped(aten.view_copy.default, (y, list(after)), *after)
    flat = [*before, rows * count]
    y = shaped(aten.view_copy.default, (y, flat), *flat)
    start, end = known.cut
    y = shaped(aten.slice_copy.Tensor, (y, len(before), start, end), *before, end - start)
    shape = [*before, rows, count - 1]
    y = shaped(aten.view_copy.default, (y, shape), *shape)
    if known.columns == count - 1:
        return y
    return shaped(aten.slice_copy.Tensor, (y, len(before) + 1, 0, known.columns), *after)


def _product(node: Any) -> Node | None:
    """The product that the node is, or is a view of whose rows are the product's."""
    columns = fake(node).shape[-1:]
    while isinstance(node, Node) and node.target in _VIEWS and len(node.users) == 1:
        node = node.args[0]
        if fake(node).shape[-1:] != columns:
            return None
    is_product = isinstance(node, Node) and node.target in _PRODUCTS and len(node.users) == 1
    return node if is_product else None


def _distances(index: Node, constants: Constants) -> ByDistance | None:
    while index.target in _EXPANSIONS:
        index = index.args[0]  # type: ignore[assignment]
    return by_distance(constants.tensor(index)) if index in constants else None


__all__ = ["multiply_by_distance"]
