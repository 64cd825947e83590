"""Lines of a tensor that indices choose: they replace one dimension or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.table import Args, Ask, Lowering, Refused
from edgewise.backends.ethosu.lowering.tosa import BOOL, INT32, Tensor
from edgewise.backends.ethosu.operators.shape import sizes
from edgewise.edge.graph import dtype_name, fake
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.orders import identity
from edgewise.partition.spec import Refusal

AS_INT32 = "indices.to(torch.int32)"


def given_indices(args: Args) -> list[tuple[int, Node]]:
    """Which dimensions are indexed, and by what."""
    return [(d, index) for d, index in enumerate(args["indices"]) if index is not None]


def indices(to: Lowering, node: Node, size: int) -> Tensor:
    if node in to.constants:
        return to.b.const(positive(to.constants.tensor(node), size).numpy(), INT32)
    found = to.plain(node)
    if found.dtype != INT32:
        raise Refused(Refusal("constant indices, or indices of int32", f"{node}: {found.dtype}"))
    return to.b.in_order(found, identity(found.rank))


def positive(values: torch.Tensor, size: int) -> torch.Tensor:
    return torch.where(values < 0, values + size, values)


def listed(constants: IntegerConstants, index: Node, size: int) -> list[int]:
    return [int(i) for i in positive(constants.tensor(index), size).reshape(-1)]


def not_int64(q: Ask, index: Node) -> str | None:
    if index in q.constants or fake(index).dtype == torch.int32:
        return None
    return dtype_name(fake(index).dtype)


def index_type(q: Ask) -> str | None:
    return next((r for _, index in given_indices(q.args) if (r := not_int64(q, index))), None)


def chosen_sizes(given: Sequence[tuple[int, Node]]) -> tuple[int, ...]:
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
        shape, given = sizes(args["self"]), given_indices(args)
        dims = [dim for dim, _ in given]
        first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
        others = [d for d in range(len(shape)) if d not in dims]
        before, behind = others[:first], others[first:]
        groups = [tuple(shape[d] for d in part) for part in (before, dims, behind)]
        return Lines(
            groups[0], groups[1], groups[2], chosen_sizes(given), (*before, *dims, *behind)
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

    def rows(self, to: Lowering, args: Args) -> Tensor:
        """Which line each index is, for each group: int32."""
        index = _one_index_of(to, given_indices(args), self.block, self.chosen)
        groups, count, _ = self.lines
        return to.b.tile(to.b.reshape(index, (1, count)), (groups, 1))


def gathered(b: Builder, table: Tensor, rows: Tensor) -> Tensor:
    """Lines of a table [groups, lines, length], by int32 of [groups, count]. Booleans as zeros and
    ones: there is no unit that moves these by index."""
    if table.dtype == BOOL:
        ones, zeros = b.number(1, table), b.number(0, table)
        numbers = gathered(b, b.select(table, ones, zeros), rows)
        return b.binary("GREATER", numbers, b.number(0, numbers), BOOL)
    dims = (table.dims[0], rows.dims[1], table.dims[2])
    return b.tosa.add("GATHER", [table, rows], dims, table.dtype, identity(3))


def spread(to: Lowering, values: Tensor, whole: Sequence[int]) -> Tensor:
    """Broadcast to the shape."""
    values = to.b.with_rank(values, len(whole))
    return to.b.tile(values, [n // m for n, m in zip(whole, values.shape, strict=True)])


def _one_index_of(
    to: Lowering, given: Sequence[tuple[int, Node]], block: Sequence[int], chosen: Sequence[int]
) -> Tensor:
    """Of several dimensions, the index in all of them together: a vector of int32."""
    b = to.b
    if all(index in to.constants for _, index in given):
        known = [
            positive(to.constants.tensor(index), size).broadcast_to(chosen)
            for (_, index), size in zip(given, block, strict=True)
        ]
        total = sum(k.long() * math.prod(block[n + 1 :]) for n, k in enumerate(known))
        return b.const(torch.as_tensor(total).reshape(-1).numpy(), INT32)
    made = None
    for n, ((_, index), size) in enumerate(zip(given, block, strict=True)):
        found = _wrapped(to, spread(to, indices(to, index, size), chosen), size)
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
