"""Masks of attention, as 8-bit integers can add them.

For quantizers' `transform_for_annotation`. `-LEFT_OUT` leaves scores out as larger numbers do, with
a scale of its own, and the sum's range is that of what is kept and a little more, for what lies
below saturates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.quantize._torchao import (
    FakeQuantize,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)
from edgewise.quantize.masks.recognition import (
    ADD,
    LEFT_OUT,
    MARK,
    Added,
    Filled,
    Masked,
    masked_scores,
    moved_mask,
    put_masks,
    shape_of,
    softmaxes,
)
from edgewise.quantize.observers import MinMaxObserver
from edgewise.quantize.steps import attribute, constant, step

aten = torch.ops.aten

MASK_SPEC = FixedQParamsQuantizationSpec(
    dtype=torch.int8,
    scale=LEFT_OUT / 255,
    zero_point=127,
    quant_min=-128,
    quant_max=127,
    qscheme=torch.per_tensor_affine,
)
"""Of a mask: 0 and -LEFT_OUT are its ends."""


def add_finite_masks(model: GraphModule) -> bool:
    """A sum with a mask of 0 and -LEFT_OUT wherever scores are left out of a softmax over the last
    dimension: by a sum with a mask of larger numbers, or by filling one in."""
    masks = _Masks(model)
    changed = False
    for softmax in softmaxes(model, _over_the_last):
        found = [one for one in masked_scores(model, softmax) if _keeps_rows(one)]
        if found and not any(mask_of(one.node) for one in found):
            target = _last_sum(found[0])
            put_masks(softmax, found, target, partial(masks.added_to, found, target))
            changed = True
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


def mask_of(node: Node) -> Node | None:
    """The mask, of 0 and -LEFT_OUT, that a sum adds to its first operand."""
    mask = node.args[1] if node.target in ADD and len(node.args) > 1 else None
    return mask if isinstance(mask, Node) and mask.meta.get(MARK) else None


def _over_the_last(softmax: Node) -> bool:
    rank = softmax.meta["val"].dim()
    return rank > 0 and arguments(softmax)["dim"] in (-1, rank - 1)


def _last_sum(one: Masked) -> Node:
    """Of what lies between the scores and the softmax. Masks are added there: whatever is added
    behind them would need a range that reaches as far."""
    return next((n for n in one.behind[::-1] if n.target in ADD), one.node)


def _keeps_rows(one: Masked) -> bool:
    """Whether the rows of what the softmax reads are those of the sum."""
    sizes = {(shape_of(node) or (None,))[-1] for node in (one.node, *one.behind)}
    return len(sizes) == 1


class ScoresObserver(MinMaxObserver):
    """The range of masked scores that a softmax over a dimension can tell apart.

    It ends where a whole row of scores adds less than half a step of the result: below the
    smallest of the rows' largest numbers. What is left out saturates there.
    """

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes the range of `x`, which it returns as it is."""
        largest = x.detach().amax(self.dim)
        kept = largest[largest > -LEFT_OUT / 2]
        if kept.numel():
            room = math.log(_STEPS * x.shape[self.dim])
            seen = torch.stack([kept.min() - room, kept.max()])
            super().forward(seen.to(self.min_val.dtype))
        return x


_STEPS = 512


def scores_spec(spec: QuantizationSpec, is_qat: bool, dim: int = -1) -> QuantizationSpec:
    """How masked scores are quantized where others are by `spec`; dim: the softmax's."""
    observer: Any = ScoresObserver.with_args(dim=dim)
    if is_qat:
        observer = FakeQuantize.with_args(observer=ScoresObserver, dim=dim)
    return QuantizationSpec(
        dtype=spec.dtype,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=torch.per_tensor_affine,
        is_dynamic=False,
        observer_or_fake_quant_ctr=observer,
    )


class _Masks:
    """Each mask is made once, for all that read it."""

    def __init__(self, model: GraphModule) -> None:
        self.model = model
        self._made: dict[tuple[Node, bool, torch.dtype], Node] = {}

    def added_to(self, found: Sequence[Masked], target: Node, scores: Node, like: Node) -> Node:
        """The sum of scores and all masks, at one node behind them."""
        for one in found[::-1]:
            for mask in one.masks:
                if isinstance(mask, Added):
                    added = self._clamped(one.node, mask.numbers)
                else:
                    added = self._chosen(one.node, mask)
                moved = moved_mask(added, one, target, lambda t, *args: step(like, t, *args))
                moved.meta[MARK] = True
                scores = step(like, aten.add.Tensor, scores, moved)
        return scores

    def _chosen(self, node: Node, mask: Filled) -> Node:
        """Of booleans."""
        where, left_out = mask.condition, mask.left_out
        key = (where, left_out, node.meta["val"].dtype)
        if key not in self._made:
            with _behind(where, node):
                known = attribute(self.model, str(where.target)) if where.op == "get_attr" else None
                if known is not None:
                    out = known if left_out else ~known
                    value = torch.zeros(out.shape).masked_fill(out, -LEFT_OUT)
                    made = constant(self.model, node, value.to(key[2]))
                else:
                    kept = where if not left_out else step(node, aten.logical_not.default, where)
                    made = step(node, aten.to.dtype, kept, key[2])
                    made = step(node, aten.sub.Tensor, made, 1.0)
                    made = step(node, aten.mul.Tensor, made, LEFT_OUT)
            made.meta[MARK] = True
            self._made[key] = made
        return self._made[key]

    def _clamped(self, node: Node, mask: Node) -> Node:
        key = (mask, True, mask.meta["val"].dtype)
        if key not in self._made:
            with _behind(mask, node):
                if mask.op == "get_attr":
                    value = attribute(self.model, str(mask.target)).clamp(min=-LEFT_OUT)
                    made = constant(self.model, node, value)
                else:
                    made = step(node, aten.clamp.default, mask, -LEFT_OUT)
            made.meta[MARK] = True
            self._made[key] = made
        return self._made[key]


def _behind(source: Node, node: Node) -> Any:
    """Where what is made of the source can be read by all that read the source."""
    return node.graph.inserting_before(_last_of_its_kind(source).next)


def _last_of_its_kind(source: Node) -> Node:
    """Placeholders and constants stay together at the beginning."""
    while source.op == "placeholder" and source.next.op == "placeholder":
        source = source.next
    return source
