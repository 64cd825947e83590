"""A partitioner over a table of operator definitions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.operators.definition import OperatorTable
from edgewise.partition.spec import DelegationSpec, Partitioner, PartitionResult
from edgewise.partition.tagging import Tags
from edgewise.partition.units import U, Units, partitions


class TablePartitioner(Partitioner, Generic[U]):
    """Gives a backend as much of a program as its definitions accept, in as few partitions as
    possible.

    A backend says which nodes go together (`units`); where the others are not enough, it has a say
    in the groups (`grouped`), in each of them (`kept`) and at the end (`finish`).
    """

    table: ClassVar[OperatorTable[..., Any]]
    tag: ClassVar[str]
    """Tags are this and a number."""
    delegation_spec: DelegationSpec
    upcasts_bfloat16 = True  # no backend has arithmetic for it
    preserved: Sequence[torch._ops.OpOverload] = ()
    """Operators without a definition that are kept whole, too."""

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Composite operators with a definition of their own, where `keeps` says so."""
        return [*self.table.kept(), *self.preserved], self.keeps(ep)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags what the definitions accept; says for everything else why not."""
        found = self.units(exported_program)
        tags = Tags(self.tag, self.delegation_spec)
        taken: dict[str, list[Node]] = {}
        position = {node: i for i, node in enumerate(exported_program.graph.nodes)}
        for group in self.grouped(exported_program, found):
            kept = self.kept(group, found)
            if kept:
                members = [node for unit in kept for node in found.units[unit]]
                members.sort(key=position.__getitem__)
                taken[tags.add(members)] = members
        self.finish(exported_program, found, taken)
        reasons = {node.name: refusals for node, refusals in found.refused.items()}
        return PartitionResult(exported_program, tags, reasons)

    def keeps(self, program: ExportedProgram) -> Callable[[Node], bool]:
        """Whether a node of these operators is kept whole."""
        return lambda node: True

    @abstractmethod
    def units(self, program: ExportedProgram) -> Units[U]:
        """What the definitions accept. May give readers calls of their own."""

    def grouped(self, program: ExportedProgram, found: Units[U]) -> list[list[U]]:
        """Units that become a partition together."""
        return partitions(program.graph, found)

    def kept(self, group: list[U], found: Units[U]) -> list[U]:
        """The units of a group that become a partition; the others are refused here."""
        return group

    def finish(
        self, program: ExportedProgram, found: Units[U], taken: Mapping[str, Sequence[Node]]
    ) -> None:
        """Reports. taken: nodes by tag."""
