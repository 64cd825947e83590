"""Methods become a program: plans, weights, payloads, and the file around them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgewise.edge.program import tensor_bytes
from edgewise.emit.config import ExecutorchBackendConfig
from edgewise.emit.control_flow import StructuredEmitter
from edgewise.emit.input_sizes import KEY as INPUT_SIZES
from edgewise.emit.input_sizes import describe_input_sizes
from edgewise.emit.memory import MemoryPlan
from edgewise.emit.missing_kernels import report_missing_kernels
from edgewise.emit.origins import Origins
from edgewise.emit.scalar_types import scalar_type
from edgewise.emit.shared_state import plan_shared_state
from edgewise.errors import EmitError
from edgewise.files import write_whole
from edgewise.format import program as pte
from edgewise.format.constants import ConstantTable
from edgewise.format.data_file import DEFAULT_NAME, DataFile
from edgewise.format.file import Segments, file_parts
from edgewise.partition.lowered_module import LoweredBackendModule
from edgewise.releases import target_of

_PAYLOAD_ALIGNMENT = 16


@dataclass(frozen=True)
class _Payload:
    blob: bytes
    is_read_while_running: bool


@dataclass
class Emitted:
    """A program and what the file holds beside it."""

    program: pte.Program
    segments: Segments
    plans: dict[str, MemoryPlan]
    data_files: dict[str, DataFile] = field(default_factory=dict)
    origins: dict[str, Origins] = field(default_factory=dict)

    def parts(self) -> Iterator[bytes | memoryview]:
        """The file's bytes in pieces; weights are views of the model's own memory."""
        return file_parts(self.program, self.segments)

    def to_bytes(self) -> bytes:
        return b"".join(self.parts())

    def write(self, file: BinaryIO) -> None:
        for part in self.parts():
            file.write(part)

    def save(self, path: str | Path, beside: Mapping[str | PathLike[str], bytes]) -> None:
        """Writes the file, and others with it, whole or not at all. beside: contents by path."""
        write_whole({path: self.parts(), **{other: [data] for other, data in beside.items()}})

    def save_data_files(self, folder: str | Path) -> list[Path]:
        """Writes what is not in the program, `.ptd` after each name. Returns the paths."""
        files = {
            Path(folder) / (name if name.endswith(".ptd") else name + ".ptd"): data.parts()
            for name, data in self.data_files.items()
        }
        write_whole(files)
        return list(files)


def emit_program(
    methods: Mapping[str, ExportedProgram],
    config: ExecutorchBackendConfig | None = None,
    constant_methods: Mapping[str, Any] | None = None,
) -> Emitted:
    """Writes the methods, then the constant methods, in the order given."""
    return _ProgramEmitter(config or ExecutorchBackendConfig()).emit(
        methods, constant_methods or {}
    )


class _ProgramEmitter:
    def __init__(self, config: ExecutorchBackendConfig) -> None:
        self._config = config
        self._target = target_of(config.runtime)
        self._constants = ConstantTable(config.constant_tensor_alignment)
        self._initial = ConstantTable(config.constant_tensor_alignment)
        self._payloads: dict[bytes, int] = {}
        self._payload_blobs: list[_Payload] = []
        self._named: dict[str, bytes | memoryview] = {}
        self._named_files: dict[str, str] = {}
        self._input_sizes: dict[str, bytes] = {}
        self._delegates: list[pte.BackendDelegate] = []
        self._data_files: dict[str, DataFile] = {}

    def emit(
        self, methods: Mapping[str, ExportedProgram], constant_methods: Mapping[str, Any]
    ) -> Emitted:
        clash = sorted(set(methods) & set(constant_methods))
        if clash:
            raise EmitError(f"[emit] a name must be one method's; got {', '.join(clash)} twice")
        plans, memory, origins = [], {}, {}
        shared = None
        if self._config.memory_planning.share_mutable_buffers:
            shared = plan_shared_state(methods.values(), self._config.memory_planning.alignment)
        for name, method in methods.items():
            emitter = StructuredEmitter(
                name,
                method,
                self._config,
                self._constants,
                self._initial,
                self._add_payload,
                shared,
                self._data_file,
            )
            plan, memory[name] = emitter.emit()
            origins[name] = emitter.origins
            plans.append(plan)
            sizes = describe_input_sizes(method)
            if sizes is not None:
                self._input_sizes[INPUT_SIZES + name] = sizes
            report_missing_kernels(name, emitter.called, self._config.missing_kernels)
        plans += [self._constant_method(n, v) for n, v in constant_methods.items()]
        program, segments = self._assemble(plans)
        return Emitted(program, segments, memory, self._data_files, origins)

    def _assemble(self, plans: list[pte.ExecutionPlan]) -> tuple[pte.Program, Segments]:
        """Segments in this order: constants, initial state, payloads, named data."""
        segments = Segments(self._config.segment_alignment)
        # Written even if empty: without it a reader takes the file for one of the old kind
        # that holds constants inside the flatbuffer.
        constants = pte.SubsegmentOffsets(
            segments.add(self._constants.rope), list(self._constants.offsets)
        )
        mutable = None
        if len(self._initial.offsets) > 1:
            index = segments.add(self._initial.rope)
            mutable = [pte.SubsegmentOffsets(index, list(self._initial.offsets))]
        inline: list[pte.BackendDelegateInlineData] = []
        references: list[pte.BackendDelegateDataReference] = []
        for payload in self._payload_blobs:
            if self._config.extract_delegate_segments and not payload.is_read_while_running:
                references.append(pte.BackendDelegateDataReference(1, segments.add(payload.blob)))
            else:
                references.append(pte.BackendDelegateDataReference(0, len(inline)))
                inline.append(pte.BackendDelegateInlineData(payload.blob))
        for delegate in self._delegates:
            assert delegate.processed is not None
            delegate.processed = references[delegate.processed.index]
        if self._config.external_constants is True:
            self._named_files = dict.fromkeys(self._named, DEFAULT_NAME)
        for key in sorted(self._named_files):
            self._data_file(self._named_files[key]).add(key, self._named.pop(key))
        blobs = {**self._named, **self._input_sizes}
        named = [pte.NamedData(key, segments.add(blobs[key])) for key in sorted(blobs)]
        return pte.Program(
            version=0,
            execution_plan=plans,
            constant_buffer=[],
            backend_delegate_data=inline,
            constant_segment=constants,
            mutable_data_segments=mutable,
            named_data=named,
        ), segments

    def _data_file(self, name: str) -> DataFile:
        return self._data_files.setdefault(name, DataFile(self._config.segment_alignment))

    def _add_payload(self, lowered: LoweredBackendModule) -> pte.BackendDelegate:
        made = lowered.for_target(self._target)
        for key, blob in made.named_data.items():
            known = self._named.setdefault(key, blob)
            if len(known) != len(blob):
                raise EmitError(
                    f"[{lowered.backend_id}] named data with one key must have one content; "
                    f"got {len(known)} and {len(blob)} bytes for {key}"
                )
        for key, name in made.data_files.items():
            if key not in made.named_data:
                raise EmitError(
                    f"[{lowered.backend_id}] data_files must be of named data; got {key!r} for "
                    f"{name}.ptd, which is none"
                )
            self._named_files.setdefault(key, name)
        digest = hashlib.sha256(made.processed_bytes).digest()
        if digest not in self._payloads:
            self._payloads[digest] = len(self._payload_blobs)
            self._payload_blobs.append(_Payload(made.processed_bytes, made.is_read_while_running))
        delegate = pte.BackendDelegate(
            id=lowered.backend_id,
            processed=pte.BackendDelegateDataReference(1, self._payloads[digest]),
            compile_specs=[pte.CompileSpec(s.key, s.value) for s in lowered.compile_specs],
        )
        self._delegates.append(delegate)
        return delegate

    def _constant_method(self, name: str, result: Any) -> pte.ExecutionPlan:
        """A method without instructions whose outputs are constants."""
        flat, spec = pytree.tree_flatten(result)
        values = [pte.EValue(self._constant(name, item)) for item in flat]
        empty = pytree.tree_structure(((), {}))
        return pte.ExecutionPlan(
            name=name,
            container_meta_type=pte.ContainerMetadata(
                pytree.treespec_dumps(empty), pytree.treespec_dumps(spec)
            ),
            values=values,
            inputs=[],
            outputs=list(range(len(values))),
            chains=[pte.Chain(inputs=[], outputs=[], instructions=[])],
            operators=[],
            delegates=[],
            non_const_buffer_sizes=[0],
        )

    def _constant(self, name: str, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return pte.Tensor(
                scalar_type=scalar_type(item.dtype),
                sizes=list(item.shape),
                dim_order=list(range(item.dim())),
                data_buffer_idx=self._constants.add(tensor_bytes(item)),
            )
        if isinstance(item, bool):
            return pte.Bool(item)
        if isinstance(item, int):
            return pte.Int(item)
        if isinstance(item, float):
            return pte.Double(item)
        if isinstance(item, str):
            return pte.String(item)
        raise EmitError(
            f"[{name}] constant methods return numbers, strings or tensors; "
            f"got {type(item).__name__}"
        )
