"""Roots, and divisions by numbers that are not negative, of reciprocal roots.

For processors that have a reciprocal root and neither a root nor a division.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import with_twins
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten

_NOT_NEGATIVE = frozenset(
    with_twins(
        aten.abs.default,
        aten.relu.default,
        aten.relu6.default,
        aten.rsqrt.default,
        aten.sigmoid.default,
        aten.softmax.int,
        aten.sqrt.default,
        aten.square.default,
    )
)
"""Without the exponential function: its results lie too far apart for a reciprocal in 8 bits."""
_KEEP_SIGN = frozenset(
    with_twins(
        aten.adaptive_avg_pool2d.default,
        aten.amax.default,
        aten.amin.default,
        aten.avg_pool2d.default,
        aten.cat.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.dropout.default,
        aten.expand.default,
        aten.flatten.using_ints,
        aten.max_pool2d.default,
        aten.mean.default,
        aten.mean.dim,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    )
)
_MULTIPLY = frozenset(with_twins(aten.mul.Tensor, aten.mul.Scalar))
_ADD = frozenset(with_twins(aten.add.Tensor, aten.add.Scalar))
_CLAMPS = frozenset(with_twins(aten.clamp.default, aten.clamp_min.default, aten.hardtanh.default))


def split_roots(model: GraphModule) -> bool:
    """Products with reciprocal roots instead of divisions by roots and by other numbers that
    are computed and cannot be negative, and of roots."""
    changed = False
    for target in with_twins(aten.div.Tensor):
        changed |= replace_calls(model, target, _divided)
    changed |= replace_calls(model, aten.reciprocal.default, _inverse)
    if changed:  # roots that nobody reads any more
        model.graph.eliminate_dead_code()
    for target in with_twins(aten.sqrt.default):
        changed |= replace_calls(model, target, _root)
    return changed


def _divided(node: Node) -> Node | None:
    source, divisor = node.args[:2]
    if not isinstance(divisor, Node) or divisor.op == "get_attr" or not is_float(divisor):
        return None
    inverse = _inverse_of(node, divisor)
    return None if inverse is None else step(node, aten.mul.Tensor, inverse, source)


def _inverse(node: Node) -> Node | None:
    source = node.args[0]
    return _inverse_of(node, source) if isinstance(source, Node) and is_float(source) else None


def _inverse_of(node: Node, divisor: Node) -> Node | None:
    if divisor.target is aten.sqrt.default:
        return step(node, aten.rsqrt.default, divisor.args[0])
    if not is_not_negative(divisor):
        return None
    root = step(node, aten.rsqrt.default, divisor)
    return step(node, aten.mul.Tensor, root, root)


def _root(node: Node) -> Node | None:
    source = node.args[0]
    if not isinstance(source, Node) or not is_float(source):
        return None
    return step(node, aten.mul.Tensor, step(node, aten.rsqrt.default, source), source)


def is_not_negative(node: Any) -> bool:
    """Whether the node's numbers are 0 or more, whatever the model's inputs are."""
    if isinstance(node, (int, float)):
        return node >= 0
    if isinstance(node, (list, tuple)):
        return all(map(is_not_negative, node))
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    if node.target in _NOT_NEGATIVE:
        return True
    if node.target in _KEEP_SIGN:
        return is_not_negative(node.args[0])
    if node.target in _MULTIPLY:
        one, other = node.args[:2]
        return one is other or (is_not_negative(one) and is_not_negative(other))
    if node.target in _ADD:
        return arguments(node)["alpha"] >= 0 and all(map(is_not_negative, node.args[:2]))
    if node.target in _CLAMPS:
        args = arguments(node)
        low = args.get("min", args.get("min_val"))
        return isinstance(low, (int, float)) and low >= 0
    return False


__all__ = ["is_not_negative", "split_roots"]
