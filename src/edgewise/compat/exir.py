"""`executorch.exir`: options under the peer's names, and the calls that take them."""

from __future__ import annotations

import pprint
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TextIO, TypeVar

import torch
from torch.fx import Node

from edgewise import lowering
from edgewise.compat.quantized_io import QuantizeIOPass
from edgewise.edge import EdgeCompileConfig as _EdgeCompileConfig
from edgewise.emit import ExecutorchBackendConfig as _ExecutorchBackendConfig
from edgewise.emit import MemoryPlanningConfig
from edgewise.inspect.record import ProgramRecord
from edgewise.lowering.managers import Partitioners, Passes, Programs

Manager = TypeVar("Manager")

# Scripts of the time when torch had it call it by this name.
if not hasattr(torch.export, "export_for_training"):
    torch.export.export_for_training = torch.export.export  # type: ignore[attr-defined]

# Options that say how ExecuTorch works inside, not what the program computes: of no effect here.
_NO_EFFECT = (
    "delegate_alignment",
    "do_quant_fusion_and_const_prop",
    "dynamic_memory_planning_mode",
    "enable_non_cpu_memory_planning",
    "propagate_device_config",
    "reinplace_extra_ops",
    "remove_view_copy",
    "run_reinplace_pass",
    "sym_shape_eval_pass",
    "to_out_var_pass",
)


class EdgeCompileConfig(_EdgeCompileConfig):
    """As ExecuTorch's. `_skip_dim_order` and `_use_edge_ops` are of no effect."""

    def __init__(
        self,
        _check_ir_validity: bool = True,
        _skip_dim_order: bool = False,
        _core_aten_ops_exception_list: Sequence[Any] = (),
        preserve_ops: Sequence[Any] = (),
        _use_edge_ops: bool = True,
    ) -> None:
        del _skip_dim_order, _use_edge_ops
        super().__init__(
            _check_ir_validity, list(_core_aten_ops_exception_list), list(preserve_ops)
        )


class MemoryPlanningPass:
    """Options of memory planning, which is done while the program is emitted."""

    def __init__(
        self,
        memory_planning_algo: Callable[..., Any] | None = None,
        allow_lifetime_and_storage_overlap: bool = False,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = 16,
    ) -> None:
        del allow_lifetime_and_storage_overlap
        if memory_planning_algo is not None and not isinstance(memory_planning_algo, str):
            raise _refused("MemoryPlanningPass", "memory_planning_algo", "leaving it out")
        if not alloc_mutable_buffers:
            raise _refused("MemoryPlanningPass", "alloc_mutable_buffers=False", "leaving it out")
        self.config = MemoryPlanningConfig(
            alloc_graph_input, alloc_graph_output, alignment, share_mutable_buffers
        )


class ConstraintBasedSymShapeEvalPass:
    """Sizes by their upper bounds, which is what edgewise does."""


class ExecutorchBackendConfig(_ExecutorchBackendConfig):
    """As ExecuTorch's. What only steers its own passes is of no effect here: `NO_EFFECT`.

    passes: over each method's graph, before its memory is planned. ValueError for planning by
    method, and for weights that training changes.
    """

    NO_EFFECT = _NO_EFFECT

    def __init__(
        self,
        passes: Sequence[Any] = (),
        memory_planning_pass: Any = None,
        emit_stacktrace: bool = False,
        extract_delegate_segments: bool = True,
        segment_alignment: int = 128,
        constant_tensor_alignment: int | None = None,
        external_constants: bool | Callable[[Node], str | None] = False,
        external_mutable_weights: bool = False,
        emit_mutable_buffer_names: bool = False,
        **others: Any,
    ) -> None:
        where = "ExecutorchBackendConfig"
        unknown = sorted(set(others) - set(_NO_EFFECT))
        if unknown:
            raise TypeError(f"[{where}] has no option {', '.join(unknown)}")
        if external_mutable_weights:
            raise _refused(where, "external_mutable_weights", "external_constants=True")
        if memory_planning_pass is not None and not isinstance(
            memory_planning_pass, MemoryPlanningPass
        ):
            got = f"memory_planning_pass of type {type(memory_planning_pass).__name__}"
            raise _refused(where, got, "one MemoryPlanningPass for all methods")
        super().__init__(
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment or 16,
            extract_delegate_segments=extract_delegate_segments,
            emit_stacktrace=emit_stacktrace,
            emit_mutable_buffer_names=emit_mutable_buffer_names,
            external_constants=external_constants,
            memory_planning=(memory_planning_pass or MemoryPlanningPass()).config,
            # Scripts written for the peer make files for runtimes with kernels of their own.
            missing_kernels="warn",
        )
        object.__setattr__(self, "passes", list(passes))  # the class that this extends is frozen


def _as(kind: type[Manager], manager: object, has_record: bool = True) -> Manager:
    """The same manager, as this class, which is one below its own.

    has_record: whether `get_etrecord` gives one, as the script asked.
    """
    made = kind.__new__(kind)
    made.__dict__.update(vars(manager), has_record=has_record)
    return made


class EdgeProgramManager(lowering.EdgeProgramManager):
    """As ExecuTorch's: operators without a kernel here are a warning, not an error."""

    has_record = True

    def transform(
        self, passes: Passes, compile_config: _EdgeCompileConfig | None = None
    ) -> EdgeProgramManager:
        """As `edgewise.lowering.EdgeProgramManager.transform`; also takes `QuantizeIOPass`es."""
        if isinstance(passes, Mapping) or passes is None:
            whole = super().transform(passes, compile_config)
            return _as(EdgeProgramManager, whole, self.has_record)
        made: lowering.EdgeProgramManager = self
        for one in passes if isinstance(passes, Sequence) else [passes]:
            if isinstance(one, QuantizeIOPass):
                made = one.apply(made)
            else:
                made = lowering.EdgeProgramManager.transform(made, [one], compile_config)
        return _as(EdgeProgramManager, made, self.has_record)

    def to_backend(self, partitioner: Partitioners) -> EdgeProgramManager:
        """As `edgewise.lowering.EdgeProgramManager.to_backend`."""
        return _as(EdgeProgramManager, super().to_backend(partitioner), self.has_record)

    def to_executorch(
        self, config: _ExecutorchBackendConfig | None = None
    ) -> ExecutorchProgramManager:
        """As `edgewise.lowering.EdgeProgramManager.to_executorch`, after the passes of `config`."""
        passes = getattr(config, "passes", None)
        edge = self.transform(passes) if passes else self
        made = lowering.EdgeProgramManager.to_executorch(edge, config or ExecutorchBackendConfig())
        return _as(ExecutorchProgramManager, made, self.has_record)


class ExecutorchProgramManager(lowering.ExecutorchProgramManager):
    """As ExecuTorch's."""

    has_record = True

    def dump_executorch_program(self, verbose: bool = False, out: TextIO | None = None) -> None:
        """Prints the program as dataclasses."""
        if verbose:
            pprint.pprint(self.executorch_program, stream=out or sys.stdout)
        else:
            print(self.executorch_program, file=out or sys.stdout)

    @property
    def _emitter_output(self) -> Any:
        """What ExecuTorch's scripts for language models read the memory plan of."""
        return SimpleNamespace(program=self.executorch_program)

    @property
    def _tensor_data(self) -> dict[str, bytes]:
        """The files of data beside the program, by name."""
        return {name: b"".join(data.parts()) for name, data in self._emitted.data_files.items()}

    def get_etrecord(self) -> ProgramRecord:
        """The program's record. RuntimeError if it was lowered without `generate_etrecord=True`."""
        if not self.has_record:
            raise RuntimeError(
                "[get_etrecord] the program must be lowered with generate_etrecord=True; "
                "got False; try program.record(), which every program has"
            )
        return self.record()


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: _EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """`edgewise.to_edge`. generate_etrecord: whether `get_etrecord` may be asked for it."""
    made = lowering.to_edge(programs, constant_methods, compile_config)
    return _as(EdgeProgramManager, made, generate_etrecord)


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes = None,
    partitioner: Partitioners = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: _EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """`edgewise.to_edge_transform_and_lower`. generate_etrecord: as `to_edge`."""
    made = lowering.to_edge_transform_and_lower(
        programs, transform_passes, partitioner, constant_methods, compile_config
    )
    return _as(EdgeProgramManager, made, generate_etrecord)


class _Ops:
    """`exir_ops.edge.aten.add.Tensor` is `torch.ops.aten.add.Tensor`: the edge dialect of
    edgewise has ATen's operators as they are."""

    edge = torch.ops


ops = _Ops()


def _refused(where: str, got: str, instead: str) -> ValueError:
    return ValueError(f"[{where}] edgewise does not do this; got {got}; try {instead}")
