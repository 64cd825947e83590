"""What XNNPACK's definitions of operators say, and constraints that several share.

`backends.xnnpack.operators` fills the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.backends.xnnpack.lowering import reshape
from edgewise.backends.xnnpack.lowering.accuracy import EXACT, STEP
from edgewise.backends.xnnpack.lowering.builder import Builder, Operand, Ref
from edgewise.backends.xnnpack.lowering.context import Lowering
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.static_sizes import NeedsNumber
from edgewise.edge.graph import (
    arguments,
    dims_of,
    dtype_name,
    fake,
    is_getitem,
    is_size,
    is_static,
    shape_of,
    tensors_of,
    value_of,
)
from edgewise.edge.orders import identity
from edgewise.edge.program import Constants
from edgewise.edge.sizes import shown, symbol_values, symbolic_sizes
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.partition.accuracy import Accuracies
from edgewise.partition.constraints import (
    Constraint,
    Query,
    constant,
    equals,
    last_dim,
    only_first,
    rank,
)
from edgewise.partition.spec import Refusal

STATIC_ONLY = "static shapes only"
FEWER_SYMBOLS = "an export without dynamic_shapes, or with fewer"

FLOATS = (torch.float32, torch.float16)
STATIC_INT8 = "static int8"
WEIGHTS = "8-bit weights, symmetric, per tensor or per channel"
_OTHER_FLOATS = {
    torch.float64: "model.float() before the export",
    torch.bfloat16: "model.float() or model.half() before the export",
}


Lower = Callable[[Lowering, Node, dict[str, Any]], "Operand | tuple[Operand, ...]"]


@dataclass(frozen=True)
class XnnpackOperator(OperatorDefinition[Lower]):
    """An operator that XNNPACK runs."""

    dtypes: tuple[torch.dtype, ...] = FLOATS
    typed_constants: bool = True
    """Whether constant operands, too, must be of one of `dtypes`."""
    sizes: tuple[str, ...] = ()
    """Arguments that hold sizes: these may be computed, for the result's shape says as much."""
    integers: str = ""
    """What it computes in integers, in words; passes decide node by node. Empty: nothing."""
    accuracy: Accuracies = field(default_factory=lambda: EXACT, compare=False)
    """Of the result's elements, by data type; without integers, which are a step off at most."""

    def accuracies(self) -> Accuracies:
        """By data type, with integers."""
        return {**self.accuracy, **(STEP if self.integers else {})}

    def refusals(self, node: Node, constants: Constants) -> list[Refusal]:
        """Why the node cannot be delegated; empty if it can."""
        general = _general_refusal(node, constants, self)
        if general is not None:
            return [general]
        query = Query(node, arguments(node), constants)
        computed = _computed_numbers(query, self.sizes)
        if computed:
            return [Refusal("numbers are known before", f"{computed} is computed from sizes")]
        found = [r for c in self.constraints if (r := c.refusal(query)) is not None]
        return found or self._refusals_by_trial(query)

    def _refusals_by_trial(self, query: Query) -> list[Refusal]:
        """Lowers a node with symbolic sizes to see whether that can be done."""
        node, constants = query.node, query.constants
        operands = [n for n in node.all_input_nodes if not is_size(n) and n not in constants]
        tensors = [t for n in [*operands, node] for t in tensors_of(n)]
        if all(is_static(t.shape) for t in tensors):
            return []
        builder = Builder()
        builder.graph.symbols = symbol_values([t.shape for t in tensors], {})
        to = Lowering(builder, constants)
        for operand in operands:
            # If another order cannot be lowered, this one can: the backend then falls back to it.
            shape = shape_of(operand)
            to.done[operand] = builder.input(shape, fake(operand).dtype, identity(len(shape)))
        try:
            made = self.lower(to, node, query.args)
        except reshape.OutOfReach as error:
            return [Refusal("shapes that XNNPACK can make", str(error), "a static batch size")]
        except NeedsNumber:
            shapes = ", ".join(shown(dims_of(t.shape)) for t in tensors)
            return [Refusal(STATIC_ONLY, shapes, FEWER_SYMBOLS)]
        return self._refusals_at_bounds(query, to, made)

    def _refusals_at_bounds(
        self, query: Query, to: Lowering, made: Operand | tuple[Operand, ...]
    ) -> list[Refusal]:
        """Where the result's shape is not that of the operator for the export's example, or at the
        bounds of the open sizes: the export has a check of its own, which no range tells."""
        shapes = [t.shape for n in (*query.node.all_input_nodes, query.node) for t in tensors_of(n)]
        for symbols in (symbol_values(shapes, {}), symbol_values(shapes)):
            to.b.graph.symbols = symbols
            for value, result in _results_in_use(query.node, made):
                wrong = to.difference(value, result)
                if wrong:
                    rule = "shapes that go together for all open sizes"
                    return [Refusal(rule, wrong, FEWER_SYMBOLS)]
        return []


def _results_in_use(
    node: Node, made: Operand | tuple[Operand, ...]
) -> Iterator[tuple[Any, Operand]]:
    """Each result that is read and computed, as the operator has it and as it was lowered."""
    values = value_of(node)
    if not isinstance(made, tuple):
        yield values, made
        return
    for index in {user.args[1] for user in node.users if is_getitem(user)}:
        if isinstance(index, int) and index < len(made) and isinstance(made[index], Ref):
            yield values[index], made[index]


TABLE = OperatorTable(XnnpackOperator)
define = TABLE.define


def _general_refusal(node: Node, constants: Constants, operator: XnnpackOperator) -> Refusal | None:
    """What holds for every operator: types, ranks, static and non-empty shapes."""
    results = value_of(node)
    if isinstance(results, (tuple, list)):
        results = results[:1]  # definitions refuse where others are used
    inputs = [n for n in node.all_input_nodes if not is_size(n)]
    values = [
        *((n.name, value_of(n)) for n in inputs if operator.typed_constants or n not in constants),
        *((node.name, v) for v in (results if isinstance(results, (tuple, list)) else [results])),
    ]
    for name, value in values:
        if not isinstance(value, torch.Tensor):
            return Refusal("operands must be tensors", f"{name}: {type(value).__name__}")
        if value.dtype not in operator.dtypes:
            names = " or ".join(dtype_name(d) for d in operator.dtypes)
            return Refusal(
                f"data type must be {names}",
                f"{name}: {dtype_name(value.dtype)}",
                _OTHER_FLOATS.get(value.dtype, ""),
            )
        if value.dim() > MAX_RANK:
            return Refusal(
                f"at most {MAX_RANK} dimensions",
                f"{name}: {value.dim()}",
                "merging neighbouring dimensions with reshape",
            )
        if any(size == 0 for size in dims_of(value.shape)):
            return Refusal("tensors must have elements", f"{name}: {list(value.shape)}")
    if all(n in constants for n in inputs):
        return Refusal("at least one operand must be computed", "constants only")
    return None


def _computed_numbers(query: Query, sizes: Sequence[str]) -> str | None:
    """The first argument that a size is part of, and that is none of `sizes`."""
    for name, value in query.args.items():
        found: list[Node] = []
        map_arg(value, found.append)
        if name not in sizes and any(is_size(n) for n in found):
            return name
    return None


# --- constraints that several definitions share ----------------------------------------------


def static(*names: str, result: bool = False) -> Constraint:
    """The named operands (and the result) have no symbolic sizes."""

    def check(q: Query) -> str | None:
        operands = [q.args[name] for name in names] + ([q.node] if result else [])
        for node in operands:
            if isinstance(node, Node) and symbolic_sizes(shape_of(node)):
                return f"{node.name}: {shown(shape_of(node))}"
        return None

    return Constraint(STATIC_ONLY, check, FEWER_SYMBOLS)


def static_dim(name: str = "dim", operand: str = "self") -> Constraint:
    """The dimension, or each of them, has a size that is known before."""

    def check(q: Query) -> str | None:
        shape = shape_of(q.args[operand])
        dims = q.args[name]
        for dim in [dims] if isinstance(dims, int) else dims or range(len(shape)):
            if shape and not isinstance(shape[dim], int):
                return f"dim={dim} of {shown(shape)}"
        return None

    return Constraint("the size along dim is static", check, FEWER_SYMBOLS)


def _reshapable(q: Query) -> str | None:
    return reshape.refusal(shape_of(q.args["self"]), shape_of(q.node))


RESHAPABLE = Constraint(
    "a reshape with at most one symbolic size in the result, or symbolic sizes left as they are",
    _reshapable,
    "a static batch size",
)


__all__ = [
    "FEWER_SYMBOLS",
    "FLOATS",
    "RESHAPABLE",
    "STATIC_INT8",
    "STATIC_ONLY",
    "TABLE",
    "WEIGHTS",
    "Constraint",
    "Lower",
    "Lowering",
    "Query",
    "XnnpackOperator",
    "constant",
    "define",
    "equals",
    "last_dim",
    "only_first",
    "rank",
    "static",
    "static_dim",
]
