"""Attention under a boolean mask, spelt with a mask that is added.

A backend that computes with floats alone cannot take a mask of booleans that is computed
from an input. Where it would take the attention with a mask of floats, the mask is
converted once, as far up as views and conjunctions allow, and the rest is arithmetic:

    m = float(mask)                                   1 where allowed
    attention(q, k, v, mask) = attention(q, k, v, (m - 1) * LARGE) * min(1, 2 * sum(m))

The factor makes a row that may attend to nothing zeros, as PyTorch does; finite numbers
keep NaN out of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.graph import arguments, call, calls, erase_dead, fake, is_static, replace
from edgewise.edge.provenance import forget

aten = torch.ops.aten
_attention = aten.scaled_dot_product_attention.default

LARGE = {torch.float32: 1e30, torch.float16: 3e4}
"""What is taken from the score of a forbidden pair: more than scores differ by."""

_VIEWS = (
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.view.default,
    aten.reshape.default,
    aten.slice.Tensor,
    aten.transpose.int,
    aten.permute.default,
    aten.expand.default,
)
_CASTS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten._to_copy.default)
_AND = (aten.logical_and.default, aten.bitwise_and.Tensor, aten.__and__.Tensor)


def make_masks_additive(program: ExportedProgram, keep: Callable[[Node], bool]) -> bool:
    """Rewrites attention nodes that `keep` answers for only then. Returns whether it modified."""
    graph = program.graph
    masks: dict[tuple[Node, torch.dtype], tuple[Node, Node]] = {}
    changed = False
    for node in calls(graph):
        if node.target is not _attention:
            continue
        mask, dtype = arguments(node)["attn_mask"], fake(node).dtype
        if not isinstance(mask, Node) or fake(mask).dtype != torch.bool or dtype not in LARGE:
            continue
        if keep(node):
            continue
        forget(node)
        mask = _unexpanded(mask)
        with graph.inserting_before(node):
            if (mask, dtype) not in masks:
                masks[mask, dtype] = _added_and_factor(graph, mask, dtype)
            bias, factor = masks[mask, dtype]
            args = (*node.args[:3], bias, *node.args[4:])
            kwargs = {k: v for k, v in node.kwargs.items() if k != "attn_mask"}
            attention = call(graph, _attention, args, node, fake(node), **kwargs)
            if not keep(attention):
                graph.erase_node(attention)
                continue
            new = call(graph, aten.mul.Tensor, (attention, factor), node, fake(node))
        replace(node, new)
        changed = True
    if masks:
        erase_dead(graph)
    return changed


def without_dead_rows(added: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A known mask that leaves something of each row, and [..., rows, 1] zeros for those of which
    it left nothing and ones: their result is zero in torch, and NaN of a plain softmax. None if
    there are none."""
    some = (added > -math.inf).any(-1, keepdim=True)
    if bool(some.all()):
        return added, None
    return torch.where(some, added, torch.zeros_like(added)), some.to(added.dtype)


def _unexpanded(mask: Node) -> Node:
    """The mask before it was expanded: attention broadcasts it."""
    while mask.target is aten.expand.default and isinstance(mask.args[0], Node):
        mask = mask.args[0]
    return mask


def _added_and_factor(graph: Graph, mask: Node, dtype: torch.dtype) -> tuple[Node, Node]:
    allowed = _as_float(graph, mask, dtype, {})
    value = fake(allowed)
    lacking = call(graph, aten.sub.Tensor, (allowed, 1.0), mask, value)
    bias = call(graph, aten.mul.Tensor, (lacking, LARGE[dtype]), mask, value)
    row = value.new_empty([*value.shape[:-1], 1])
    if not is_static(value.shape[-1:]):
        # Summing over a symbolic size may not be delegated, and would then cut the attention off.
        some = call(graph, aten.any.dim, (mask, -1, True), mask, row.to(torch.bool))
        return bias, call(graph, aten._to_copy.default, (some,), mask, row, dtype=dtype)
    count = call(graph, aten.sum.dim_IntList, (allowed, [-1], True), mask, row)
    # Twice: a sum that came out a bit below one still gives one.
    some = call(graph, aten.mul.Tensor, (count, 2.0), mask, row)
    factor = call(graph, aten.clamp.default, (some, 0.0, 1.0), mask, row)
    return bias, factor


def _as_float(graph: Graph, mask: Node, dtype: torch.dtype, done: dict[Node, Node]) -> Node:
    """The mask as zeros and ones, converted before views and conjunctions."""
    if mask in done:
        return done[mask]
    source = mask.args[0] if mask.args else None
    if mask.target in _CASTS and isinstance(source, Node) and _is_boolean(source):
        return _as_float(graph, source, dtype, done)
    value = fake(mask).to(dtype)
    if mask.target in _VIEWS and isinstance(mask.args[0], Node):
        source = _as_float(graph, mask.args[0], dtype, done)
        new = call(graph, mask.target, (source, *mask.args[1:]), mask, value, **mask.kwargs)
    elif mask.target in _AND and all(_is_boolean(a) for a in mask.args[:2]):
        parts = [_as_float(graph, _node(a), dtype, done) for a in mask.args[:2]]
        new = call(graph, aten.mul.Tensor, parts, mask, value)
    else:
        new = call(graph, aten._to_copy.default, (mask,), mask, value, dtype=dtype)
    done[mask] = new
    return new


def _is_boolean(argument: Any) -> bool:
    return isinstance(argument, Node) and argument.meta["val"].dtype == torch.bool


def _node(argument: Any) -> Node:
    assert isinstance(argument, Node)
    return argument
