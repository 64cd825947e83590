"""ExecuTorch's partitioners as ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls, op_name
from edgewise.errors import PartitionError
from edgewise.partition.executorch.backend import ExecutorchDelegationSpec
from edgewise.partition.executorch.dialect import in_executorch_dialect
from edgewise.partition.spec import (
    TAG,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    Refusal,
)


def adapted(partitioner: Any) -> Any:
    """What asks a partitioner of ExecuTorch's package; any other is returned as it is."""
    module = sys.modules.get("executorch.exir.backend.partitioner")
    theirs = getattr(module, "Partitioner", None)
    is_theirs = theirs is not None and isinstance(partitioner, theirs)
    if isinstance(partitioner, Partitioner) or not is_theirs:
        return partitioner
    kind: Any = partitioner.__class__
    return _class_for(kind)(partitioner)


class ExecutorchPartitioner(Partitioner):
    """Asks a partitioner of ExecuTorch's about a copy in its dialect, and tags as it does.

    Constants that it does not tag are inputs of its partitions, as in ExecuTorch.
    """

    takes_untagged_constants: ClassVar[bool] = False

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @property
    def delegation_spec(self) -> Any:
        """The wrapped partitioner's; None if it has none."""
        return getattr(self.wrapped, "delegation_spec", None)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags what the wrapped partitioner tags. PartitionError if that changed the program."""
        for node in exported_program.graph.nodes:
            node.meta.pop(TAG, None)  # another partitioner's, on a constant that both read
        result = self.wrapped(in_executorch_dialect(exported_program))
        name = type(self).__name__
        given = {node.name: node for node in exported_program.graph.nodes}
        for node in result.tagged_exported_program.graph.nodes:
            own = given.get(node.name)
            if own is not None:
                # With the tag, what it tells its backend.
                own.meta.update({key: node.meta[key] for key in node.meta.keys() - own.meta.keys()})
            elif node.op == "call_function":
                raise PartitionError(
                    f"[{name}] partition must leave the program's nodes as they are; got "
                    f"{node.name}, which is new; try ExecuTorch's own to_edge_transform_and_lower"
                )
        refusals = {
            node.name: [Refusal(f"a node that {name} takes", op_name(node))]
            for node in calls(exported_program.graph)
            if TAG not in node.meta
        }
        specs: dict[str, DelegationSpec] = {
            tag: ExecutorchDelegationSpec(
                spec.backend_id,
                [CompileSpec(one.key, bytes(one.value)) for one in spec.compile_specs],
            )
            for tag, spec in result.partition_tags.items()
        }
        return PartitionResult(exported_program, specs, refusals)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """The wrapped partitioner's."""
        found: tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]
        found = self.wrapped.ops_to_not_decompose(ep)
        return found


def _transform(self: ExecutorchPartitioner, exported_program: ExportedProgram) -> ExportedProgram:
    transformed: ExportedProgram = self.wrapped.transform_for_pre_decomposition(exported_program)
    return transformed


@cache
def _class_for(theirs: type[Any]) -> type[ExecutorchPartitioner]:
    """Called as theirs, so that errors and reports name it."""
    body: dict[str, Any] = {"__module__": theirs.__module__, "__doc__": theirs.__doc__}
    base = sys.modules["executorch.exir.backend.partitioner"].Partitioner
    what = "transform_for_pre_decomposition"  # ExecuTorch has it from 1.5 on
    if getattr(theirs, what, None) is not getattr(base, what, None):
        body[what] = _transform
    return type(theirs.__name__, (ExecutorchPartitioner,), body)
