"""Logic, choices and elements by index: what only U85 has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import within
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
from edgewise.backends.ethosu.lowering.tosa import BOOL, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored
from edgewise.backends.ethosu.operators.lines import (
    AS_INT32,
    Lines,
    gathered,
    given_indices,
    index_type,
    indices,
    listed,
    not_int64,
)
from edgewise.backends.ethosu.operators.shape import MOST_PIECES, moved, sizes
from edgewise.edge.graph import fake
from edgewise.edge.indices import runs
from edgewise.edge.orders import identity
from edgewise.partition.constraints import HAS_DIMS
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import SAME_SCALE, UNARY, Elementwise

aten = torch.ops.aten
_U85 = ("U85",)
NO_BOOL = "others have no booleans"


def _logical(operator: str) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Tensor:
        operands = [to.plain(n) for n in node.all_input_nodes]
        if any(t.dtype != BOOL for t in operands):
            raise Refused(Refusal("booleans", ", ".join(t.dtype for t in operands)))
        if len(operands) == 1:
            return to.b.unary(operator, operands[0])
        return to.b.binary(operator, operands[0], operands[1])

    return lower


for _name, _operator in (
    ("logical_and", "LOGICAL_AND"),
    ("logical_or", "LOGICAL_OR"),
    ("logical_xor", "LOGICAL_XOR"),
    ("logical_not", "LOGICAL_NOT"),
):
    define(
        _name,
        (getattr(aten, _name).default,),
        _logical(_operator),
        only=_U85,
        why=NO_BOOL,
        bounds=within(0, 0),
    )


def _where(to: Lowering, node: Node, args: Args) -> Real:
    condition = to.plain(args["condition"])
    pair = to.real(args["self"]), to.real(args["other"])
    return Combined(pair, sizes(node), lambda ts, quant: to.b.select(condition, *ts))


define(
    "where",
    (aten.where.self,),
    _where,
    reads=ANY,
    only=_U85,
    why=NO_BOOL,
    quantization={
        aten.where.self: Elementwise(first=1),
        **dict.fromkeys((aten.masked_fill.Scalar, aten.threshold.default), UNARY),
    },
)


def _chosen(to: Lowering, node: Node, source: Node, index: Node, dim: int) -> Value:
    """Elements of a dimension by indices, whose shape replaces the dimension."""
    size, chosen = sizes(source)[dim], sizes(index)
    if to.family == "U85":
        found = to.b.reshape(indices(to, index, size), (math.prod(chosen),))
        return moved(node, to.value(source), lambda t: _gathered(to, t, found, dim, sizes(node)))
    found_at = listed(to.constants, index, size)
    return moved(
        node, to.value(source), lambda t: to.b.reshape(take(to, t, dim, found_at), sizes(node))
    )


def take(to: Lowering, t: Tensor, dim: int, indices: Sequence[int]) -> Tensor:
    """Elements of a dimension as slices, concatenated: one for each run of rising indices."""
    parts = [to.b.slice(t, {dim: start}, {dim: length}) for start, length in runs(indices)]
    return parts[0] if len(parts) == 1 else to.b.concat(parts, dim)


def _gathered(to: Lowering, t: Tensor, index: Tensor, dim: int, after: Sequence[int]) -> Tensor:
    """By a vector of int32 indices. after: the result's sizes."""
    b, shape = to.b, t.shape
    t = b.in_order(t, identity(t.rank))
    before, behind = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    count = index.dims[-1]
    table = b.reshape(t, (before, shape[dim], behind))
    chosen = b.tile(b.reshape(index, (1, count)), (before, 1))
    return b.reshape(gathered(b, table, chosen), after)


def _index_select(to: Lowering, node: Node, args: Args) -> Value:
    dim = args["dim"] % fake(args["self"]).dim()
    return _chosen(to, node, args["self"], args["index"], dim)


def _only_index(q: Ask) -> tuple[int, Node] | None:
    """The dimension that is indexed, and by what, if it is one."""
    given = [(d, index) for d, index in enumerate(q.args["indices"]) if index is not None]
    return given[0] if len(given) == 1 else None


def _index(to: Lowering, node: Node, args: Args) -> Value:
    given = given_indices(args)
    if to.family != "U85":
        ((dim, index),) = given
        return _chosen(to, node, args["self"], index, dim)
    b, by = to.b, Lines.of(args)
    rows = by.rows(to, args)

    def move(t: Tensor) -> Tensor:
        return b.reshape(gathered(b, by.laid(b, t), rows), sizes(node))

    return moved(node, to.value(args["self"]), move)


def _gather(to: Lowering, node: Node, args: Args) -> Value:
    dim, rank = args["dim"] % fake(args["self"]).dim(), fake(args["self"]).dim()
    index, b = args["index"], to.b
    order = (*(d for d in range(rank) if d != dim), dim)
    chosen = sizes(index)
    turned = [chosen[d] for d in order]
    rows = math.prod(turned[:-1])
    flat = b.permute(indices(to, index, sizes(args["self"])[dim]), order)
    flat = b.reshape(b.in_order(flat, identity(rank)), (rows, turned[-1]))

    def move(t: Tensor) -> Tensor:
        t = b.slice(t, {}, {d: chosen[d] for d in range(rank) if d != dim})
        size = t.shape[dim]
        t = b.in_order(b.permute(t, order), identity(rank))
        made = gathered(b, b.reshape(t, (rows, size, 1)), flat)
        back = [order.index(d) for d in range(rank)]
        return b.permute(b.reshape(made, turned), back)

    return moved(node, to.value(args["self"]), move)


def _embedding(to: Lowering, node: Node, args: Args) -> Value:
    value = to.value(args["weight"])
    if not isinstance(value, Tensor | Stored):
        value = to.stored(args["weight"])
    index = indices(to, args["indices"], sizes(args["weight"])[0])
    flat = to.b.reshape(index, (math.prod(index.dims),))
    return moved(node, value, lambda t: _gathered(to, t, flat, 0, sizes(node)))


def _not_int64(name: str) -> Constraint:
    return Constraint(
        "constant indices, or indices of int32",
        lambda q: not_int64(q, q.args[name]),
        AS_INT32,
    )


_GATHER = "others cannot gather"


def _few_runs(index: Callable[[Ask], Node | None], dim: Callable[[Ask], int]) -> Constraint:
    """Others than U85 copy slices."""

    def check(q: Ask) -> str | None:
        found = index(q)
        if q.target.family == "U85" or found is None:
            return None
        if found not in q.constants:
            return f"computed indices on {q.target.name}"
        shape = sizes(q.args["self"])
        if not shape:
            return None
        size = shape[dim(q)]
        count = len(runs(listed(q.constants, found, size)))
        return None if count <= MOST_PIECES else f"{count} on {q.target.name}"

    return Constraint(f"constant indices of at most {MOST_PIECES} runs, except on U85", check)


def _one_index(q: Ask) -> str | None:
    given = given_indices(q.args)
    if any(fake(index).dtype == torch.bool for _, index in given):
        return "a mask of booleans"
    return None if len(given) == 1 or q.target.family == "U85" else f"{len(given)}"


_INDEXED = Constraint("by numbers; of one dimension, except on U85", _one_index)
define(
    "index_select",
    (aten.index_select.default,),
    _index_select,
    (
        HAS_DIMS,
        _not_int64("index"),
        _few_runs(lambda q: q.args["index"], lambda q: q.args["dim"]),
    ),
    reads=ANY,
    also="others than U85: slices, concatenated",
    quantization=SAME_SCALE,
)
define(
    "index",
    (aten.index.Tensor,),
    _index,
    (
        _INDEXED,
        Constraint("constant indices, or indices of int32", index_type, AS_INT32),
        _few_runs(
            lambda q: (_only_index(q) or (0, None))[1], lambda q: (_only_index(q) or (0, 0))[0]
        ),
    ),
    reads=ANY,
    also="others than U85: slices, concatenated",
    quantization=dict.fromkeys((aten.index.Tensor, aten.diagonal.default), SAME_SCALE),
)
define(
    "gather",
    (aten.gather.default,),
    _gather,
    (HAS_DIMS, _not_int64("index")),
    reads=ANY,
    only=_U85,
    why=_GATHER,
    quantization=SAME_SCALE,
)
define(
    "embedding",
    (aten.embedding.default,),
    _embedding,
    (_not_int64("indices"),),
    only=_U85,
    why=_GATHER,
    quantization=SAME_SCALE,
)
