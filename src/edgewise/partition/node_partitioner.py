"""A partitioner that looks at one node at a time: most backends need no more."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls
from edgewise.partition.grouping import group
from edgewise.partition.spec import (
    DELEGATE_INPUT,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    Refusal,
    refused_before,
)
from edgewise.partition.tagging import Tags


class NodePartitioner(Partitioner):
    """Takes every node that `refusals` has nothing against, in as few partitions as can be."""

    delegate_id: ClassVar[str]
    """The backend that compiles the partitions."""
    owns_constants: ClassVar[bool] = True
    """Whether parameters that only a partition reads become its own; else they are its inputs."""
    compile_specs: Sequence[CompileSpec] = ()

    @abstractmethod
    def refusals(self, node: Node, program: ExportedProgram) -> Sequence[Refusal]:
        """What the backend has against the node; empty: it takes it."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """See `Partitioner`."""
        graph = exported_program.graph
        nodes = list(calls(graph))
        against = {n: refused_before(n) or self.refusals(n, exported_program) for n in nodes}
        if not self.owns_constants:
            for placeholder in graph.find_nodes(op="placeholder"):
                placeholder.meta[DELEGATE_INPUT] = True
        tags = Tags(self.delegate_id, DelegationSpec(self.delegate_id, list(self.compile_specs)))
        parts = group(nodes, lambda n: n.all_input_nodes, lambda n: not against[n])
        for part in parts:
            tags.add(part)
        refused = {node.name: found for node, found in against.items() if found}
        return PartitionResult(exported_program, tags, refused)
