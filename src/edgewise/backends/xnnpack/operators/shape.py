"""Operators that only move or rename elements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering import reshape
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.table import (
    RESHAPABLE,
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
    static_dim,
)
from edgewise.backends.xnnpack.operators.reduce import as_it_lies, named, pad_after
from edgewise.backends.xnnpack.operators.windows import pad
from edgewise.edge.graph import fake, shape_of
from edgewise.quantize.patterns import SAME_SCALE, Joined

aten = torch.ops.aten
Args = dict[str, Any]


def _view(to: Lowering, node: Node, args: Args) -> Operand:
    return to.b.view(to.ref(node.args[0]), shape_of(node))


_KEPT_APART = "several symbolic sizes: by copies, where static ones are merged, split or ones"

define(
    "view_copy",
    (aten.view_copy.default,),
    _view,
    (RESHAPABLE,),
    sizes=("size",),
    also=_KEPT_APART,
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)
define(
    "squeeze_copy",
    (aten.squeeze_copy.dims,),
    _view,
    (RESHAPABLE,),
    also=_KEPT_APART,
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)
define(
    "unsqueeze_copy",
    (aten.unsqueeze_copy.default,),
    _view,
    (RESHAPABLE,),
    also=_KEPT_APART,
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _permute(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    return to.b.permute(x, [d % x.rank for d in args["dims"]])


define(
    "permute_copy",
    (aten.permute_copy.default,),
    _permute,
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _slice(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    start, end, _ = slice(args["start"], args["end"]).indices(x.shape[dim])
    if args["step"] == 1:
        return to.b.slice(x, dim, start, end - start)
    return every(to, x, dim, start, end, args["step"])


def every(to: Lowering, x: Ref, dim: int, start: int, end: int, step: int) -> Ref:
    """Every step-th element: the first of each of several rows of `step`."""
    count = -(-(end - start) // step)
    size = x.shape[dim]
    assert isinstance(size, int)
    x = pad_after(to, x, dim, max(start + count * step - size, 0), 0.0)
    x = to.b.slice(x, dim, start, count * step)
    # Rows of one element fit any layout: they lie beside each other where the dimension lies.
    axis = x.perm.index(dim)
    before, behind = x.value.dims[:axis], x.value.dims[axis + 1 :]
    if x.rank == MAX_RANK and len(before) > 1:
        before = (math.prod(before),)
    elif x.rank == MAX_RANK:
        behind = (math.prod(behind),)
    rows = to.b.view(as_it_lies(x), (*before, count, step, *behind))
    firsts = to.b.slice(rows, len(before) + 1, 0, 1)
    dims = (*x.value.dims[:axis], count, *x.value.dims[axis + 1 :])
    return named(to.b.view(firsts, dims), x.perm)


define(
    "slice_copy",
    (aten.slice_copy.Tensor,),
    _slice,
    (
        static_dim(),
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
    also="with a step: a slice of a reshaped slice",
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _select(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    size, index = x.shape[dim], args["index"]
    if isinstance(size, int):
        index %= size
    part = to.b.slice(x, dim, index, 1)
    return to.b.view(part, shape_of(node))


def _from_the_start(q: Query) -> str | None:
    dim, index = q.args["dim"], q.args["index"]
    size = shape_of(q.args["self"])[dim]
    return None if isinstance(size, int) or index >= 0 else f"index={index} of {size}"


def _rest_is_reshapable(q: Query) -> str | None:
    shape = list(shape_of(q.args["self"]))
    shape[q.args["dim"]] = 1
    return reshape.refusal(shape, shape_of(q.node))


define(
    "select_copy",
    (aten.select_copy.int,),
    _select,
    (
        Constraint("a negative index only where the size is static", _from_the_start),
        replace(RESHAPABLE, check=_rest_is_reshapable),
    ),
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _cat(to: Lowering, node: Node, args: Args) -> Operand:
    operands = [to.operand(n) for n in args["tensors"]]
    operands = [o for o in operands if not _is_empty_vector(o)]
    of = len(node.meta["val"].shape)
    dim = args["dim"] % of
    perm = next(o.perm for o in operands if isinstance(o, Ref))
    physical, dtype = perm.index(dim), fake(node).dtype
    values = [
        to.b.in_order(to.b.convert(o, dtype), perm).value
        if isinstance(o, Ref)
        else to.b.constant(o.to(dtype), perm)
        for o in operands
    ]
    return Ref(to.b.concatenate(values, physical), perm)


def _is_empty_vector(operand: Operand) -> bool:
    return isinstance(operand, torch.Tensor) and operand.numel() == 0


define("cat", (aten.cat.default,), _cat, quantization=Joined(), integers=STATIC_INT8)


def _constant_pad(to: Lowering, node: Node, args: Args) -> Operand:
    x, amounts = to.ref(args["self"]), args["pad"]
    pairs = zip(amounts[::2], amounts[1::2], strict=True)  # of the last dimension first
    around = {x.rank - 1 - i: pair for i, pair in enumerate(pairs)}
    return pad(to, x, around, float(args["value"] or 0))


def _not_negative(q: Query) -> str | None:
    return None if all(p >= 0 for p in q.args["pad"]) else f"pad={q.args['pad']}"


define(
    "constant_pad_nd",
    (aten.constant_pad_nd.default,),
    _constant_pad,
    (Constraint("no negative padding", _not_negative),),
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)


def _clone(to: Lowering, node: Node, args: Args) -> Operand:
    return to.ref(node.args[0])


define("clone", (aten.clone.default,), _clone, quantization=SAME_SCALE, integers=STATIC_INT8)


def _no_conversion(q: Query) -> str | None:
    before, after = fake(q.args["self"]).dtype, fake(q.node).dtype
    return None if before == after else f"{before} to {after}"


define(
    "_to_dim_order_copy",
    (aten._to_copy.default,),
    _clone,
    (Constraint("no dtype conversion", _no_conversion),),
)
