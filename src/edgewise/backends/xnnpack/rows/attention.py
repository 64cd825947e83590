"""Scaled dot-product attention: two batched products around a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Operand, Ref
from edgewise.backends.xnnpack.rows.linear import batch_product
from edgewise.backends.xnnpack.table import Constraint, Lowering, OpRow, Query, add_row, equals
from edgewise.edge.graph import fake

aten = torch.ops.aten


def _attention(to: Lowering, node: Node, args: dict[str, Any]) -> Operand:
    query, key, value = (to.ref(args[k]) for k in ("query", "key", "value"))
    factor = args["scale"] if args["scale"] is not None else 1 / math.sqrt(query.shape[-1])
    r = query.rank
    swap = (*range(r - 2), r - 1, r - 2)
    # The key lies as [..., tokens, channels]: XNNPACK multiplies by it transposed.
    key = to.b.permute(to.b.in_order(key, tuple(range(r))), swap)
    scores: Ref = batch_product(to, to.b.scale(query, float(factor)), key)
    mask = _mask(to, args, scores.shape)
    if mask is not None:
        scores = to.b.binary("Add", scores, mask)
    return batch_product(to, to.b.unary("Softmax", scores), value)


def _mask(to: Lowering, args: dict[str, Any], shape: tuple[int, ...]) -> Operand | None:
    """What is added to the scores; None for nothing."""
    if args["is_causal"]:
        rows, columns = shape[-2:]
        return torch.full((rows, columns), -math.inf).triu(1)
    if args["attn_mask"] is None:
        return None
    mask = to.operand(args["attn_mask"])
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return mask


def _plain_heads(q: Query) -> str | None:
    shapes = [list(fake(q.args[k]).shape) for k in ("query", "key", "value")]
    same = len({len(s) for s in shapes}) == 1 and len({tuple(s[:-2]) for s in shapes}) == 1
    return None if same and len(shapes[0]) >= 3 else ", ".join(map(str, shapes))


def _no_dead_rows(q: Query) -> str | None:
    """A row without any allowed token is zeros in torch and NaN in a plain softmax."""
    mask = q.args["attn_mask"]
    if mask not in q.constants:
        return None
    value = q.constants.tensor(mask)
    allowed = value if value.dtype == torch.bool else value > -math.inf
    return None if bool(allowed.any(-1).all()) else "a row that masks everything"


add_row(
    OpRow(
        "scaled_dot_product_attention",
        (aten.scaled_dot_product_attention.default,),
        _attention,
        (
            equals("dropout_p", 0),
            equals("enable_gqa", False),
            Constraint("query, key and value with the same leading dimensions", _plain_heads),
            Constraint("every query may attend to something", _no_dead_rows),
        ),
        keep=True,
        typed_constants=False,
        also="two batch matrix products, softmax",
    )
)
