"""Elements by constant indices as slices and products, for processors that only cut, join and
multiply."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.indices import runs
from edgewise.quantize.composites import MOST_PIECES, MOST_WEIGHTS
from edgewise.quantize.fold import known_value
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import constant, replace_calls, step

aten = torch.ops.aten


def take_by_slices(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """A slice for each run of rising indices, joined, in the place of `index_select` and of
    `x[..., indices, ...]` by constants; of nodes that are `wanted`."""
    changed = False
    for target in (aten.index_select.default, aten.index.Tensor):
        changed |= replace_calls(
            model, target, lambda node: _taken(model, node) if wanted(node) else None
        )
    return changed


def _taken(model: GraphModule, node: Node) -> Node | None:
    args = arguments(node)
    x: Node = args["self"]
    if "dim" in args:
        given = [(int(args["dim"]) % max(x.meta["val"].dim(), 1), args["index"])]
    else:
        given = [(dim, one) for dim, one in enumerate(args["indices"]) if one is not None]
    if len(given) != 1 or not is_float(x) or not x.meta["val"].dim():
        return None
    ((dim, index),) = given
    shape = x.meta["val"].shape
    known = known_value(model, index)
    if known is None or known.dtype not in (torch.int32, torch.int64) or not known.numel():
        return None
    if not all(isinstance(size, int) for size in shape):
        return None
    size = int(shape[dim])
    found = runs([i % size for i in known.reshape(-1).tolist()])
    if len(found) > MOST_PIECES:
        return None
    parts = [_slice(node, x, dim, start, length) for start, length in found]
    y = parts[0] if len(parts) == 1 else step(node, aten.cat.default, parts, dim)
    after = [*shape[:dim], *known.shape, *shape[dim + 1 :]]
    return y if list(y.meta["val"].shape) == after else step(node, aten.reshape.default, y, after)


def gather_by_products(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """A product with zeros and ones, of which rows are shifted, in the place of `gather` along the
    last dimension by constants that depend on how far row and column are apart (a Toeplitz matrix),
    as attention by relative positions has them; of nodes that are `wanted`.

    The product picks one element for each distance; row i then begins i elements earlier. Only of
    finite numbers, as integers are: zero times infinity is none.
    """
    return replace_calls(
        model, aten.gather.default, lambda node: _gathered(model, node) if wanted(node) else None
    )


def _gathered(model: GraphModule, node: Node) -> Node | None:
    args = arguments(node)
    x: Node = args["self"]
    shape, after = list(x.meta["val"].shape), list(node.meta["val"].shape)
    rank = len(shape)
    if rank < 2 or int(args["dim"]) % rank != rank - 1 or not is_float(x):
        return None
    if not all(isinstance(n, int) for n in (*shape, *after)) or shape[:-1] != after[:-1]:
        return None
    indices = _same_everywhere(model, args["index"])
    if indices is None or list(indices.shape) != after[-2:]:
        return None
    if not torch.equal(indices[1:, 1:], indices[:-1, :-1]):
        return None
    rows, columns = after[-2:]
    # From the last row's first element, back to the first row's and on to its last.
    elements = torch.cat([indices.flip(0)[:, 0], indices[0, 1:]])
    count = len(elements)
    if count * shape[-1] > MOST_WEIGHTS or count < 2:
        return None
    dtype = x.meta["val"].dtype
    weights = torch.nn.functional.one_hot(elements, shape[-1]).to(dtype)
    y = step(node, aten.linear.default, x, constant(model, node, weights))
    if rows == 1:
        return y
    y = step(node, aten.reshape.default, y, [*shape[:-2], rows * count])
    length = rows * (count - 1)
    y = step(node, aten.slice.Tensor, y, rank - 2, rows - 1, rows - 1 + length)
    y = step(node, aten.reshape.default, y, [*shape[:-2], rows, count - 1])
    return step(node, aten.slice.Tensor, y, rank - 1, 0, columns)


def _same_everywhere(model: GraphModule, index: Node) -> torch.Tensor | None:
    """A constant of integers as a matrix, if all matrices that it has are that one."""
    while index.target in (aten.expand.default, aten.expand_as.default):
        index = index.args[0]  # type: ignore[assignment]
    known = known_value(model, index)
    if known is None or known.dtype not in (torch.int32, torch.int64) or known.dim() < 2:
        return None
    matrices = known.reshape(-1, *known.shape[-2:])
    same = bool((matrices == matrices[:1]).all())
    return matrices[0].long() if len(matrices) and matrices.numel() and same else None


def _slice(node: Node, x: Node, dim: int, start: int, length: int) -> Node:
    if length == x.meta["val"].shape[dim]:
        return x
    return step(node, aten.slice.Tensor, x, dim, start, start + length)


__all__ = ["gather_by_products", "take_by_slices"]
