"""What Ethos-U's definitions of operators say, and what they need to lower a node.

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
from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.constants import IntegerConstants
from edgewise.backends.ethosu.lowering.quant import TYPES, Quant
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, Tensor
from edgewise.backends.ethosu.lowering.values import Constant, Real, Stored
from edgewise.backends.ethosu.targets import Target
from edgewise.edge.graph import arguments, dims_of, fake, is_getitem, is_static, op_name, tensors_of
from edgewise.edge.sizes import shown
from edgewise.errors import EdgewiseError
from edgewise.operators import OperatorDefinition, OperatorTable
from edgewise.partition.accuracy import Accuracies
from edgewise.partition.constraints import Constraint, Query
from edgewise.partition.spec import Refusal

STORED, FUNCTION, ANY = "stored", "function", "any"
MAX_RANK = 6

Value = Real | Tensor


class Refused(EdgewiseError):
    """A node that cannot be lowered, and why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


QUANTIZE_IT = (
    "edgewise.compile(..., quantize='int8', calibration=...), or EthosUQuantizer with prepare_pt2e"
)


def not_quantized(node: Node, reader: str) -> Refused:
    tensors = tensors_of(node)
    if tensors and not any(t.is_floating_point() for t in tensors):
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        return Refused(Refusal(f"operands of {reader} are quantized", f"{node.name}: {dtype}"))
    got = f"floating point from {_said(node)}"
    return Refused(Refusal(f"operands of {reader} are quantized", got, QUANTIZE_IT))


def _said(node: Node) -> str:
    """What computes a value, in the reader's words."""
    if is_getitem(node) and isinstance(node.args[0], Node):
        return op_name(node.args[0])
    return "outside" if node.op == "placeholder" else op_name(node)


class Lowering:
    """What a definition needs in order to lower a node: the builder, the family of processors, and
    what is computed so far."""

    def __init__(self, builder: Builder, constants: IntegerConstants, family: str) -> None:
        self.b = builder
        self.constants = constants
        self.family = family
        self.done: dict[Node, Value | tuple[Value, ...]] = {}

    def value(self, node: Any) -> Value:
        """The argument; a constant or a number as real numbers."""
        if not isinstance(node, Node):
            return Constant(torch.tensor(float(node)))
        if node in self.constants:
            return self._constant(node)
        found = self.done.get(node)
        if found is None:
            raise not_quantized(node, "what runs on the NPU")
        assert not isinstance(found, tuple)
        return found

    def _constant(self, node: Node) -> Value:
        weight = self.constants.weight(node)
        if weight is not None and weight.axis is None:
            quant = Quant.of(node)
            if TYPES.get(quant.dtype) in (INT8, INT16):
                return Stored(self.b.const(weight.data.numpy(), quant.type), quant)
        tensor = self.constants.tensor(node)
        if not tensor.is_floating_point():
            if tensor.dtype not in TYPES:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise Refused(Refusal("integers of 8, 16 or 32 bits", f"{node.name}: {kind}"))
            return self.b.const(tensor.numpy(), TYPES[tensor.dtype])
        return Constant(tensor)

    def real(self, node: Any) -> Real:
        found = self.value(node)
        if not isinstance(found, Real):
            raise Refused(Refusal("operands are quantized real numbers", f"{node}: integers"))
        return found

    def plain(self, node: Any) -> Tensor:
        """An operand that is no real number: indices, conditions."""
        found = self.value(node)
        if not isinstance(found, Tensor):
            raise Refused(Refusal("operands are integers or booleans", f"{node}: real numbers"))
        return found

    def stored(self, node: Any) -> Stored:
        """An operand that was dequantized; a constant in floating point as 16 bits."""
        found = self.real(node)
        if isinstance(found, Constant):
            return found.stored(self.b)
        if not isinstance(found, Stored):
            raise not_quantized(node, "this operator")
        return found


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
        found = q.constants.weight(node) if node in q.constants else None
        if found is None:
            return f"{name} in {str(fake(node).dtype).removeprefix('torch.')}"
        if found.data.dtype != torch.int8:
            return f"{name} of {str(found.data.dtype).removeprefix('torch.')}"
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
