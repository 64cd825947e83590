"""Booleans read from what numbers are made of.

    (1 - mask.float()).bool()          mask != 1, of integers

compute the same. Models invert masks so. The first needs real numbers, which a backend computes,
before booleans, which it may not; the second does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.graph import arguments, call, calls, erase_dead, replace
from edgewise.edge.spellings import with_twins

aten = torch.ops.aten

_CASTS = (aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default)
_COPIES = with_twins(aten.alias.default, aten.clone.default, aten.detach.default)
_VIEWS = with_twins(
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.dim,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
)
_SUBTRACT = (aten.rsub.Scalar, aten.sub.Tensor)


def read_booleans_from_integers(graph: Graph) -> bool:
    """In place; whether there was such a cast."""
    changed = False
    for node in calls(graph):
        source = node.args[0] if node.target in _CASTS else None
        if not isinstance(source, Node) or _dtype(node) != torch.bool or not _is_real(source):
            continue
        with graph.inserting_before(node):
            made = _differs(source, 0)
        if made is not None:
            replace(node, made)
            changed = True
    if changed:
        erase_dead(graph)
    return changed


def _differs(node: Node, number: int) -> Node | None:
    """Booleans: where real numbers are not this one. None if they are not made of integers,
    booleans or an input."""
    subtracted = _taken_from_one(node) if number == 0 else None
    if subtracted is not None:
        return _is_not(subtracted, 1)
    source = node.args[0] if node.args else None
    if not isinstance(source, Node):
        return None
    if node.target in _CASTS and not _is_real(source):
        return _is_not(source, number)
    if node.target in _COPIES:
        return _differs(source, number)
    if node.target in _VIEWS:
        made = _differs(source, number)
        return None if made is None else _made(node, node.target, made, *node.args[1:])
    return None


def _taken_from_one(node: Node) -> Node | None:
    """x of `1 - x`."""
    if node.target not in _SUBTRACT or arguments(node)["alpha"] != 1:
        return None
    first, second = node.args[:2]
    if node.target is aten.rsub.Scalar:
        first, second = second, first
    is_one = isinstance(first, (int, float)) and first == 1
    return second if is_one and isinstance(second, Node) else None


def _is_not(node: Node, number: int) -> Node | None:
    if not _is_real(node):
        if _dtype(node) != torch.bool:
            return _made(node, aten.ne.Scalar, node, number)
        return node if number == 0 else _made(node, aten.logical_not.default, node)
    if node.op == "placeholder":
        return _made(node, aten.ne.Scalar, node, number)
    return _differs(node, number)


def _made(like: Node, target: Any, *args: Any) -> Node:
    values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
    return call(like.graph, target, args, like, target(*values))


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_real(node: Node) -> bool:
    dtype = _dtype(node)
    return dtype is not None and dtype.is_floating_point
