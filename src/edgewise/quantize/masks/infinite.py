"""Masks as sums with zeros and minus infinities, or one number far below, right before a softmax.

For quantizers' `transform_for_annotation`, where a processor's softmax takes such a sum as scores
and a mask. Of booleans that are known, a constant of zeros and minus infinities is added; of others
what is computed from zeros and ones, which have a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize.fold import known_value
from edgewise.quantize.masks.recognition import (
    ADD,
    COPIES,
    LEFT_OUT,
    MARK,
    MOVES,
    Added,
    Filled,
    Masked,
    choice_of,
    is_boolean,
    masked_scores,
    moved_mask,
    number_of,
    put_masks,
    softmaxes,
    taken_from,
    zero_where_kept,
)
from edgewise.quantize.steps import constant, is_kept, step

aten = torch.ops.aten
_NOT = (aten.logical_not.default, aten.bitwise_not.default)
LOWEST = torch.finfo(torch.float32).min


def add_infinite_masks(
    model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True
) -> bool:
    """One sum of scores and a mask right before a softmax, wherever something leaves scores out of
    it; in place; whether there was any. wanted: of softmaxes."""
    masks = _Booleans(model)
    changed = False
    for softmax in softmaxes(model, wanted):
        found = masked_scores(model, softmax)
        if found and all(_is_single(one.node) for one in found):
            changed |= masks.add_before(softmax, found)
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


def steps_of_mask(kept: Node) -> list[Node]:
    """From the zeros and ones (`steps.is_kept`) to what is added to scores."""
    nodes = [kept]
    while len(nodes) < 3 and len(nodes[-1].users) == 1:
        (user,) = nodes[-1].users
        if user.target not in (aten.log.default, aten.sub.Tensor, aten.mul.Tensor):
            break
        nodes.append(user)
    return nodes


def is_computed_mask(node: Node) -> bool:
    """Whether the node is the last of `steps_of_mask`."""
    for _ in range(3):
        if is_kept(node):
            return True
        if node.target not in (aten.log.default, aten.sub.Tensor, aten.mul.Tensor):
            return False
        node = node.all_input_nodes[0]
    return False


def _is_single(node: Node) -> bool:
    return bool(node.meta["val"].dtype == torch.float32)


@dataclass
class _Booleans:
    """What is kept, made once for all softmaxes, which are taken in order."""

    model: GraphModule
    made: dict[Any, Node] = field(default_factory=dict)

    def add_before(self, softmax: Node, found: Sequence[Masked]) -> bool:
        """Whether it could: of a known mask that leaves out a whole row, NaN would come."""
        target = softmax.args[0]
        assert isinstance(target, Node)
        known, computed, number = None, [], 0.0
        for one in found:
            for mask in one.masks:
                kept = self._known(softmax, one, mask)
                if kept is None:
                    computed.append((one, mask))
                    number = min(number, self._number(mask))
                else:
                    known = kept if known is None else known & kept
        rank = target.meta["val"].dim()
        dim = arguments(softmax)["dim"] % rank - rank if rank else 0
        if known is not None and not _some_everywhere(known, dim):
            return False
        if len(found) == 1 and not found[0].behind and _is_ready(self.model, found[0]):
            return False

        def added_to(scores: Node, like: Node) -> Node:
            if computed:
                added = _added(self._ones(like, softmax, known, computed), number, like)
            else:
                assert known is not None
                infinities = torch.zeros(known.shape).masked_fill(~known, -math.inf)
                added = constant(self.model, like, infinities)
            return step(like, aten.add.Tensor, scores, added)

        put_masks(softmax, found, target, added_to)
        return True

    def _known(self, softmax: Node, one: Masked, mask: Filled | Added) -> torch.Tensor | None:
        """Where scores are kept, as what the softmax reads; None if that is computed."""
        if isinstance(mask, Filled):
            kept = known_value(self.model, mask.condition)
            kept = kept if kept is None or not mask.left_out else ~kept
        else:
            numbers = known_value(self.model, mask.numbers)
            kept = None if numbers is None else numbers > -LEFT_OUT
        if kept is None:
            return None
        moved: torch.Tensor = moved_mask(kept, one, softmax, lambda target, *args: target(*args))
        return moved

    def _ones(
        self,
        like: Node,
        softmax: Node,
        known: torch.Tensor | None,
        masks: list[tuple[Masked, Filled | Added]],
    ) -> Node:
        """Ones where scores are kept, else zeros."""
        moved = known is not None or any(one.moves_before(softmax) for one, _ in masks)
        key = (softmax if moved else None, *(mask for _, mask in masks))
        if key in self.made:
            return self.made[key]
        kept = None if known is None else constant(self.model, like, known)
        for one, mask in masks:
            booleans = self._filled(mask) if isinstance(mask, Filled) else self._kept(mask.numbers)
            booleans = moved_mask(
                booleans, one, softmax, lambda target, *args: step(like, target, *args)
            )
            kept = booleans if kept is None else _both(kept, booleans)
        assert kept is not None
        self.made[key] = step(like, aten.to.dtype, kept, torch.float32)
        return self.made[key]

    def _filled(self, mask: Filled) -> Node:
        return _not(mask.condition) if mask.left_out else mask.condition

    def _kept(self, node: Node) -> Node:
        """Booleans, by an added mask: where it is zero."""
        known = known_value(self.model, node)
        if known is not None:
            return constant(self.model, node, known > -LEFT_OUT)
        choice = choice_of(self.model, node)
        if choice is not None:
            rest, filled, _ = choice
            kept = self._filled(filled)
            if number_of(rest, self.model) == 0:
                return kept
            if isinstance(rest, Node):
                return _both(kept, self._kept(rest))
        if node.target in COPIES:
            return self._kept(node.all_input_nodes[0])
        if node.target in MOVES:
            return step(node, node.target, self._kept(node.all_input_nodes[0]), *node.args[1:])
        if node.target in ADD:
            one, other = (self._kept(operand) for operand in node.all_input_nodes)
            return _both(one, other)
        if node.target is aten.log.default:
            booleans = node.all_input_nodes[0].all_input_nodes[0].all_input_nodes[0]
            return booleans
        product = zero_where_kept(node, self.model)
        if product is not None:
            return self._is_one(product[0], False)
        node.meta[MARK] = True  # stays in floating point
        return step(node, aten.gt.Scalar, node, -LEFT_OUT)

    def _is_one(self, node: Node, wanted: bool) -> Node:
        """Booleans: where zeros and ones are 1, if that is `wanted`; else where they are 0."""
        if is_boolean(node):
            return node if wanted else _not(node)
        if node.target in COPIES:
            return self._is_one(node.all_input_nodes[0], wanted)
        source = taken_from(node, self.model)
        if isinstance(source, Node):
            return self._is_one(source, not wanted)
        if node.target in MOVES:
            moved = self._is_one(node.all_input_nodes[0], wanted)
            return step(node, node.target, moved, *node.args[1:])
        return step(node, (aten.ne if wanted else aten.eq).Scalar, node, 0)

    def _number(self, mask: Filled | Added) -> float:
        """What is added to scores that are left out. One that is filled in is as the largest
        number, added to any score."""
        return LOWEST if isinstance(mask, Filled) else self._least(mask.numbers)

    def _least(self, node: Node) -> float:
        choice = choice_of(self.model, node)
        if choice is not None:
            return choice[2]
        product = zero_where_kept(node, self.model)
        if product is not None:
            return product[1]
        if node.target is aten.log.default:
            return -math.inf
        sources = [n for n in node.all_input_nodes if not is_boolean(n)]
        return min(map(self._least, sources)) if node.op == "call_function" and sources else LOWEST


def _is_ready(model: GraphModule, one: Masked) -> bool:
    """Whether nothing is to be done: infinities of a constant, or of zeros and ones, are added."""
    numbers = [mask.numbers for mask in one.masks if isinstance(mask, Added)]
    if len(one.masks) != 1 or len(numbers) != 1 or one.terms:
        return False
    if numbers[0].op == "get_attr":
        known = known_value(model, numbers[0])
        return known is not None and bool(((known == 0) | known.isinf()).all())
    return numbers[0].target is aten.log.default and len(numbers[0].users) == 1


def _not(booleans: Node) -> Node:
    if booleans.target in _NOT:
        return booleans.all_input_nodes[0]
    return step(booleans, aten.logical_not.default, booleans)


def _both(one: Node, other: Node) -> Node:
    return step(other, aten.logical_and.default, one, other)


def _some_everywhere(kept: torch.Tensor, dim: int) -> bool:
    """Whether every softmax along the dimension keeps a score: else infinities make NaN of it."""
    return bool((kept.any(dim) if kept.dim() >= -dim else kept).all())


def _added(ones: Node, number: float, like: Node) -> Node:
    """What is added to scores. Each softmax has its own: what is not quantized is computed at once
    with all that read it."""
    # Rounded, for what quantizes the zeros and ones to be a mask whatever it stores.
    kept = step(like, aten.round.default, ones)
    if math.isinf(number):
        return step(like, aten.log.default, kept)
    return step(like, aten.mul.Tensor, step(like, aten.sub.Tensor, kept, 1.0), -number)
