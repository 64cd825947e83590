"""Lowering a partition node by node, each as the definition of its operator says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, is_call, is_getitem, is_size, op_name, value_of
from edgewise.edge.node_errors import at_node, internal_errors
from edgewise.edge.program import Constants, output_node
from edgewise.errors import EdgewiseError, PartitionError
from edgewise.operators.definition import OperatorDefinition, OperatorTable
from edgewise.partition.spec import Refusal

B = TypeVar("B")
C = TypeVar("C", bound=Constants)
V = TypeVar("V")


class Refused(EdgewiseError):
    """A node that cannot be lowered, and why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Lowering(ABC, Generic[B, C, V]):
    """What a definition is given to lower a node: the builder of the backend's program, and what is
    computed so far.

    A backend's subclass reads operands in the ways that its definitions need.
    """

    backend: ClassVar[str]
    """Its title, for messages."""
    partitioner: ClassVar[str]
    """The class whose partitions can be lowered, for messages."""

    def __init__(self, builder: B, constants: C) -> None:
        self.b = builder
        self.constants = constants
        self.done: dict[Node, V | tuple[V, ...]] = {}

    def computed(self, node: Node) -> V:
        """What a node with one result was lowered to before."""
        found = self.done[node]
        assert not isinstance(found, tuple)
        return found

    def lower_all(self, program: ExportedProgram, table: OperatorTable[..., Any]) -> list[Node]:
        """Lowers the nodes in order, and returns those whose values the program returns.

        PartitionError names the node that cannot be lowered, and what was wrongly lowered.
        """
        for number, node in enumerate(program.graph.nodes):
            if node in self.constants or is_size(node):
                continue
            try:
                if node.op == "placeholder":
                    self.done[node] = self.input(node)
                    continue
                if not is_call(node):
                    continue
                self.begin(number, node)
                made = self.done[node] = self.lower(node, table)
            except Refused as refused:
                raise PartitionError(
                    f"{at_node(node)} {refused}; try a partitioner that tags what "
                    f"{self.partitioner} accepts"
                ) from refused
            # Of several results those are looked at that calls of getitem take out.
            wrong = "" if isinstance(made, tuple) else self.difference(value_of(node), made)
            if wrong:
                raise PartitionError(
                    f"{at_node(node)} a definition must lower to the operator's {wrong}"
                )
        results = output_node(program.graph).args[0]
        return list(results)  # type: ignore[arg-type]

    def lower(self, node: Node, table: OperatorTable[..., Any]) -> V | tuple[V, ...]:
        """What a call becomes. Refused if it cannot be lowered."""
        if is_getitem(node):
            return self._item(node)
        definition = table.of(node)
        if definition is None:
            raise Refused(Refusal(f"an operator of the {self.backend} table", op_name(node)))
        with internal_errors(f"lowering {definition.name} for {self.backend}", node):
            return self.call(definition, node)

    def _item(self, node: Node) -> V:
        source, index = node.all_input_nodes[0], node.args[1]
        found = self.done.get(source, ())
        values = found if isinstance(found, tuple) else (found,)
        if not isinstance(index, int) or index >= len(values):
            raise Refused(Refusal("a result that is delegated", f"item {index}"))
        return values[index]

    # --- what a backend says ---------------------------------------------------------------

    @abstractmethod
    def input(self, node: Node) -> V:
        """An argument of the partition. Refused if it cannot be one."""

    def begin(self, number: int, node: Node) -> None:
        """Notes which call, the graph's node of that number, what is built from now on is for."""
        return None

    def call(self, definition: OperatorDefinition[Any], node: Node) -> V | tuple[V, ...]:
        """What the definition makes of the call."""
        made: V | tuple[V, ...] = definition.lower(self, node, arguments(node))
        return made

    def difference(self, value: Any, made: V) -> str:
        """How a result differs from torch's value: "shape; got [2] for [3]". "" if it does not."""
        return ""


__all__ = ["Lowering", "Refused"]
