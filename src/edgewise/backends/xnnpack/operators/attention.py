"""Scaled dot-product attention: two batched products around a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import SUMS
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.static_sizes import number, numbers
from edgewise.backends.xnnpack.lowering.table import Constraint, Lowering, Query, define, equals
from edgewise.backends.xnnpack.operators.linear import batch_product
from edgewise.edge.additive_masks import without_dead_rows
from edgewise.edge.graph import Dim, shape_of
from edgewise.edge.sizes import shown

aten = torch.ops.aten


def _attention(to: Lowering, node: Node, args: dict[str, Any]) -> Operand:
    query, key, value = (to.ref(args[k]) for k in ("query", "key", "value"))
    factor = args["scale"]
    if factor is None:
        factor = 1 / math.sqrt(number(query.shape[-1]))
    query = to.b.scale(query, float(factor))
    mask = _mask(to, args, (query.shape[-2], key.shape[-2]), query.dtype)
    some = None
    if isinstance(mask, torch.Tensor):
        mask, some = without_dead_rows(mask)
    if args["enable_gqa"] and query.shape[-3] != key.shape[-3]:
        groups = key.shape[-3]
        query, key, value = (_in_groups(to, x, groups) for x in (query, key, value))
        mask = None if mask is None else _mask_in_groups(to, mask, groups)
    r = key.rank
    swap = (*range(r - 2), r - 1, r - 2)
    # The key lies as [..., tokens, channels]: XNNPACK multiplies by it transposed.
    key = to.b.permute(to.b.in_order(key, tuple(range(r))), swap)
    scores: Ref = batch_product(to, query, key)
    if mask is not None:
        scores = to.b.binary("Add", scores, mask)
    result = batch_product(to, to.b.unary("Softmax", scores), value)
    result = to.b.view(result, shape_of(node))
    return result if some is None else to.b.binary("Multiply", result, some)


def _in_groups(to: Lowering, x: Ref, groups: Dim) -> Ref:
    """[..., heads, tokens, channels] -> [..., groups, heads of a group, tokens, channels].

    Keys and values have one head a group, which the products broadcast."""
    *lead, heads, tokens, channels = x.shape
    return to.b.view(x, (*lead, groups, heads // groups, tokens, channels))


def _mask_in_groups(to: Lowering, mask: Operand, groups: Dim) -> Operand:
    *lead, rows, columns = mask.shape
    if not lead:
        return mask
    *lead, heads = lead
    split = (1, 1) if heads == 1 else (groups, heads // groups)
    shape = (*lead, *split, rows, columns)
    return mask.reshape(shape) if isinstance(mask, torch.Tensor) else to.b.view(mask, shape)


def _mask(
    to: Lowering, args: dict[str, Any], shape: tuple[Dim, Dim], dtype: torch.dtype
) -> Operand | None:
    """What is added to the scores; None for nothing."""
    if args["is_causal"]:
        return torch.full(numbers(shape), -math.inf, dtype=dtype).triu(1)
    if args["attn_mask"] is None:
        return None
    mask = to.operand(args["attn_mask"])
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)
    return mask.to(dtype) if isinstance(mask, torch.Tensor) else to.b.convert(mask, dtype)


def _matching_heads(q: Query) -> str | None:
    """Leading sizes that broadcast; with enable_gqa fewer heads of keys and values."""
    shapes = [shape_of(q.args[k]) for k in ("query", "key", "value")]
    *leads, kv = ([*s[:-2]] for s in shapes)
    if q.args["enable_gqa"]:
        heads = [s[-3] for s in shapes if len(s) > 2]
        numbers = len(heads) == 3 and all(isinstance(h, int) for h in heads)
        if not numbers or heads[1] != heads[2] or heads[0] % heads[1]:
            return ", ".join(map(shown, shapes))
        leads, kv = [lead[:-1] for lead in leads], kv[:-1]
    known = [lead for lead in (*leads, kv) if lead]
    rank = max(map(len, known), default=0)
    if rank + 2 + bool(q.args["enable_gqa"]) * 2 > MAX_RANK:
        return ", ".join(map(shown, shapes))
    padded = [[1] * (rank - len(lead)) + lead for lead in known]
    for sizes in zip(*padded, strict=True):
        if len({s for s in sizes if s != 1}) > 1:
            return ", ".join(map(shown, shapes))
    return None


define(
    "scaled_dot_product_attention",
    (aten.scaled_dot_product_attention.default,),
    _attention,
    (
        equals("dropout_p", 0),
        Constraint("leading dimensions that go together", _matching_heads),
    ),
    keep=True,
    typed_constants=False,
    also="two batch matrix products, softmax; groups of heads (enable_gqa) are broadcast",
    accuracy=SUMS,
)
