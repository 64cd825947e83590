"""Views: every one is one of five, or slices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.registry import call, first_operand, rule, sizes_as_arguments
from edgewise.edge.graph import arguments, fake, is_static, replace, same_shape, size_hint
from edgewise.edge.layout import is_laid_out

aten = torch.ops.aten


@rule(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.view_as.default,
    aten.reshape_as.default,
)
def _view(graph: Graph, node: Node) -> Node | None:
    source, after = _in_few_dimensions(first_operand(node)), fake(node)
    if same_shape(fake(source).shape, after.shape):
        return source
    shape: Any = sizes_as_arguments(after.shape)
    if shape is not None:
        pass
    elif node.target in (aten.view.default, aten.reshape.default, aten._unsafe_view.default):
        shape = node.args[1]
    else:
        return None
    return call(graph, aten.view_copy.default, (source, shape), node, after)


_MOST_DIMS = 6
"""That delegates transpose."""


@rule(aten.permute.default)
def _permute(graph: Graph, node: Node) -> Node | None:
    dims = [d % fake(node).dim() for d in arguments(node)["dims"]]
    if dims == sorted(dims):
        return first_operand(node)
    before = fake(first_operand(node))
    if len(dims) > _MOST_DIMS and is_static(before.shape):
        shape, order = _merged(before.shape, dims)
        if len(shape) <= _MOST_DIMS:
            made = _in_few_dimensions(first_operand(node))
            if order != sorted(order):
                few = before.new_empty(shape)
                made = call(graph, aten.view_copy.default, (made, shape), node, few)
                moved = few.permute(order)
                made = call(graph, aten.permute_copy.default, (made, order), node, moved)
            after = list(fake(node).shape)
            return call(graph, aten.view_copy.default, (made, after), node, fake(node))
    return call(graph, aten.permute_copy.default, (first_operand(node), dims), node, fake(node))


def _in_few_dimensions(node: Node) -> Node:
    """What a view of many dimensions is of, which another view may show directly."""
    while node.target is aten.view_copy.default and fake(node).dim() > _MOST_DIMS:
        node = first_operand(node)
    return node


def _merged(shape: Sequence[int], dims: Sequence[int]) -> tuple[list[int], list[int]]:
    """Fewer dimensions to the same effect, and their permutation: without those of one element, and
    with neighbours that stay beside each other as one."""
    kept = [d for d in range(len(shape)) if shape[d] != 1]
    groups: list[list[int]] = []
    for dim in dims:
        if dim not in kept:
            continue
        if groups and kept.index(dim) == kept.index(groups[-1][-1]) + 1:
            groups[-1].append(dim)
        else:
            groups.append([dim])
    lying = sorted(groups)
    return [math.prod(shape[d] for d in group) for group in lying], [lying.index(g) for g in groups]


@rule(aten.transpose.int, aten.t.default, aten.numpy_T.default, aten.mT.default)
def _transpose(graph: Graph, node: Node) -> Node | None:
    rank = fake(node).dim()
    if rank < 2:
        return first_operand(node)
    a, b = (node.args[1], node.args[2]) if node.target is aten.transpose.int else (-2, -1)
    assert isinstance(a, int) and isinstance(b, int)
    dims = list(range(rank))
    if node.target is aten.numpy_T.default:
        dims.reverse()
    else:
        dims[a], dims[b] = dims[b], dims[a]
    if dims == sorted(dims):
        return first_operand(node)
    return call(graph, aten.permute_copy.default, (first_operand(node), dims), node, fake(node))


@rule(aten.expand.default, aten.expand_as.default)
def _expand(graph: Graph, node: Node) -> Node | None:
    before, after = fake(first_operand(node)), fake(node)
    if same_shape(before.shape, after.shape):
        return first_operand(node)
    if is_static(after.shape):
        size: Any = list(after.shape)
    elif node.target is aten.expand.default:
        size = node.args[1]
    else:
        return None
    return call(graph, aten.expand_copy.default, (first_operand(node), size), node, after)


@rule(aten.unsqueeze.default)
def _unsqueeze(graph: Graph, node: Node) -> Node | None:
    dim = node.args[1]
    assert isinstance(dim, int)
    dim %= fake(node).dim()
    return call(graph, aten.unsqueeze_copy.default, (first_operand(node), dim), node, fake(node))


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(graph: Graph, node: Node) -> Node | None:
    before = fake(first_operand(node))
    wanted: Any = node.args[1] if len(node.args) > 1 else range(before.dim())
    wanted = [wanted] if isinstance(wanted, int) else wanted
    asked = {d % max(before.dim(), 1) for d in wanted}
    ones = asked & {d for d, size in enumerate(before.shape) if isinstance(size, int) and size == 1}
    if before.dim() - len(ones) != fake(node).dim():
        # Whether an open size is one, the export has settled; only its example tells.
        ones = asked & {d for d, size in enumerate(before.shape) if size_hint(size) == 1}
    dims = sorted(ones)
    if before.dim() - len(dims) != fake(node).dim():
        return None
    if not dims:
        return first_operand(node)
    return call(graph, aten.squeeze_copy.dims, (first_operand(node), dims), node, fake(node))


@rule(aten.slice.Tensor)
def _slice(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    before, after = fake(first_operand(node)), fake(node)
    if same_shape(before.shape, after.shape) and named["step"] == 1:
        return first_operand(node)
    args = [first_operand(node), named["dim"], named["start"], named["end"], named["step"]]
    return call(graph, aten.slice_copy.Tensor, args, node, after)


@rule(aten.resize.default)
def _resize(graph: Graph, node: Node) -> Node | None:
    """The first elements in another shape. Those that PyTorch leaves undefined are zeros."""
    source, result = first_operand(node), fake(node)
    before, after = fake(source), result.numel()
    if not (is_static(before.shape) and is_static(result.shape)):
        return None
    line = before.new_empty([before.numel()])
    made = call(graph, aten.view_copy.default, (source, [before.numel()]), node, line)
    short = before.new_empty([after])
    if after < before.numel():
        made = call(graph, aten.slice_copy.Tensor, (made, 0, 0, after), node, short)
    elif after > before.numel():
        extra = [0, after - before.numel()]
        made = call(graph, aten.constant_pad_nd.default, (made, extra, 0), node, short)
    return call(graph, aten.view_copy.default, (made, list(result.shape)), node, result)


@rule(aten.narrow.default, aten.narrow_copy.default)
def _narrow(graph: Graph, node: Node) -> Node | None:
    source, dim, start, length = node.args
    if not isinstance(start, int) or not isinstance(length, int) or not isinstance(dim, int):
        return None
    size: Any = fake(first_operand(node)).shape[dim]
    if start < 0 and not isinstance(size, int):
        return None
    if isinstance(size, int):
        start %= max(size, 1)
    args = (source, dim, start, start + length)
    return call(graph, aten.slice_copy.Tensor, args, node, fake(node))


_COPIES: dict[Any, Any] = {
    aten.as_strided.default: aten.as_strided_copy.default,
    aten.diagonal.default: aten.diagonal_copy.default,
    aten.unfold.default: aten.unfold_copy.default,
}


# Their copies lie in memory in another order than what they view.
_REORDERED = {
    aten.permute_copy.default,
    aten.expand_copy.default,
    aten.slice_copy.Tensor,
    aten.select_copy.int,
    *_COPIES.values(),
}
_IN_ORDER = {aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default}


@rule(aten.unfold.default, aten.unfold_copy.default)
def _unfold(graph: Graph, node: Node) -> Node | None:
    """Windows that do not overlap are what there is, in another shape."""
    source, result = first_operand(node), fake(node)
    named = arguments(node)
    size, shape = named["size"], list(fake(source).shape)
    if not shape and size == 1:
        return call(graph, aten.view_copy.default, (source, [1]), node, result)
    plain = "dequantize" not in str(source.target)  # each step would need scales of its own
    if named["step"] != size or not shape or not is_static(shape) or not plain:
        if node.target is aten.unfold_copy.default:
            return None
        return call(graph, aten.unfold_copy.default, node.args, node, result, **node.kwargs)
    dim = named["dimension"] % len(shape)
    count = shape[dim] // size
    made: Node = source
    if count * size < shape[dim]:
        shape[dim] = count * size
        short = fake(source).new_empty(shape)
        made = call(graph, aten.slice_copy.Tensor, (made, dim, 0, shape[dim]), node, short)
    split = fake(source).new_empty([*shape[:dim], count, size, *shape[dim + 1 :]])
    made = call(graph, aten.view_copy.default, (made, list(split.shape)), node, split)
    order = [d for d in range(split.dim()) if d != dim + 1] + [dim + 1]
    if dim + 1 == split.dim() - 1:
        return made
    return call(graph, aten.permute_copy.default, (made, order), node, split.permute(order))


@rule(aten.diagonal.default)
def _rare_view(graph: Graph, node: Node) -> Node | None:
    return call(graph, _COPIES[node.target], node.args, node, fake(node), **node.kwargs)


@rule(aten.as_strided.default)
def _as_strided(graph: Graph, node: Node) -> Node | None:
    """Strides are those of the memory that was viewed, however often: a view of that."""
    source = first_operand(node)
    if source.target not in _REORDERED:
        return call(graph, aten.as_strided_copy.default, node.args, node, fake(node))
    owner = source
    while owner.target in _REORDERED or owner.target in _IN_ORDER:
        owner = first_operand(owner)
    result = fake(node)
    in_order = is_laid_out(fake(owner), torch.contiguous_format)
    if not in_order or fake(owner).storage_offset() != 0:
        return None
    named = arguments(node)
    args = (owner, named["size"], named["stride"], result.storage_offset())
    return call(graph, aten.as_strided_copy.default, args, node, result)


@rule(aten.select.int)
def _select(graph: Graph, node: Node) -> Node | None:
    return call(graph, aten.select_copy.int, node.args, node, fake(node))


@rule(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.split.sizes,
    aten.chunk.default,
    aten.tensor_split.sections,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default,
)
def _split(graph: Graph, node: Node) -> Node | None:
    """Each part becomes a slice of its own: no list of tensors is left."""
    dim = arguments(node)["dim"]
    parts = node.meta["val"]
    sizes = [part.shape[dim] for part in parts]
    if not is_static(sizes):
        if node.target not in _SPLITS_WITH_SIZES:
            return None
        sizes = list(node.args[1])  # type: ignore[arg-type]
    dim %= parts[0].dim()
    ends = _running_sums(graph, node, sizes)
    starts = [0, *ends]
    return _replace_items(
        graph,
        node,
        lambda i: call(
            graph,
            aten.slice_copy.Tensor,
            (first_operand(node), dim, starts[i], ends[i]),
            node,
            parts[i],
        ),
    )


_SPLITS_WITH_SIZES = (
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split.sizes,
)


def _running_sums(graph: Graph, like: Node, sizes: list[Any]) -> list[Any]:
    """Of numbers and of nodes that compute them."""
    sums: list[Any] = []
    made: Any = 0
    for size in sizes:
        values = [n.meta["val"] if isinstance(n, Node) else n for n in (made, size)]
        if isinstance(made, int) and (made == 0 or isinstance(size, int)):
            made = made + size if isinstance(size, int) else size
        else:
            made = call(graph, operator.add, (made, size), like, values[0] + values[1])
        sums.append(made)
    return sums


@rule(aten.unbind.int, aten.unbind_copy.int)
def _unbind(graph: Graph, node: Node) -> Node | None:
    dim, parts = arguments(node)["dim"], node.meta["val"]
    return _replace_items(
        graph,
        node,
        lambda i: call(graph, aten.select_copy.int, (first_operand(node), dim, i), node, parts[i]),
    )


def _replace_items(graph: Graph, node: Node, make: Callable[[int], Node]) -> Node | None:
    """Replaces the getitem users of a node that computes a list; the node itself dies."""
    items = list(node.users)
    if any(item.target is not operator.getitem for item in items):
        return None
    made: dict[int, Node] = {}
    for item in items:
        index = item.args[1]
        assert isinstance(index, int)
        if index not in made:
            made[index] = make(index)
        replace(item, made[index])
    return first_operand(node)  # has no users left that could see it
