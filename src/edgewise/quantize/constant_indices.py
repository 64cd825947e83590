"""Elements by constant indices as slices, for processors that only cut and join."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.fold import known_value
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten

MOST_SLICES = 64


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
    if len(found) > MOST_SLICES:
        return None
    parts = [_slice(node, x, dim, start, length) for start, length in found]
    y = parts[0] if len(parts) == 1 else step(node, aten.cat.default, parts, dim)
    after = [*shape[:dim], *known.shape, *shape[dim + 1 :]]
    return y if list(y.meta["val"].shape) == after else step(node, aten.reshape.default, y, after)


def _slice(node: Node, x: Node, dim: int, start: int, length: int) -> Node:
    if length == x.meta["val"].shape[dim]:
        return x
    return step(node, aten.slice.Tensor, x, dim, start, start + length)


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Starts and lengths of the runs in which each index is the one before plus one."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and sum(found[-1]) == index:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
    return found


__all__ = ["runs", "take_by_slices"]
