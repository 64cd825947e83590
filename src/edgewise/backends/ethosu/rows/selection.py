"""Logic, choices and elements by index: what only U85 has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import within
from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.constants import IntegerConstants
from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import (
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
from edgewise.backends.ethosu.lowering.tosa import BOOL, INT32, Tensor, identity
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored
from edgewise.backends.ethosu.rows.shape import MOST_PIECES, moved, sizes
from edgewise.edge.graph import fake
from edgewise.partition.spec import Refusal

aten = torch.ops.aten
Put = Callable[[Tensor, Tensor], Tensor]
_U85 = ("U85",)
NO_BOOL = "others have no booleans"
_AS_INT32 = "indices.to(torch.int32)"


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


def _chosen(to: Lowering, node: Node, source: Node, index: Node, dim: int) -> Value:
    """Elements of a dimension by indices of any shape, which takes its place."""
    size, places = sizes(source)[dim], sizes(index)
    if to.family == "U85":
        found = to.b.reshape(_indices(to, index, size), (math.prod(places),))
        return moved(node, to.value(source), lambda t: _gathered(to, t, found, dim, sizes(node)))
    listed = _listed(to.constants, index, size)
    return moved(
        node, to.value(source), lambda t: to.b.reshape(take(to, t, dim, listed), sizes(node))
    )


def take(to: Lowering, t: Tensor, dim: int, indices: Sequence[int]) -> Tensor:
    """Elements of a dimension as slices, concatenated: one for each run of rising indices."""
    parts = [to.b.slice(t, {dim: start}, {dim: length}) for start, length in runs(indices)]
    return parts[0] if len(parts) == 1 else to.b.concat(parts, dim)


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Starts and lengths of the runs in which each index is the one before plus one."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and sum(found[-1]) == index:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
    return found


def _gathered(to: Lowering, t: Tensor, index: Tensor, dim: int, after: Sequence[int]) -> Tensor:
    """By a vector of int32 indices. after: the result's sizes."""
    b, shape = to.b, t.shape
    t = b.in_order(t, identity(t.rank))
    before, behind = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    count = index.dims[-1]
    table = b.reshape(t, (before, shape[dim], behind))
    places = b.tile(b.reshape(index, (1, count)), (before, 1))
    made = b.tosa.add("GATHER", [table, places], [before, count, behind], t.dtype, identity(3))
    return b.reshape(made, after)


def _indices(to: Lowering, node: Node, size: int) -> Tensor:
    if node in to.constants:
        return to.b.const(_positive(to.constants.tensor(node), size).numpy(), INT32)
    found = to.plain(node)
    if found.dtype != INT32:
        raise Refused(Refusal("constant indices, or indices of int32", f"{node}: {found.dtype}"))
    return to.b.in_order(found, identity(found.rank))


def _positive(values: torch.Tensor, size: int) -> torch.Tensor:
    return torch.where(values < 0, values + size, values)


def _listed(constants: IntegerConstants, index: Node, size: int) -> list[int]:
    return [int(i) for i in _positive(constants.tensor(index), size).reshape(-1)]


def _index_select(to: Lowering, node: Node, args: Args) -> Value:
    dim = args["dim"] % fake(args["self"]).dim()
    return _chosen(to, node, args["self"], args["index"], dim)


def _only_index(q: Ask) -> tuple[int, Node] | None:
    """The dimension that is indexed, and by what, if it is one."""
    given = [(d, index) for d, index in enumerate(q.args["indices"]) if index is not None]
    return given[0] if len(given) == 1 else None


def _index(to: Lowering, node: Node, args: Args) -> Value:
    given = _given(args)
    if to.family != "U85":
        ((dim, index),) = given
        return _chosen(to, node, args["self"], index, dim)
    b, by = to.b, Lines.of(args)
    rows = by.places(to, args)

    def move(t: Tensor) -> Tensor:
        made = b.tosa.add("GATHER", [by.laid(b, t), rows], by.lines, t.dtype, identity(3))
        return b.reshape(made, sizes(node))

    return moved(node, to.value(args["self"]), move)


def _gather(to: Lowering, node: Node, args: Args) -> Value:
    dim, rank = args["dim"] % fake(args["self"]).dim(), fake(args["self"]).dim()
    index, b = args["index"], to.b
    order = (*(d for d in range(rank) if d != dim), dim)
    places = sizes(index)
    turned = [places[d] for d in order]
    rows = math.prod(turned[:-1])
    flat = b.permute(_indices(to, index, sizes(args["self"])[dim]), order)
    flat = b.reshape(b.in_order(flat, identity(rank)), (rows, turned[-1]))

    def move(t: Tensor) -> Tensor:
        t = b.slice(t, {}, {d: places[d] for d in range(rank) if d != dim})
        size = t.shape[dim]
        t = b.in_order(b.permute(t, order), identity(rank))
        shapes = b.reshape(t, (rows, size, 1)), flat
        made = b.tosa.add("GATHER", list(shapes), [rows, turned[-1], 1], t.dtype, identity(3))
        back = [order.index(d) for d in range(rank)]
        return b.permute(b.reshape(made, turned), back)

    return moved(node, to.value(args["self"]), move)


def _put_slices(to: Lowering, node: Node, args: Args) -> Put:
    """What lies between constant indices, and the values at them, concatenated."""
    ((dim, index),) = _given(args)
    shape = sizes(args["self"])
    listed = _listed(to.constants, index, shape[dim])
    whole = (*shape[:dim], len(listed), *shape[dim + 1 :])

    def put(x: Tensor, values: Tensor) -> Tensor:
        b = to.b
        values = _spread(to, values, whole)
        source = {place: at for at, place in enumerate(listed)}  # the last of several
        parts, kept = [], 0
        for place in sorted(source):
            if place > kept:
                parts.append(b.slice(x, {dim: kept}, {dim: place - kept}))
            parts.append(b.slice(values, {dim: source[place]}, {dim: 1}))
            kept = place + 1
        if kept < shape[dim]:
            parts.append(b.slice(x, {dim: kept}, {dim: shape[dim] - kept}))
        return parts[0] if len(parts) == 1 else b.concat(parts, dim)

    return put


def _chosen_sizes(given: Sequence[tuple[int, Node]]) -> tuple[int, ...]:
    """Of the indices, broadcast."""
    shape: Any = torch.broadcast_shapes(*(sizes(index) for _, index in given))  # type: ignore[no-untyped-call]
    return tuple(shape)


@dataclass(frozen=True)
class Lines:
    """A tensor whose indexed dimensions are one: `before x block x behind`, of which an index
    chooses lines. As in torch the indices' own dimensions stand in the result where the indexed
    ones did, or, if others were between these, before all."""

    before: tuple[int, ...]
    block: tuple[int, ...]
    behind: tuple[int, ...]
    chosen: tuple[int, ...]
    """Sizes of the indices, broadcast."""
    order: tuple[int, ...]
    """The tensor's dimensions: those before, the indexed ones, those behind."""

    @staticmethod
    def of(args: Args) -> Lines:
        shape, given = sizes(args["self"]), _given(args)
        dims = [dim for dim, _ in given]
        first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
        others = [d for d in range(len(shape)) if d not in dims]
        before, behind = others[:first], others[first:]
        groups = [tuple(shape[d] for d in part) for part in (before, dims, behind)]
        return Lines(
            groups[0], groups[1], groups[2], _chosen_sizes(given), (*before, *dims, *behind)
        )

    @property
    def table(self) -> tuple[int, int, int]:
        """Of the tensor: groups of lines."""
        return math.prod(self.before), math.prod(self.block), math.prod(self.behind)

    @property
    def lines(self) -> tuple[int, int, int]:
        """Of what is chosen."""
        return math.prod(self.before), math.prod(self.chosen), math.prod(self.behind)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is chosen, as torch has it."""
        return (*self.before, *self.chosen, *self.behind)

    def laid(self, b: Builder, t: Tensor) -> Tensor:
        """The tensor as a table."""
        return b.reshape(b.in_order(b.permute(t, self.order), identity(t.rank)), self.table)

    def places(self, to: Lowering, args: Args) -> Tensor:
        """Which line each index is, for each group: int32."""
        index = _one_index_of(to, _given(args), self.block, self.chosen)
        groups, count, _ = self.lines
        return to.b.tile(to.b.reshape(index, (1, count)), (groups, 1))


def _put_lines(to: Lowering, node: Node, args: Args) -> Put:
    """By SCATTER."""
    b, by = to.b, Lines.of(args)
    rows, (groups, count, length) = by.places(to, args), by.lines

    def scattered(t: Tensor, index: Tensor, new: Tensor) -> Tensor:
        return b.tosa.add("SCATTER", [t, index, new], by.table, t.dtype, identity(3))

    def gathered(t: Tensor, index: Tensor) -> Tensor:
        return b.tosa.add("GATHER", [t, index], (groups, 1, length), t.dtype, identity(3))

    def written(t: Tensor, new: Tensor) -> Tensor:
        if not args["accumulate"]:
            return scattered(t, rows, new)
        for at in range(count):  # one after another: an index may be there twice
            index = b.slice(rows, {1: at}, {1: 1})
            line = b.slice(new, {1: at}, {1: 1})
            t = scattered(t, index, b.binary("ADD", gathered(t, index), line))
        return t

    def put(x: Tensor, values: Tensor) -> Tensor:
        values = _spread(to, values, by.shape)
        new = b.reshape(b.in_order(values, identity(values.rank)), by.lines)
        made = b.reshape(written(by.laid(b, x), new), [*by.before, *by.block, *by.behind])
        return b.permute(made, [by.order.index(d) for d in range(x.rank)])

    return put


def _spread(to: Lowering, values: Tensor, whole: Sequence[int]) -> Tensor:
    """Broadcast to the shape."""
    values = to.b.with_rank(values, len(whole))
    return to.b.tile(values, [n // m for n, m in zip(whole, values.shape, strict=True)])


def _one_index_of(
    to: Lowering, given: Sequence[tuple[int, Node]], block: Sequence[int], chosen: Sequence[int]
) -> Tensor:
    """Of several dimensions, the place in all of them: a vector of int32."""
    b = to.b
    if all(index in to.constants for _, index in given):
        known = [
            _positive(to.constants.tensor(index), size).broadcast_to(chosen)
            for (_, index), size in zip(given, block, strict=True)
        ]
        total = sum(k.long() * math.prod(block[n + 1 :]) for n, k in enumerate(known))
        return b.const(torch.as_tensor(total).reshape(-1).numpy(), INT32)
    made = None
    for n, ((_, index), size) in enumerate(zip(given, block, strict=True)):
        found = _wrapped(to, _spread(to, _indices(to, index, size), chosen), size)
        steps = math.prod(block[n + 1 :])
        if steps != 1:
            found = b.binary("MUL", found, b.number(steps, found))
        made = found if made is None else b.binary("ADD", made, found)
    assert made is not None
    return b.reshape(b.in_order(made, identity(made.rank)), (math.prod(chosen),))


def _wrapped(to: Lowering, index: Tensor, size: int) -> Tensor:
    """Indices below zero count from the end: index + size * min(max(-index, 0), 1)."""
    b = to.b
    if b.is_known(index):
        return index
    below = b.binary("MAXIMUM", b.binary("SUB", b.number(0, index), index), b.number(0, index))
    below = b.binary("MINIMUM", below, b.number(1, index))
    return b.binary("ADD", index, b.binary("MUL", below, b.number(size, index)))


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


def _given(args: Args) -> list[tuple[int, Node]]:
    """Which dimensions are indexed, and by what."""
    return [(d, index) for d, index in enumerate(args["indices"]) if index is not None]


def _few_listed(constants: IntegerConstants, args: Args) -> bool:
    """Whether one dimension is indexed, by few constants."""
    given = _given(args)
    if len(given) != 1 or given[0][1] not in constants:
        return False
    dim, index = given[0]
    listed = _listed(constants, index, sizes(args["self"])[dim])
    return len(listed) <= MOST_PIECES


def _embedding(to: Lowering, node: Node, args: Args) -> Value:
    value = to.value(args["weight"])
    if not isinstance(value, Tensor | Stored):
        value = to.stored(args["weight"])
    index = _indices(to, args["indices"], sizes(args["weight"])[0])
    flat = to.b.reshape(index, (math.prod(index.dims),))
    return moved(node, value, lambda t: _gathered(to, t, flat, 0, sizes(node)))


def _no_booleans(name: str) -> Constraint:
    def check(q: Ask) -> str | None:
        return "booleans" if fake(q.args[name]).dtype == torch.bool else None

    return Constraint("gathers numbers", check)


def _not_int64(name: str) -> Constraint:
    return Constraint(
        "constant indices, or indices of int32",
        lambda q: _not_int64_of(q, q.args[name]),
        _AS_INT32,
    )


def _not_int64_of(q: Ask, index: Node) -> str | None:
    if index in q.constants or fake(index).dtype == torch.int32:
        return None
    return str(fake(index).dtype).removeprefix("torch.")


_GATHER = "others cannot gather"


def _few_runs(index: Callable[[Ask], Node | None], dim: Callable[[Ask], int]) -> Constraint:
    """Others than U85 copy slices."""

    def check(q: Ask) -> str | None:
        found = index(q)
        if q.target.family == "U85" or found is None:
            return None
        if found not in q.constants:
            return f"computed indices on {q.target.name}"
        size = sizes(q.args["self"])[dim(q)]
        count = len(runs(_listed(q.constants, found, size)))
        return None if count <= MOST_PIECES else f"{count} on {q.target.name}"

    return Constraint(f"constant indices of at most {MOST_PIECES} runs, except on U85", check)


def _one_index(q: Ask) -> str | None:
    given = _given(q.args)
    if any(fake(index).dtype == torch.bool for _, index in given):
        return "a mask of booleans"
    return None if len(given) == 1 or q.target.family == "U85" else f"{len(given)}"


def _index_type(q: Ask) -> str | None:
    return next((r for _, index in _given(q.args) if (r := _not_int64_of(q, index))), None)


def _put(q: Ask) -> str | None:
    given = _given(q.args)
    if any(fake(index).dtype == torch.bool for _, index in given):
        return "a mask of booleans"
    if not q.args["accumulate"] and _few_listed(q.constants, q.args):
        return None
    if q.target.family != "U85":
        return f"other indices on {q.target.name}"
    strange = _index_type(q)
    if strange is not None:
        return strange
    count = math.prod(_chosen_sizes(given))
    if q.args["accumulate"] and count > MOST_PIECES:
        return f"{count} sums"
    return None


_INDEXED = Constraint("by numbers; of one dimension, except on U85", _one_index)
add_row(
    OpRow(
        "index_select",
        (aten.index_select.default,),
        _index_select,
        (
            _not_int64("index"),
            _no_booleans("self"),
            _few_runs(lambda q: q.args["index"], lambda q: q.args["dim"]),
        ),
        reads=ANY,
        also="others than U85: slices, concatenated",
    )
)
add_row(
    OpRow(
        "index",
        (aten.index.Tensor,),
        _index,
        (
            _INDEXED,
            Constraint("constant indices, or indices of int32", _index_type, _AS_INT32),
            _no_booleans("self"),
            _few_runs(
                lambda q: (_only_index(q) or (0, None))[1], lambda q: (_only_index(q) or (0, 0))[0]
            ),
        ),
        reads=ANY,
        also="others than U85: slices, concatenated",
    )
)
add_row(
    OpRow(
        "index_put",
        (aten.index_put.default,),
        _index_put,
        (
            Constraint(
                f"at most {MOST_PIECES} constant indices of one dimension; on U85 others, "
                "of int32; of sums at most that many",
                _put,
                _AS_INT32,
            ),
        ),
        reads=ANY,
        also="slices, concatenated, or lines that are scattered",
    )
)
add_row(
    OpRow(
        "gather",
        (aten.gather.default,),
        _gather,
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
