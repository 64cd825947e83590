"""Nodes that go to a backend together or not at all, and which of these run at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from graphlib import CycleError
from typing import Any, Generic, TypeVar

from torch.fx import Graph, Node

from edgewise.edge.graph import calls, is_size, op_name
from edgewise.edge.program import Constants
from edgewise.partition.grouping import group
from edgewise.partition.lowered_module import is_delegate_call
from edgewise.partition.ordering import topological
from edgewise.partition.spec import TAG, Refusal
from edgewise.partition.work import macs

U = TypeVar("U", bound=Hashable)


def free_calls(graph: Graph) -> list[Node]:
    """The calls that no delegate has, but sizes: these are made where they are read."""
    taken = (n for n in calls(graph) if not (is_delegate_call(n) or TAG in n.meta))
    return [n for n in taken if not is_size(n)]


def own_for_each_reader(nodes: Iterable[Node]) -> None:
    """Gives every reader of the nodes a call of its own (in place)."""
    for node in nodes:
        for user in list(node.users)[1:]:
            with node.graph.inserting_before(user if user.op != "output" else node.next):
                copy = node.graph.node_copy(node)
            copy.meta = dict(node.meta)
            user.replace_input_with(node, copy)


class Units(Generic[U]):
    """What a backend may take of a program.

    `units`: nodes that go together, by whatever stands for them. `refused`: the reasons against
    the others.
    """

    def __init__(
        self,
        constants: Constants,
        units: Mapping[U, list[Node]],
        refused: Mapping[Node, list[Refusal]],
    ) -> None:
        self.constants = constants
        self.units = dict(units)
        self.refused = dict(refused)

    def refuse(self, unit: U, reason: Refusal) -> None:
        """Gives the unit up, and what cannot be taken without it."""
        self.refused.update((node, [reason]) for node in self.units.pop(unit))

    def name_of(self, unit: U) -> Node:
        """By which messages call the unit."""
        return self.units[unit][0]


def partitions(graph: Graph, found: Units[U]) -> list[list[U]]:
    """The units in groups, as few as there can be. What lies between them keeps them apart.

    A unit runs at once. Of those that need each other's results the one with the least work is
    refused.
    """
    nodes = list(calls(graph))
    while True:
        sources = _sources(nodes, found.units)
        try:
            ordered = topological(list(sources), sources.__getitem__)
        except CycleError as cycle:
            loop = cycle.args[1]
            units = [unit for unit in loop if unit in found.units]
            least = min(units, key=lambda unit: sum(map(macs, found.units[unit])))
            found.refuse(least, _needs_itself(least, loop, found))
            continue
        return group(ordered, sources.__getitem__, found.units.__contains__)


def _sources(nodes: Iterable[Node], units: Mapping[Any, Sequence[Node]]) -> dict[Any, list[Any]]:
    """What each unit, or node outside of any, reads directly, without itself."""
    owner = {node: unit for unit, members in units.items() for node in members}
    found: dict[Any, dict[Any, None]] = {}
    for node in nodes:
        unit = owner.get(node, node)
        read = found.setdefault(unit, {})
        for source in node.all_input_nodes:
            of = owner.get(source, source)
            if of is not unit and not (node in owner and is_size(source)):
                read[of] = None
    return {unit: list(read) for unit, read in found.items()}


def _needs_itself(unit: U, loop: Sequence[Any], found: Units[U]) -> Refusal:
    other: Any = next((u for u in loop if u is not unit), unit)
    node = found.name_of(other) if other in found.units else other
    return Refusal(
        "what lies between quantizations runs at once",
        f"a path that leaves it and comes back, through {op_name(node)} ({node.name})",
        "a quantization of the value that both read",
    )
