"""What Ethos-U's definitions of operators say.

`backends.ethosu.operators` fills the table. A definition reads real numbers in one of three ways:

- `STORED`: each operand is dequantized where it is read (or a constant);
- `FUNCTION`: elementwise, of one tensor; what was not quantized between two of these is
  looked up in one table;
- `ANY`: it moves, chooses or cuts elements, of whatever is computed before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import MOVED, STEP, TABLES
from edgewise.backends.ethosu.lowering.context import QUANTIZE_IT, Lowering, Value
from edgewise.backends.ethosu.targets import Target
from edgewise.edge.graph import arguments, dims_of, dtype_name, fake, is_static, tensors_of
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.sizes import shown
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.operators.lowering import Refused
from edgewise.partition.accuracy import Accuracies
from edgewise.partition.constraints import Constraint, Query
from edgewise.partition.spec import Refusal

STORED, FUNCTION, ANY = "stored", "function", "any"
MAX_RANK = 6

Args = dict[str, Any]
Lower = Callable[[Lowering, Node, Args], "Value | tuple[Value, ...]"]


@dataclass(frozen=True)
class Ask(Query):
    """As any query; and for which processor."""

    constants: IntegerConstants
    target: Target


@dataclass(frozen=True)
class EthosUOperator(OperatorDefinition[Lower]):
    """An operator that the NPU runs."""

    reads: str = STORED
    int16: bool = True
    """Whether 16-bit operands can be computed with."""
    only: tuple[str, ...] = ()
    """Families of processors that have it; empty for all."""
    why: str = ""
    """Why others have not."""
    bounds: Accuracies | None = field(default=None, compare=False)
    """Where the accuracy is not the one of its kind: of tables, of what is moved, of the rest."""

    def accuracies(self) -> Accuracies:
        """By the type of the operands."""
        kinds = {FUNCTION: TABLES, ANY: MOVED, STORED: STEP}
        found = kinds[self.reads] if self.bounds is None else self.bounds
        return found if self.int16 else {k: a for k, a in found.items() if k != "int16"}

    def refusals(self, node: Node, constants: IntegerConstants, target: Target) -> list[Refusal]:
        """Why the node cannot be delegated; empty if it can. Its quantization is asked for
        elsewhere."""
        if self.only and target.family not in self.only:
            rule = f"{self.name} is only on {' and '.join(self.only)}: {self.why}"
            return [Refusal(rule, target.name)]
        for value in [t for n in [*node.all_input_nodes, node] for t in tensors_of(n)]:
            if not is_static(value.shape):
                got, hint = shown(dims_of(value.shape)), "an export without dynamic_shapes"
                return [Refusal("static shapes only: the program is compiled", got, hint)]
            if value.dim() > MAX_RANK:
                return [Refusal(f"at most {MAX_RANK} dimensions", f"{value.dim()}")]
            if value.numel() == 0:
                return [Refusal("tensors must have elements", str(list(value.shape)))]
            if value.dtype == torch.bool and target.family != "U85":
                return [Refusal("booleans only on U85", target.name)]
        query = Ask(node, arguments(node), constants, target)
        return [r for c in self.constraints if (r := c.refusal(query)) is not None]


TABLE = OperatorTable(EthosUOperator)
define = TABLE.define


def integer_weight(name: str, *axes: int) -> Constraint:
    """The argument is a constant of 8-bit integers around zero, with one scale, or one for each
    index of one of `axes`."""

    def check(q: Ask) -> str | None:
        node = q.args[name]
        found = q.constants.integers(node) if node in q.constants else None
        if found is None:
            return f"{name} in {dtype_name(fake(node).dtype)}"
        if found.data.dtype != torch.int8:
            return f"{name} of {dtype_name(found.data.dtype)}"
        if bool(found.zero_points.any()):
            return "zero points other than 0"
        if found.axis is not None and found.axis not in axes:
            return f"scales along dimension {found.axis}"
        return None

    hint = "EthosUQuantizer, or another quantizer with symmetric 8-bit weights"
    return Constraint(f"{name}: symmetric int8, per tensor or per output channel", check, hint)


__all__ = [
    "ANY",
    "FUNCTION",
    "QUANTIZE_IT",
    "STORED",
    "TABLE",
    "Args",
    "Ask",
    "Constraint",
    "EthosUOperator",
    "Lower",
    "Lowering",
    "Refused",
    "Value",
    "define",
    "integer_weight",
]
