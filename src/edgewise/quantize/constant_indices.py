"""Elements by constant indices as slices and products, for processors that only cut, join and
multiply."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.indices import MOST_RUNS, ByDistance, by_distance, flattened, runs
from edgewise.edge.relative_positions import MOST_COLUMNS
from edgewise.edge.several_indices import neighbours
from edgewise.quantize.composites import MOST_WEIGHTS
from edgewise.quantize.fold import known_value
from edgewise.quantize.patterns import is_float, made_of_weights
from edgewise.quantize.steps import constant, replace_calls, step

aten = torch.ops.aten


def take_by_slices(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """A slice for each run of rising indices, joined, instead of `index_select` and of
    `x[..., indices, ...]` by constants; of nodes that are `wanted`."""
    changed = False
    for target in (aten.index_select.default, aten.index.Tensor):
        changed |= replace_calls(
            model, target, lambda node: _taken(model, node) if wanted(node) else None
        )
    return changed


def join_indices(model: GraphModule) -> bool:
    """Indices of one dimension instead of constant ones of several neighbouring dimensions."""
    return replace_calls(model, aten.index.Tensor, lambda node: _joined(model, node))


def _joined(model: GraphModule, node: Node) -> Node | None:
    args = arguments(node)
    x, indices = args["self"], args["indices"]
    shape = list(x.meta["val"].shape)
    found = neighbours(indices)
    if found is None or not all(isinstance(size, int) for size in shape):
        return None
    first, count = found
    given = [known_value(model, index) for index in indices[first : first + count]]
    known = [index for index in given if index is not None]
    sizes = shape[first : first + count]
    flat = flattened(known, sizes) if len(known) == count else None
    if flat is None:
        return None
    joined = [*shape[:first], math.prod(sizes), *shape[first + count :]]
    view = step(node, aten.reshape.default, x, joined)
    return step(node, aten.index.Tensor, view, [*[None] * first, constant(model, node, flat)])


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
    if len(found) > MOST_RUNS:
        return None
    parts = [_slice(node, x, dim, start, length) for start, length in found]
    y = parts[0] if len(parts) == 1 else step(node, aten.cat.default, parts, dim)
    after = [*shape[:dim], *known.shape, *shape[dim + 1 :]]
    return y if list(y.meta["val"].shape) == after else step(node, aten.reshape.default, y, after)


def gather_by_products(
    model: GraphModule, wanted: Callable[[Node], bool], weights_only: bool = False
) -> bool:
    """A product of which rows are cut, instead of `gather` along the last dimension by
    constants that depend on how far row and column are apart (`edge.indices.ByDistance`); of nodes
    that are `wanted`.

    Of a product with weights it is the product with those columns that are gathered. Of anything
    else, if not `weights_only`, it is one with zeros and ones, which picks one element for each
    distance: that holds of finite numbers, as integers are, for zero times infinity is none.
    """
    weights = made_of_weights(model.graph)
    return replace_calls(
        model,
        aten.gather.default,
        lambda node: _gathered(model, node, weights, weights_only) if wanted(node) else None,
    )


def _gathered(
    model: GraphModule, node: Node, weights: frozenset[Node], weights_only: bool
) -> Node | None:
    args = arguments(node)
    x: Node = args["self"]
    shape, after = list(x.meta["val"].shape), list(node.meta["val"].shape)
    rank = len(shape)
    if rank < 2 or int(args["dim"]) % rank != rank - 1 or not is_float(x):
        return None
    if not all(isinstance(n, int) for n in (*shape, *after)) or shape[:-1] != after[:-1]:
        return None
    known = _distances(model, args["index"])
    if known is None or [known.rows, known.columns] != after[-2:]:
        return None
    count = len(known.picked)
    if x.target in _PRODUCTS and x.args[1] in weights and count <= MOST_COLUMNS * shape[-1]:
        picked = constant(model, node, known.picked)
        columns = step(node, aten.index_select.default, x.args[1], -1, picked)
        y = step(node, x.target, x.args[0], columns)
    elif weights_only or count * shape[-1] > MOST_WEIGHTS:
        return None
    else:
        dtype = x.meta["val"].dtype
        ones = torch.nn.functional.one_hot(known.picked, shape[-1]).to(dtype)
        y = step(node, aten.linear.default, x, constant(model, node, ones))
    if known.rows == 1:
        return y
    start, end = known.cut
    y = step(node, aten.reshape.default, y, [*shape[:-2], known.rows * count])
    y = step(node, aten.slice.Tensor, y, rank - 2, start, end)
    y = step(node, aten.reshape.default, y, [*shape[:-2], known.rows, count - 1])
    return step(node, aten.slice.Tensor, y, rank - 1, 0, known.columns)


_PRODUCTS = (aten.matmul.default, aten.bmm.default, aten.mm.default)


def _distances(model: GraphModule, index: Node) -> ByDistance | None:
    while index.target in (aten.expand.default, aten.expand_as.default):
        index = index.args[0]  # type: ignore[assignment]
    known = known_value(model, index)
    return None if known is None else by_distance(known)


def _slice(node: Node, x: Node, dim: int, start: int, length: int) -> Node:
    if length == x.meta["val"].shape[dim]:
        return x
    return step(node, aten.slice.Tensor, x, dim, start, start + length)


__all__ = ["gather_by_products", "join_indices", "take_by_slices"]
