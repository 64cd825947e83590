"""`executorch.exir.backend.backend_api`: `to_backend` in each of its forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from edgewise.compat.exir import EdgeCompileConfig, EdgeProgramManager
from edgewise.format import program as pte
from edgewise.lowering import EdgeProgramManager as _Manager
from edgewise.partition import CompileSpec, DelegationSpec, Partitioner, lower_program
from edgewise.partition import LoweredBackendModule as _LoweredBackendModule

_UNCHECKED = EdgeCompileConfig(_check_ir_validity=False)


class LoweredBackendModule(_LoweredBackendModule):
    """A program that is one delegate: to be called, exported with others, or written alone."""

    def program(self) -> pte.Program:
        """A program that calls the delegate and does nothing else, as dataclasses."""
        found: pte.Program = self._manager().to_executorch().executorch_program
        return found

    def buffer(self, extract_delegate_segments: bool = False) -> bytes:
        """The same as a file, whose payloads are segments, whatever is asked for."""
        return bytes(self._manager().to_executorch().buffer)

    def _manager(self) -> EdgeProgramManager:
        return EdgeProgramManager(self.as_program(), None, _UNCHECKED)


@dataclass
class MethodProgramsPartitionerSpec:
    """Programs by method, and who delegates each; a partitioner alone is for all."""

    method_to_edge_program: Mapping[str, ExportedProgram]
    method_to_partitioner: Mapping[str, Partitioner] | Partitioner


def to_backend(edge: Any, *how: Any, **options: Any) -> Any:
    """Delegates, by what it is given:

    `(name, program, compile_specs)`: all of the program to the backend of that name; a module.
    `(program, partitioner)`: what the partitioner takes; a program. For a manager, a manager.
    `(MethodProgramsPartitionerSpec)`: the same for several methods; programs by method.
    """
    if isinstance(edge, str):
        return _whole(edge, *how, **options)
    if isinstance(edge, MethodProgramsPartitionerSpec):
        return _methods(edge)
    return _partitions(edge, *how, **options)


def _whole(
    backend_id: str, edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]
) -> LoweredBackendModule:
    spec = DelegationSpec(backend_id, list(compile_specs))
    return lower_program(edge_program, spec, LoweredBackendModule)


def _methods(spec: MethodProgramsPartitionerSpec) -> dict[str, ExportedProgram]:
    manager = EdgeProgramManager(dict(spec.method_to_edge_program), None, _UNCHECKED)
    partitioner = spec.method_to_partitioner
    made = manager.to_backend(partitioner)
    return {name: made.exported_program(name) for name in made.methods}


def _partitions(edge: ExportedProgram | _Manager, partitioner: Any) -> Any:
    if isinstance(edge, _Manager):
        return edge.to_backend(partitioner)
    made = EdgeProgramManager(edge, None, _UNCHECKED).to_backend(partitioner)
    return made.exported_program()
