"""The table of operators: one row says all there is to say about one of them.

The partitioner asks the rows whether a node can be delegated, and keeps the reason if
not; the backend has the row lower the node; the documentation's operator table and the
tests are made from the rows. `rows/` fills the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import Builder, Operand, Ref
from edgewise.edge.graph import arguments, fake, is_static, value_of
from edgewise.edge.program import Constants
from edgewise.partition.spec import Refusal

MAX_RANK = 6
"""XNNPACK's limit on dimensions."""

FLOATS = (torch.float32, torch.float16)


class Lowering:
    """What a row needs in order to lower a node: the builder and what is computed so far."""

    def __init__(self, builder: Builder, constants: Constants) -> None:
        self.b = builder
        self.constants = constants
        self.done: dict[Node, Operand | tuple[Operand, ...]] = {}

    def operand(self, node: Any) -> Operand:
        """The argument as a computed tensor or constant; a number as a constant of one element."""
        if isinstance(node, Node):
            if node in self.constants:
                return self.constants.tensor(node)
            found = self.done[node]
            assert not isinstance(found, tuple)
            return found
        return torch.tensor([float(node)])

    def ref(self, node: Any) -> Ref:
        return self.b.ref(self.operand(node))

    def tensor(self, node: Any) -> torch.Tensor:
        """A constant argument."""
        return self.constants.tensor(node)

    def optional(self, node: Any) -> torch.Tensor | None:
        return None if node is None else self.constants.tensor(node)


@dataclass(frozen=True)
class Query:
    """A question to a constraint: this node, with these arguments and constants."""

    node: Node
    args: dict[str, Any]
    constants: Constants


Check = Callable[[Query], "str | None"]


@dataclass(frozen=True)
class Constraint:
    """A rule that a node must keep. `check` answers None, or what it found instead."""

    rule: str
    check: Check
    hint: str = ""

    def refusal(self, query: Query) -> Refusal | None:
        got = self.check(query)
        return None if got is None else Refusal(self.rule, got, self.hint)


Lower = Callable[[Lowering, Node, dict[str, Any]], "Operand | tuple[Operand, ...]"]


@dataclass(frozen=True)
class OpRow:
    """An operator that the backend supports."""

    name: str
    """As in the documentation: `conv2d`, `linear`."""
    targets: tuple[torch._ops.OpOverload, ...]
    lower: Lower
    constraints: tuple[Constraint, ...] = ()
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    keep: bool = False
    """Whether a node that satisfies the row must not be decomposed before."""
    typed_constants: bool = True
    """Whether constant operands, too, must be of one of `dtypes`."""
    also: str = ""
    """How it is computed where XNNPACK has no node of its own for it."""

    def refusals(self, node: Node, constants: Constants) -> list[Refusal]:
        """Why the node cannot be delegated; empty if it can."""
        general = _general_refusal(node, constants, self)
        if general is not None:
            return [general]
        query = Query(node, arguments(node), constants)
        return [r for c in self.constraints if (r := c.refusal(query)) is not None]


ROWS: list[OpRow] = []
BY_TARGET: dict[Any, OpRow] = {}


def add_row(row: OpRow) -> OpRow:
    ROWS.append(row)
    for target in row.targets:
        if target in BY_TARGET:
            raise ValueError(f"[{row.name}] an operator must have one row; got two for {target}")
        BY_TARGET[target] = row
    return row


def _general_refusal(node: Node, constants: Constants, row: OpRow) -> Refusal | None:
    """What holds for every row: types, ranks, static and non-empty shapes."""
    results = value_of(node)
    if isinstance(results, (tuple, list)):
        results = results[:1]  # rows refuse where others are used
    values = [
        *(
            (n.name, value_of(n))
            for n in node.all_input_nodes
            if row.typed_constants or n not in constants
        ),
        *((node.name, v) for v in (results if isinstance(results, (tuple, list)) else [results])),
    ]
    for name, value in values:
        if not isinstance(value, torch.Tensor):
            return Refusal("operands must be tensors", f"{name}: {type(value).__name__}")
        if not is_static(value.shape):
            return Refusal(
                "shapes must be static",
                f"{name}: {list(value.shape)}",
                "an export without dynamic_shapes",
            )
        if value.dtype not in row.dtypes:
            names = " or ".join(str(d).removeprefix("torch.") for d in row.dtypes)
            return Refusal(
                f"data type must be {names}", f"{name}: {str(value.dtype).removeprefix('torch.')}"
            )
        if value.dim() > MAX_RANK:
            return Refusal(f"at most {MAX_RANK} dimensions", f"{name}: {value.dim()}")
        if value.numel() == 0:
            return Refusal("tensors must have elements", f"{name}: {list(value.shape)}")
    if all(n in constants for n in node.all_input_nodes):
        return Refusal("at least one operand must be computed", "constants only")
    return None


# --- constraints that several rows share ----------------------------------------------


def constant(*names: str) -> Constraint:
    """The named arguments are parameters, buffers or constants (or absent)."""

    def check(q: Query) -> str | None:
        for name in names:
            node = q.args.get(name)
            if node is not None and node not in q.constants:
                return f"{name} is computed by {getattr(node, 'name', node)}"
        return None

    return Constraint(f"constant {' and '.join(names)}", check)


def equals(name: str, *allowed: Any, hint: str = "") -> Constraint:
    shown = " or ".join(str(a) for a in allowed)

    def check(q: Query) -> str | None:
        return None if q.args[name] in allowed else f"{name}={q.args[name]}"

    return Constraint(f"{name}={shown}", check, hint)


def rank(name: str, *allowed: int) -> Constraint:
    shown = " or ".join(f"{a}-D" for a in allowed)

    def check(q: Query) -> str | None:
        found = fake(q.args[name]).dim()
        return None if found in allowed else f"{found}-D"

    return Constraint(f"{name} is {shown}", check)


def last_dim(name: str = "dim", operand: str = "self") -> Constraint:
    def check(q: Query) -> str | None:
        dim, of = q.args[name], fake(q.args[operand]).dim()
        return None if dim % max(of, 1) == of - 1 else f"dim={dim} of {of}-D"

    return Constraint("dim is the last dimension", check)
