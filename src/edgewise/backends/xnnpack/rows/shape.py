"""Operators that only move or rename elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Operand, Ref
from edgewise.backends.xnnpack.graph import Value
from edgewise.backends.xnnpack.table import (
    Constraint,
    Lowering,
    OpRow,
    Query,
    add_row,
    equals,
)
from edgewise.edge.graph import fake

aten = torch.ops.aten
Args = dict[str, Any]


def _view(to: Lowering, node: Node, args: Args) -> Operand:
    return to.b.view(to.ref(node.args[0]), [int(s) for s in fake(node).shape])


add_row(OpRow("view_copy", (aten.view_copy.default,), _view))
add_row(OpRow("squeeze_copy", (aten.squeeze_copy.dims,), _view))
add_row(OpRow("unsqueeze_copy", (aten.unsqueeze_copy.default,), _view))


def _permute(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    return to.b.permute(x, [d % x.rank for d in args["dims"]])


add_row(OpRow("permute_copy", (aten.permute_copy.default,), _permute))


def _bounds(args: Args, size: int) -> tuple[int, int]:
    start = 0 if args["start"] is None else args["start"]
    end = size if args["end"] is None else args["end"]
    start, end = (min(max(i + size if i < 0 else i, 0), size) for i in (start, end))
    return start, end


def _slice(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    start, end = _bounds(args, x.shape[dim])
    return to.b.slice(x, dim, start, end - start)


add_row(
    OpRow(
        "slice_copy",
        (aten.slice_copy.Tensor,),
        _slice,
        (
            equals("step", 1),
            Constraint(
                "start and end are numbers",
                lambda q: next(
                    (
                        f"{k}={q.args[k]}"
                        for k in ("start", "end")
                        if not isinstance(q.args[k], (int, type(None)))
                    ),
                    None,
                ),
            ),
        ),
    )
)


def _select(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    index = args["index"] % x.shape[dim]
    part = to.b.slice(x, dim, index, 1)
    return to.b.view(part, [int(s) for s in fake(node).shape])


add_row(OpRow("select_copy", (aten.select_copy.int,), _select))


def _cat(to: Lowering, node: Node, args: Args) -> Operand:
    operands = [to.operand(n) for n in args["tensors"]]
    operands = [o for o in operands if not _is_empty_vector(o)]
    of = len(node.meta["val"].shape)
    dim = args["dim"] % of
    perm = next(o.perm for o in operands if isinstance(o, Ref))
    physical = perm.index(dim)
    values = [
        to.b.in_order(o, perm).value if isinstance(o, Ref) else to.b.constant(o, perm)
        for o in operands
    ]
    return Ref(_concatenate(to, values, physical), perm)


def _is_empty_vector(operand: Operand) -> bool:
    return isinstance(operand, torch.Tensor) and operand.numel() == 0


def _concatenate(to: Lowering, values: Sequence[Value], axis: int) -> Value:
    """XNNPACK joins up to five values at once; more are joined in a tree."""
    parts = list(values)
    while len(parts) > 1:
        joined = []
        for i in range(0, len(parts), 5):
            some = parts[i : i + 5]
            if len(some) == 1:
                joined += some
                continue
            dims = list(some[0].dims)
            dims[axis] = sum(v.dims[axis] for v in some)
            kind = f"Concatenate{len(some)}"
            joined.append(to.b.node(kind, some, dims, some[0].dtype, axis=axis))
        parts = joined
    return parts[0]


add_row(
    OpRow(
        "cat",
        (aten.cat.default,),
        _cat,
        (
            Constraint(
                "at least two tensors",
                lambda q: None if len(q.args["tensors"]) > 1 else str(len(q.args["tensors"])),
            ),
        ),
    )
)


def _constant_pad(to: Lowering, node: Node, args: Args) -> Operand:
    x, pad = to.ref(args["self"]), args["pad"]
    before, after = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    before, after = [before[d] for d in x.perm], [after[d] for d in x.perm]
    dims = [b + s + a for b, s, a in zip(before, x.value.dims, after, strict=True)]
    value = to.b.node(
        "StaticConstantPad",
        [x.value],
        dims,
        x.dtype,
        pre_paddings=before,
        post_paddings=after,
        padding_value=float(args["value"] or 0),
    )
    return Ref(value, x.perm)


def _not_negative(q: Query) -> str | None:
    return None if all(p >= 0 for p in q.args["pad"]) else f"pad={q.args['pad']}"


add_row(
    OpRow(
        "constant_pad_nd",
        (aten.constant_pad_nd.default,),
        _constant_pad,
        (Constraint("no negative padding", _not_negative),),
    )
)


def _expand(to: Lowering, node: Node, args: Args) -> Operand:
    """Zeros of the target's shape, plus x: an addition broadcasts."""
    shape = [int(s) for s in fake(node).shape]
    return to.b.binary("Add", to.ref(args["self"]), torch.zeros(shape, dtype=fake(node).dtype))


def _small(q: Query) -> str | None:
    size = fake(q.node).numel()
    return None if size <= 1 << 16 else f"{size}"


add_row(
    OpRow(
        "expand_copy",
        (aten.expand_copy.default,),
        _expand,
        (Constraint("at most 65536 elements", _small),),
        also="addition to zeros",
    )
)


def _clone(to: Lowering, node: Node, args: Args) -> Operand:
    return to.ref(node.args[0])


add_row(OpRow("clone", (aten.clone.default,), _clone))


def _no_conversion(q: Query) -> str | None:
    before, after = fake(q.args["self"]).dtype, fake(q.node).dtype
    return None if before == after else f"{before} to {after}"


add_row(
    OpRow(
        "_to_dim_order_copy",
        (aten._to_copy.default,),
        _clone,
        (Constraint("no dtype conversion", _no_conversion),),
    )
)
