"""Choices by booleans that are known ahead of time, as models make them of positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.fold import known_value, written_values
from edgewise.quantize.patterns import is_float, made_of_weights
from edgewise.quantize.steps import constant, replace_calls, step

aten = torch.ops.aten


def drop_known_choices(model: GraphModule) -> bool:
    """What is chosen everywhere, instead of the choice: a copy if that is written later."""
    written = written_values(model)

    def chosen(node: Node) -> Node | None:
        made = _chosen(model, node)
        return step(node, aten.clone.default, made) if made and node in written else made

    return replace_calls(model, aten.where.self, chosen)


def choose_by_products(model: GraphModule, wanted: Callable[[Node], bool]) -> bool:
    """Products with zeros and ones instead of choices between two tensors that are computed,
    or between one and zero; of nodes that are `wanted`. Only of finite numbers, as integers are:
    zero times infinity is none."""
    weights = made_of_weights(model.graph)

    def between(node: Node) -> Node | None:
        return _products(model, node, weights) if wanted(node) else None

    def filled(node: Node) -> Node | None:
        return _zeros(model, node) if wanted(node) else None

    changed = replace_calls(model, aten.where.self, between)
    return replace_calls(model, aten.masked_fill.Scalar, filled) or changed


def _chosen(model: GraphModule, node: Node) -> Node | None:
    condition, *sides = node.args
    if not is_float(node) or not isinstance(condition, Node):
        return None
    known = known_value(model, condition)
    if known is None or bool(known.any()) != bool(known.all()):
        return None
    source, value = sides[0 if bool(known.all()) else 1], node.meta["val"]
    if not isinstance(source, Node) or source.meta["val"].dtype != value.dtype:
        return None
    if source.meta["val"].shape == value.shape:
        return source
    return step(node, aten.expand.default, source, list(value.shape))


def _products(model: GraphModule, node: Node, weights: frozenset[Node]) -> Node | None:
    """`a * mask + b * (1 - mask)`, of which a side that is zero is left out."""
    condition, *sides = node.args
    known = known_value(model, condition) if isinstance(condition, Node) else None
    value = node.meta["val"]
    if known is None or not is_float(node):
        return None
    terms = []
    for side, mask in zip(sides, (known, ~known.bool()), strict=True):
        if not isinstance(side, Node) or side.meta["val"].dtype != value.dtype:
            return None
        held = known_value(model, side)
        if held is not None and not bool(held.any()):
            continue
        if side in weights:
            return None
        factor = constant(model, node, mask.to(value.dtype))
        terms.append(step(node, aten.mul.Tensor, side, factor))
    if not terms or (len(terms) == 1 and terms[0].meta["val"].shape != value.shape):
        return None
    return terms[0] if len(terms) == 1 else step(node, aten.add.Tensor, *terms)


def _zeros(model: GraphModule, node: Node) -> Node | None:
    args = arguments(node)
    known = known_value(model, args["mask"])
    if known is None or args["value"] != 0 or not is_float(node) or not is_float(args["self"]):
        return None
    factor = constant(model, node, (~known.bool()).to(node.meta["val"].dtype))
    return step(node, aten.mul.Tensor, args["self"], factor)


__all__ = ["choose_by_products", "drop_known_choices"]
