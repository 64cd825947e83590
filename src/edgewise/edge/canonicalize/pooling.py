"""Pooling of sequences is pooling of images of one row; an adaptive one may be ordinary."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.registry import call, first_operand, rule
from edgewise.edge.graph import arguments, fake, is_static

aten = torch.ops.aten


def _one(value: Any, default: int) -> int:
    items = [value] if isinstance(value, int) else list(value)
    return int(items[0]) if items else default


def _as_image(graph: Graph, node: Node) -> Node:
    """[..., length] -> [..., 1, length]"""
    source = first_operand(node)
    before = fake(source)
    value = before.new_empty([*before.shape[:-1], 1, before.shape[-1]])
    return call(graph, aten.unsqueeze_copy.default, (source, before.dim() - 1), node, value)


def _as_sequence(graph: Graph, node: Node, image: Node) -> Node:
    """[..., 1, length] -> [..., length]"""
    return call(graph, aten.squeeze_copy.dims, (image, [fake(image).dim() - 2]), node, fake(node))


def _image_result(node: Node) -> torch.Tensor:
    after = fake(node)
    return after.new_empty([*after.shape[:-1], 1, after.shape[-1]])


def _row_window(named: dict[str, Any]) -> tuple[list[int], list[int], list[int]]:
    """Kernel, stride and padding of a pooling of sequences, for images of one row."""
    kernel = _one(named["kernel_size"], 1)
    return [1, kernel], [1, _one(named["stride"], kernel)], [0, _one(named["padding"], 0)]


@rule(aten.avg_pool1d.default)
def _avg_pool1d(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    counts = named["ceil_mode"], named["count_include_pad"]
    args = (_as_image(graph, node), *_row_window(named), *counts)
    pooled = call(graph, aten.avg_pool2d.default, args, node, _image_result(node))
    return _as_sequence(graph, node, pooled)


@rule(aten.max_pool1d.default)
def _max_pool1d(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    dilation = [1, _one(named["dilation"], 1)]
    args = (_as_image(graph, node), *_row_window(named), dilation, named["ceil_mode"])
    return _as_sequence(graph, node, _max_pool2d(graph, node, args, _image_result(node)))


def _max_pool2d(graph: Graph, node: Node, args: tuple[Any, ...], value: torch.Tensor) -> Node:
    """In the dialect's spelling, which computes indices too."""
    both = (value, value.new_empty(value.shape, dtype=torch.int64))
    pool = call(graph, aten.max_pool2d_with_indices.default, args, node, both)
    return call(graph, operator.getitem, (pool, 0), node, value)


def _even_window(node: Node, rank: int, result: torch.Tensor) -> list[int] | None:
    """The window of an ordinary pooling that does the same: sizes divide."""
    before, after = fake(first_operand(node)).shape[-rank:], result.shape[-rank:]
    if not (is_static(before) and is_static(after)):
        return None
    if any(a == 0 or b % a for b, a in zip(before, after, strict=True)):
        return None
    return [b // a for b, a in zip(before, after, strict=True)]


@rule(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool2d(graph: Graph, node: Node) -> Node | None:
    source, value = first_operand(node), fake(node)
    if list(value.shape[-2:]) == [1, 1]:
        return call(graph, aten.mean.dim, (source, [-1, -2], True), node, value)
    window = _even_window(node, 2, value)
    if window is not None:
        args = (source, window, window)
        return call(graph, aten.avg_pool2d.default, args, node, value)
    if node.target is aten._adaptive_avg_pool2d.default:
        return None
    return call(graph, aten._adaptive_avg_pool2d.default, node.args, node, value)


@rule(aten.adaptive_avg_pool1d.default)
def _adaptive_avg_pool1d(graph: Graph, node: Node) -> Node | None:
    source, value = first_operand(node), fake(node)
    if value.shape[-1] == 1:
        return call(graph, aten.mean.dim, (source, [-1], True), node, value)
    window = _even_window(node, 1, value)
    image = _as_image(graph, node)
    if window is not None:
        args: tuple[Any, ...] = (image, [1, *window], [1, *window])
        pooled = call(graph, aten.avg_pool2d.default, args, node, _image_result(node))
    else:
        args = (image, [1, value.shape[-1]])
        pooled = call(graph, aten._adaptive_avg_pool2d.default, args, node, _image_result(node))
    return _as_sequence(graph, node, pooled)


@rule(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool2d(graph: Graph, node: Node) -> Node | None:
    """Where only the values are read."""
    users = [user for user in node.users if user.users]
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in users):
        return None
    value = node.meta["val"][0]
    window = _even_window(node, 2, value)
    if window is None:
        return None
    source = first_operand(node)
    if math.prod(value.shape[-2:]) == 1:
        pooled = call(graph, aten.amax.default, (source, [-2, -1], True), node, value)
    else:
        pooled = _max_pool2d(graph, node, (source, window, window), value)
    for user in list(node.users):
        if user in users:
            user.replace_all_uses_with(pooled)
        graph.erase_node(user)
    return first_operand(node)  # has no users left that could see it
