"""Masks of attention as sums that a masked softmax knows.

For quantizers' `transform_for_annotation`. A program says in many ways what a softmax must not
choose: it adds minus infinity or a number far below, of a choice (`torch.where(kept, 0.0, -1e9)`),
or fills such a number in (`scores.masked_fill(left_out, -1e9)`). No scale stands for both such
numbers and scores. Of booleans that are known, a constant of zeros and minus infinities is added
instead; of others what is computed from zeros and ones, which have a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import with_twins
from edgewise.quantize.fold import known_value
from edgewise.quantize.steps import constant, is_kept, step

aten = torch.ops.aten

FAR_BELOW = -1e4
"""What is added to scores, or filled in, to leave them out: the exponential is zero in float32
beside scores that differ by less than 9,896."""

_ADD = with_twins(aten.add.Tensor)
_FILL = with_twins(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
_IN_PLACE = (aten.add_.Tensor, aten.masked_fill_.Scalar, aten.masked_fill_.Tensor)
_WHERE = (
    aten.where.self,
    aten.where.Scalar,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
)
_MOVES = (
    aten.expand.default,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.dim,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
)
_COPIES = (aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default)


_MADE = (aten.detach_.default, aten.lift_fresh_copy.default)
"""What `torch.tensor(number)` exports to, of a constant."""


@dataclass(frozen=True)
class _Mask:
    """A number is added where a tensor of booleans, moved, is not `kept_if`; or where one of known
    real numbers is not zero."""

    condition: Node
    kept_if: bool
    moves: tuple[Node, ...]
    number: float


def split_masks(model: GraphModule, wanted: Callable[[Node], bool] = lambda node: True) -> bool:
    """A sum of scores and a mask in the place of what a softmax alone reads, where that leaves
    scores out; in place; whether there was any. wanted: of softmaxes."""
    ones: dict[Any, Node] = {}
    changed = False
    for softmax in [n for n in model.graph.nodes if n.target is aten.softmax.int and wanted(n)]:
        masked = softmax.args[0]
        scores, mask = _apart(model, masked)
        if scores is None or mask is None or len(masked.users) != 1:
            continue
        if masked.target in _IN_PLACE and len(scores.users) != 1:
            continue
        dim = softmax.args[1] % masked.meta["val"].dim() - masked.meta["val"].dim()
        kept = _known(model, mask)
        key = (mask.condition, mask.kept_if, mask.moves)
        if kept is not None and not _some_everywhere(kept, dim):
            continue
        if kept is None and key not in ones:
            ones[key] = _ones(mask, masked)
        with model.graph.inserting_before(masked):
            if kept is None:
                added = _added(ones[key], mask.number, masked)
            else:
                infinities = torch.zeros(kept.shape).masked_fill(~kept, -math.inf)
                added = constant(model, masked, infinities)
            total = step(masked, aten.add.Tensor, scores, added)
        masked.replace_all_uses_with(total)
        model.graph.erase_node(masked)
        changed = True
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


def _apart(model: GraphModule, masked: Any) -> tuple[Node | None, _Mask | None]:
    """The scores, and what is left out of them."""
    if not isinstance(masked, Node) or not isinstance(masked.meta.get("val"), torch.Tensor):
        return None, None
    if masked.target not in _ADD:
        scores, mask = _choice(model, masked)
        if mask is not None:  # the same as the largest number is, added to any score
            mask = _Mask(mask.condition, mask.kept_if, (), torch.finfo(torch.float32).min)
        return _alike(scores, masked), mask
    args = arguments(masked)
    pair = args["self"], args["other"]
    for scores, other in (pair, pair[::-1]) if args["alpha"] == 1 else ():
        moves = []
        while isinstance(other, Node) and other.target in (*_MOVES, *_COPIES):
            moves += [other] if other.target in _MOVES else []
            other = other.all_input_nodes[0] if len(other.all_input_nodes) == 1 else None
        if not isinstance(other, Node):
            continue
        if _is_known_mask(model, other):
            return _alike(scores, masked), _Mask(other, True, tuple(moves[::-1]), -math.inf)
        zero, mask = _choice(model, other)
        if mask is not None and _number(model, zero) == 0:
            mask = _Mask(mask.condition, mask.kept_if, tuple(moves[::-1]), mask.number)
            return _alike(scores, masked), mask
    return None, None


def _is_known_mask(model: GraphModule, node: Node) -> bool:
    """Whether it holds zeros and numbers far below; buffers of infinities can stay as they are."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    held = known_value(model, node)
    if held is None or held.dtype != torch.float32:
        return False
    far = held <= FAR_BELOW
    ready = node.op == "get_attr" and bool(held[far].isinf().all())
    return not ready and bool(far.any()) and bool((far | (held == 0)).all())


def _alike(scores: Any, masked: Node) -> Node | None:
    """The scores, if they are as many as what the softmax reads."""
    value = scores.meta.get("val") if isinstance(scores, Node) else None
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return None
    return scores if value.shape == masked.meta["val"].shape else None


def _choice(model: GraphModule, node: Node) -> tuple[Any, _Mask | None]:
    """What is chosen where nothing is left out; where a number far below is chosen."""
    if node.target in _WHERE:
        condition, first, second = node.args
        pairs = [(first, second, True), (second, first, False)]
    elif node.target in _FILL:
        first, condition, second = node.args
        pairs = [(first, second, False)]
    else:
        return None, None
    if not isinstance(condition, Node) or condition.meta["val"].dtype != torch.bool:
        return None, None
    for other, far, kept_if in pairs:
        number = _number(model, far)
        if number is not None and number <= FAR_BELOW:
            return other, _Mask(condition, kept_if, (), number)
    return None, None


def _number(model: GraphModule, value: Any) -> float | None:
    """What each element of a constant is."""
    if isinstance(value, (int, float)):
        return float(value)
    while isinstance(value, Node) and value.target in _MADE:
        value = value.args[0]
    held = known_value(model, value) if isinstance(value, Node) else None
    if held is None or not held.numel():
        return None
    first = held.reshape(-1)[0]
    return float(first) if bool((held == first).all()) else None


def _known(model: GraphModule, mask: _Mask) -> torch.Tensor | None:
    """Where scores are kept; None if that is computed from inputs."""
    kept = known_value(model, mask.condition)
    if kept is None:
        return None
    kept = kept == (mask.kept_if if kept.dtype == torch.bool else 0)
    for move in mask.moves:
        kept = move.target(kept, *move.args[1:])  # type: ignore[operator]
    return kept


def _some_everywhere(kept: torch.Tensor, dim: int) -> bool:
    """Whether every softmax along the dimension keeps a score: else infinities make NaN of it."""
    return bool((kept.any(dim) if kept.dim() >= -dim else kept).all())


def _ones(mask: _Mask, like: Node) -> Node:
    """Ones where scores are kept, else zeros; behind the booleans."""
    place = mask.condition.next
    while place.op in ("placeholder", "get_attr"):
        place = place.next
    with place.graph.inserting_before(place):
        booleans = mask.condition
        for move in mask.moves:
            booleans = step(like, move.target, booleans, *move.args[1:])
        if not mask.kept_if:
            booleans = step(like, aten.logical_not.default, booleans)
        return step(like, aten.to.dtype, booleans, torch.float32)


def _added(ones: Node, number: float, like: Node) -> Node:
    """What is added to scores. Each softmax has its own: what is not quantized is computed at once
    with all that read it."""
    # Rounded, for what quantizes the zeros and ones to be a mask whatever it stores.
    kept = step(like, aten.round.default, ones)
    if math.isinf(number):
        return step(like, aten.log.default, kept)
    return step(like, aten.mul.Tensor, step(like, aten.sub.Tensor, kept, 1.0), -number)


__all__ = ["FAR_BELOW", "is_computed_mask", "split_masks", "steps_of_mask"]
