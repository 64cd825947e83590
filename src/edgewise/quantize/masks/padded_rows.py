"""Rows of a softmax as long as a processor takes them: behind scores, numbers that are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.masks.recognition import LEFT_OUT, SOFTMAX, shape_of
from edgewise.quantize.patterns import Elementwise, Pattern, SameScale, Weighted, is_float
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten
Wanted = Callable[[Node], bool]

_PADS = "pads_scores"


def pad_rows(
    model: GraphModule,
    multiple: int,
    patterns: Mapping[Any, Pattern],
    wanted: Wanted,
    taken: Callable[[Sequence[int], int], bool],
) -> bool:
    """Softmaxes over a multiple of so many numbers, the last of them left out, and a slice of the
    result, which replace others: over the last dimension, or the channels of an image. Where they
    are `wanted`, and the softmax of the larger shape over the dimension is `taken`; scores that
    others read, too, or whose scale is another's, are first multiplied by one."""
    changed = False
    for target in SOFTMAX:
        changed |= replace_calls(
            model, target, lambda node: _padded(node, multiple, patterns, wanted, taken)
        )
    return changed


def _padded(
    node: Node,
    multiple: int,
    patterns: Mapping[Any, Pattern],
    wanted: Wanted,
    taken: Callable[[Sequence[int], int], bool],
) -> Node | None:
    scores = node.args[0]
    shape = shape_of(scores)
    if not shape or not is_float(node):
        return None
    dim = arguments(node)["dim"] % len(shape) - len(shape)
    if dim != -1 and (len(shape), dim) != (4, -3):
        return None
    size = shape[dim]
    if not all(isinstance(n, int) for n in shape) or size % multiple == 0:
        return None
    larger = [*shape]
    larger[dim] += -size % multiple
    if not taken(larger, dim):
        return None
    if not wanted(node):
        return None
    if not _has_free_range(scores, dim, patterns, wanted):
        scores = step(node, aten.mul.Tensor, scores, 1.0)  # with a range of its own
    edges = [*[0, 0] * (-1 - dim), 0, larger[dim] - size]
    padded = step(node, aten.constant_pad_nd.default, scores, edges, -LEFT_OUT)
    padded.meta[_PADS] = dim
    weights = step(node, node.target, padded, dim, *node.args[2:])
    return step(node, aten.slice.Tensor, weights, dim, 0, size)


def _has_free_range(source: Any, dim: int, patterns: Mapping[Any, Pattern], wanted: Wanted) -> bool:
    """Whether the numbers may be given a range that ends where scores leave out: nobody else reads
    them, and what computes them has a scale of its own."""
    while isinstance(source, Node) and isinstance(patterns.get(source.target), SameScale):
        if _is_shared(source) or dim != -1:
            return False
        source = source.args[0]
    if not isinstance(source, Node) or _is_shared(source):
        return False
    is_computed = isinstance(patterns.get(source.target), (Elementwise, Weighted))
    return source.op == "placeholder" or (is_computed and wanted(source))


def _is_shared(node: Node) -> bool:
    """Whether several calls read the node; what checks the model's inputs is none."""
    return sum(user.op != "call_module" for user in node.users) > 1


def padded_rows(model: GraphModule) -> dict[Node, int]:
    """Scores with numbers behind them that are left out, and along which dimension."""
    return {node: node.meta[_PADS] for node in model.graph.nodes if _PADS in node.meta}
