"""A write through nested views of a buffer becomes one `index_put` on the buffer.

`cache[0, :, 3:5] = x` comes as a slice that is written into a copy of `cache[0]`, which is
written into `cache`. The rule:

    select_scatter(b, slice_scatter(select(b, 0, 0), x, 1, 3, 5), 0, 0)
        = index_put(b, [0, [[0], [1], ...], [[3, 4]]], x)

The outer levels must be selects and slices with known bounds; the innermost one may also be
an `index_put` with one vector of indices. Dimensions between the written ones are indexed by
all of their positions, so that results keep their order.

Requires the edge dialect. Applies to what the method writes back only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, call, erase_dead, fake, is_static
from edgewise.edge.program import Constants, sync_outputs, written_state

aten = torch.ops.aten

_VIEW_OF: dict[Any, Any] = {
    aten.select_scatter.default: aten.select_copy.int,
    aten.slice_scatter.default: aten.slice_copy.Tensor,
}
_STEPS = {*_VIEW_OF, aten.index_put.default, aten.scatter.src, aten.scatter.value}


@dataclass
class _Dim:
    """What a write reaches of one dimension: positions, or those that `index` holds."""

    positions: range
    size: int
    selected: bool = False
    index: Node | None = None

    @property
    def is_whole(self) -> bool:
        return self.index is None and not self.selected and self.positions == range(self.size)


@dataclass
class _Write:
    dims: list[_Dim]
    values: Any
    accumulate: bool


def flatten_nested_writes(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    constants: Constants | None = None
    for _, value in written_state(program):
        node = value
        while isinstance(node, Node) and node.target in _STEPS:
            write = _read(node)
            if write is not None:
                constants = constants or Constants(program)
                node = _put(node, write, constants)
            node = node.args[0]
    if constants is None:
        return False
    erase_dead(program.graph)
    sync_outputs(program)
    return True


def _read(node: Node) -> _Write | None:
    """The write that the node and those inside it make together; None if it is of one level."""
    shape = fake(node).shape
    if not is_static(shape):
        return None
    dims = [_Dim(range(int(size)), int(size)) for size in shape]
    levels = 0
    while node.target in _VIEW_OF:
        if not _narrow(node, dims):
            return None
        inner = arguments(node)["src"]
        if not _writes_view_of(inner, node):
            return _Write(dims, inner, False) if levels else None
        node = inner
        levels += 1
    if levels == 0 or node.target is not aten.index_put.default:
        return None
    return _read_index(node, dims)


def _writes_view_of(inner: Any, outer: Node) -> bool:
    """Whether `inner` writes to the very part of outer's tensor that outer replaces."""
    if not isinstance(inner, Node) or inner.target not in (*_VIEW_OF, aten.index_put.default):
        return False
    view = inner.args[0]
    if not isinstance(view, Node) or view.target is not _VIEW_OF[outer.target]:
        return False
    there, here = arguments(view), arguments(outer)
    here.pop("src")
    return there == here


def _narrow(node: Node, dims: list[_Dim]) -> bool:
    """Applies a select or slice to the dimensions that are left; False if bounds are unknown."""
    left = [d for d in dims if not d.selected]
    named = arguments(node)
    dim = left[named["dim"]]
    if node.target is aten.select_scatter.default:
        if not isinstance(named["index"], int):
            return False
        position = dim.positions[named["index"]]
        dim.positions, dim.selected = range(position, position + 1), True
        return True
    bounds = [named["start"], named["end"], named["step"]]
    if not all(b is None or isinstance(b, int) for b in bounds):
        return False
    dim.positions = dim.positions[slice(*bounds)]
    return True


def _read_index(node: Node, dims: list[_Dim]) -> _Write | None:
    named = arguments(node)
    left = [d for d in dims if not d.selected]
    given = [(d, i) for d, i in zip(left, named["indices"], strict=False) if i is not None]
    if len(given) != 1 or not given[0][0].is_whole:
        return None
    dim, index = given[0]
    if fake(index).dim() != 1 or fake(index).dtype not in (torch.int64, torch.int32):
        return None
    dim.index = index
    return _Write(dims, named["values"], bool(named["accumulate"]))


def _put(node: Node, write: _Write, constants: Constants) -> Node:
    dims = write.dims
    narrowed = [i for i, d in enumerate(dims) if not d.is_whole]
    first, last = narrowed[0], narrowed[-1]
    rank = max(1, sum(not d.selected for d in dims[first : last + 1]))
    indices: list[Node | None] = [None] * first
    axis = 0
    with node.graph.inserting_before(node):
        for dim in dims[first : last + 1]:
            shape = [1] * rank
            if not dim.selected:
                shape[axis] = -1
                axis += 1
            indices.append(_index(node, dim, shape, constants))
        args = (node.args[0], indices, write.values, write.accumulate)
        put = call(node.graph, aten.index_put.default, args, node, node.meta["val"])
    node.replace_all_uses_with(put)
    return put


def _index(node: Node, dim: _Dim, shape: list[int], constants: Constants) -> Node:
    if dim.index is None:
        return constants.add("positions", torch.tensor(list(dim.positions)).reshape(shape))
    value = fake(dim.index).reshape(shape)
    return call(node.graph, aten.view_copy.default, (dim.index, shape), node, value)
