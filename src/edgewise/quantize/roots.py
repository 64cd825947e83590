"""Roots, and divisions by numbers that are not negative, of reciprocal roots.

For processors that have a reciprocal root and neither a root nor a division.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.signs import is_not_negative
from edgewise.edge.spellings import with_twins
from edgewise.quantize.patterns import is_float
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten


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
