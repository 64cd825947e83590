"""What XNNPACK's definitions are given to lower a node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.builder import Builder, Operand, Ref
from edgewise.backends.xnnpack.lowering.quantized_constants import QuantizedConstants
from edgewise.backends.xnnpack.lowering.reshape import OutOfReach
from edgewise.backends.xnnpack.lowering.weight_only import is_expanded, is_plain
from edgewise.edge.graph import Dim, dims_of, fake, shape_of
from edgewise.edge.layout import dim_order
from edgewise.edge.orders import identity
from edgewise.edge.program import Constants
from edgewise.edge.sizes import at
from edgewise.operators import OperatorDefinition, lowering


class Lowering(lowering.Lowering[Builder, Constants, Operand]):
    """Nodes become nodes of the builder's subgraph."""

    backend = "XNNPACK"
    partitioner = "XnnpackPartitioner"

    def operand(self, node: Any, dtype: torch.dtype = torch.float32) -> Operand:
        """The argument as a computed tensor or constant; a number as a constant of one element."""
        if isinstance(node, Node):
            if node in self.constants:
                return self.constants.tensor(node)
            computed = self.computed(node)
            if isinstance(computed, Ref):
                _name_sizes(computed, shape_of(node))
            return computed
        return torch.tensor([float(node)], dtype=dtype)

    def ref(self, node: Any) -> Ref:
        return self.b.ref(self.operand(node))

    def tensor(self, node: Any) -> torch.Tensor:
        """A constant argument."""
        return self.constants.tensor(node)

    def weight(self, node: Any) -> torch.Tensor:
        """A constant argument of which only the shape is read: integers if quantized."""
        if isinstance(self.constants, QuantizedConstants):
            return self.constants.weight(node)
        return self.constants.tensor(node)

    def optional(self, node: Any) -> torch.Tensor | None:
        return None if node is None else self.constants.tensor(node)

    def input(self, node: Node) -> Ref:
        """Laid out as in the program."""
        value = fake(node)
        return self.b.input(shape_of(node), value.dtype, dim_order(value))

    def begin(self, number: int, node: Node) -> None:
        """See `lowering.Lowering`; and whether the call's weights are stored as integers."""
        self.b.origin = number
        if isinstance(self.constants, QuantizedConstants):
            if is_expanded(node, self.constants):
                self.b.graph.expands.add(number)
            if is_plain(node, self.constants):
                self.b.graph.plain.add(number)

    def call(
        self, definition: OperatorDefinition[Any], node: Node
    ) -> Operand | tuple[Operand, ...]:
        """See `lowering.Lowering`."""
        try:
            return super().call(definition, node)
        except OutOfReach:
            # With symbolic sizes some orders are harder than the one that was asked about.
            for source in node.all_input_nodes:
                operand = self.done.get(source)
                if isinstance(operand, Ref):
                    self.done[source] = self.b.in_order(operand, identity(operand.rank))
            return super().call(definition, node)

    def difference(self, value: Any, made: Operand) -> str:
        """In shape, but for that of a single element."""
        value = value[0] if isinstance(value, (tuple, list)) else value
        symbols = self.b.graph.symbols
        shape = [at(size, symbols) for size in made.shape]
        want = [at(size, symbols) for size in dims_of(value.shape)]
        if shape == want or math.prod(shape) == math.prod(want) == 1:
            return ""
        return f"shape; got {shape} for {want}"


def _name_sizes(ref: Ref, shape: Sequence[Dim]) -> None:
    """Gives the value's sizes the names that the program has for them, about which rules were
    asked: one that is a number here may be an expression there, or the other way around, where a
    check of the program's says that they are equal."""
    if len(shape) == ref.rank and not all(isinstance(size, int) for size in (*shape, *ref.shape)):
        ref.value.dims = tuple(shape[dim] for dim in ref.perm)
