"""Values that are put where indices say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Refused,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Combined
from edgewise.backends.ethosu.operators.lines import (
    AS_INT32,
    Lines,
    chosen_sizes,
    gathered,
    given_indices,
    index_type,
    listed,
    spread,
)
from edgewise.backends.ethosu.operators.shape import MOST_PIECES, sizes
from edgewise.edge.graph import fake
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.orders import identity
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import Joined

aten = torch.ops.aten
Put = Callable[[Tensor, Tensor], Tensor]


def _put_slices(to: Lowering, node: Node, args: Args) -> Put:
    """What lies between constant indices, and the values at them, concatenated."""
    ((dim, index),) = given_indices(args)
    shape = sizes(args["self"])
    rows = listed(to.constants, index, shape[dim])
    whole = (*shape[:dim], len(rows), *shape[dim + 1 :])

    def put(x: Tensor, values: Tensor) -> Tensor:
        b = to.b
        values = spread(to, values, whole)
        source = {row: at for at, row in enumerate(rows)}  # the last of several
        parts, kept = [], 0
        for row in sorted(source):
            if row > kept:
                parts.append(b.slice(x, {dim: kept}, {dim: row - kept}))
            parts.append(b.slice(values, {dim: source[row]}, {dim: 1}))
            kept = row + 1
        if kept < shape[dim]:
            parts.append(b.slice(x, {dim: kept}, {dim: shape[dim] - kept}))
        return parts[0] if len(parts) == 1 else b.concat(parts, dim)

    return put


def _put_lines(to: Lowering, node: Node, args: Args) -> Put:
    """By SCATTER."""
    b, by = to.b, Lines.of(args)
    rows, count = by.rows(to, args), by.lines[1]

    def scattered(t: Tensor, index: Tensor, new: Tensor) -> Tensor:
        return b.tosa.add("SCATTER", [t, index, new], by.table, t.dtype, identity(3))

    def written(t: Tensor, new: Tensor) -> Tensor:
        if not args["accumulate"]:
            return scattered(t, rows, new)
        for at in range(count):  # one after another: an index may be there twice
            index = b.slice(rows, {1: at}, {1: 1})
            line = b.slice(new, {1: at}, {1: 1})
            t = scattered(t, index, b.binary("ADD", gathered(b, t, index), line))
        return t

    def put(x: Tensor, values: Tensor) -> Tensor:
        values = spread(to, values, by.shape)
        new = b.reshape(b.in_order(values, identity(values.rank)), by.lines)
        made = b.reshape(written(by.laid(b, x), new), [*by.before, *by.block, *by.behind])
        return b.permute(made, [by.order.index(d) for d in range(x.rank)])

    return put


def _index_put(to: Lowering, node: Node, args: Args) -> Value:
    slices = not args["accumulate"] and _few_listed(to.constants, args)
    put = (_put_slices if slices else _put_lines)(to, node, args)
    old, new = to.value(args["self"]), to.value(args["values"])
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        if args["accumulate"] and old.dtype != INT32:
            raise Refused(Refusal("sums of int32 or of quantized numbers", old.dtype))
        return put(old, new)

    def made(ts: Sequence[Tensor], quant: Quant) -> Tensor:
        if not args["accumulate"]:
            return put(ts[0], ts[1])
        wide = [to.b.rescale(t, [1.0], INT32, quant.zero_point) for t in ts]
        total = to.b.rescale(put(wide[0], wide[1]), [1.0], quant.type, 0, quant.zero_point)
        return to.b.clamp(total, quant.low, quant.high)

    return Combined((to.real(args["self"]), to.real(args["values"])), sizes(args["self"]), made)


def _few_listed(constants: IntegerConstants, args: Args) -> bool:
    """Whether one dimension is indexed, by few constants."""
    given = given_indices(args)
    if len(given) != 1 or given[0][1] not in constants:
        return False
    dim, index = given[0]
    rows = listed(constants, index, sizes(args["self"])[dim])
    return len(rows) <= MOST_PIECES


def _put(q: Ask) -> str | None:
    given = given_indices(q.args)
    if any(fake(index).dtype == torch.bool for _, index in given):
        return "a mask of booleans"
    if not q.args["accumulate"] and _few_listed(q.constants, q.args):
        return None
    if q.target.family != "U85":
        return f"other indices on {q.target.name}"
    strange = index_type(q)
    if strange is not None:
        return strange
    count = math.prod(chosen_sizes(given))
    if q.args["accumulate"] and count > MOST_PIECES:
        return f"{count} sums"
    return None


define(
    "index_put",
    (aten.index_put.default,),
    _index_put,
    (
        Constraint(
            f"at most {MOST_PIECES} constant indices of one dimension; on U85 others, "
            "of int32; of sums at most that many",
            _put,
            AS_INT32,
        ),
    ),
    reads=ANY,
    also="slices, concatenated, or lines that are scattered",
    quantization=Joined((0, 2)),
)
