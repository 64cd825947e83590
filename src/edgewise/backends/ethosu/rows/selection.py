"""Logic, choices and elements by index: what only U85 has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.accuracy import within
from edgewise.backends.ethosu.rows.shape import moved, sizes
from edgewise.backends.ethosu.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    OpRow,
    Refused,
    Value,
    add_row,
)
from edgewise.backends.ethosu.tosa import BOOL, INT32, Tensor, identity
from edgewise.backends.ethosu.values import Combined, Real
from edgewise.edge.graph import fake
from edgewise.partition.spec import Refusal

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
    add_row(
        OpRow(
            _name,
            (getattr(aten, _name).default,),
            _logical(_operator),
            only=_U85,
            why=NO_BOOL,
            bounds=within(0, 0),
        )
    )


def _where(to: Lowering, node: Node, args: Args) -> Real:
    condition = to.plain(args["condition"])
    pair = to.real(args["self"]), to.real(args["other"])
    return Combined(pair, sizes(node), lambda ts, quant: to.b.select(condition, *ts))


add_row(OpRow("where", (aten.where.self,), _where, reads=ANY, only=_U85, why=NO_BOOL))


def _chosen(to: Lowering, node: Node, value: Value, index: Tensor, dim: int) -> Value:
    """Slices along a dimension by a vector of int32 indices."""

    def move(t: Tensor) -> Tensor:
        b, shape = to.b, t.shape
        order = (*range(dim), dim, *range(dim + 1, t.rank))
        t = b.in_order(t, order)
        before, behind = 1, 1
        for d, size in enumerate(shape):
            before *= size if d < dim else 1
            behind *= size if d > dim else 1
        count = index.dims[-1]
        table = b.reshape(t, (before, shape[dim], behind))
        places = b.tile(b.reshape(index, (1, count)), (before, 1))
        made = b.tosa.add("GATHER", [table, places], [before, count, behind], t.dtype, identity(3))
        return b.reshape(made, (*shape[:dim], count, *shape[dim + 1 :]))

    return moved(node, value, move)


def _indices(to: Lowering, node: Node, size: int) -> Tensor:
    if node in to.constants:
        values = to.constants.tensor(node)
        values = torch.where(values < 0, values + size, values)
        return to.b.const(values.reshape(-1).numpy(), INT32)
    found = to.plain(node)
    if found.dtype != INT32:
        raise Refused(Refusal("constant indices, or indices of int32", f"{node}: {found.dtype}"))
    return found


def _index_select(to: Lowering, node: Node, args: Args) -> Value:
    before = sizes(args["self"])
    dim = args["dim"] % len(before)
    index = _indices(to, args["index"], before[dim])
    return _chosen(to, node, to.value(args["self"]), index, dim)


def _embedding(to: Lowering, node: Node, args: Args) -> Value:
    rows = sizes(args["weight"])[0]
    index = _indices(to, args["indices"], rows)
    flat = to.b.reshape(index, (1, -1 if not index.dims else _count(index.dims)))
    value, whole = to.value(args["weight"]), sizes(node)
    table = value if isinstance(value, Tensor) else to.stored(args["weight"])

    def move(t: Tensor) -> Tensor:
        b = to.b
        shaped = b.reshape(t, (1, *t.shape))
        count = flat.dims[-1]
        made = b.tosa.add("GATHER", [shaped, flat], [1, count, t.shape[1]], t.dtype, identity(3))
        return b.reshape(made, whole)

    return moved(node, table, move)


def _count(dims: Sequence[int]) -> int:
    total = 1
    for size in dims:
        total *= size
    return total


def _no_booleans(name: str) -> Constraint:
    def check(q: Ask) -> str | None:
        return "booleans" if fake(q.args[name]).dtype == torch.bool else None

    return Constraint("gathers numbers", check)


def _not_int64(name: str) -> Constraint:
    def check(q: Ask) -> str | None:
        index = q.args[name]
        if index in q.constants or fake(index).dtype == torch.int32:
            return None
        return str(fake(index).dtype).removeprefix("torch.")

    return Constraint("constant indices, or indices of int32", check, "indices.to(torch.int32)")


_GATHER = "others cannot gather"
add_row(
    OpRow(
        "index_select",
        (aten.index_select.default,),
        _index_select,
        (_not_int64("index"), _no_booleans("self")),
        reads=ANY,
        only=_U85,
        why=_GATHER,
    )
)
add_row(
    OpRow(
        "embedding",
        (aten.embedding.default,),
        _embedding,
        (_not_int64("indices"), _no_booleans("weight")),
        only=_U85,
        why=_GATHER,
    )
)
