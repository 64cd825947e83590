"""How a program is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch.fx import Node

from edgewise.releases import target_of


@dataclass(frozen=True)
class MemoryPlanningConfig:
    """alloc_graph_input, alloc_graph_output: whether the plan holds memory for the method's
    inputs and outputs (else the caller's memory is used where the runtime can).
    alignment: bytes; every planned tensor starts at a multiple of it.
    share_mutable_buffers: buffers of one name are one buffer for all methods that are run in
    one session, such as a cache that one method fills and another one goes on with."""

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alignment: int = 16
    share_mutable_buffers: bool = False

    def __post_init__(self) -> None:
        _power_of_two("MemoryPlanningConfig", "alignment", self.alignment)


@dataclass(frozen=True)
class ExecutorchBackendConfig:
    """segment_alignment: bytes; segments (weights, payloads) start at multiples of it.
    constant_tensor_alignment: bytes, of constants inside their segment.
    external_constants: weights in files of their own (`.ptd`) instead of the program's. True:
    all, delegates' too, in one file. A function: asked for each constant's placeholder outside
    of delegates; the name of the file for it, or None to leave it in the program.
    extract_delegate_segments: payloads as segments of the file rather than inside the
    flatbuffer (those that are read while the program runs lie inside of it in any case).
    runtime: what the file is for: None, every release of ExecuTorch from 1.0 on where that costs
    neither size nor speed; "executorch>=1.0", those from then on, whatever it costs; "edgewise",
    this project's runtime.
    emit_mutable_buffer_names: write the names of buffers that the program changes, so that
    `Method.get_attribute` finds them.
    emit_stacktrace: write source lines of instructions. missing_kernels: what to do about
    operators that this project's runtime has no kernel for, and about what a release that was asked
    for lacks: "warn", "error" or "ignore"."""

    segment_alignment: int = 128
    constant_tensor_alignment: int = 16
    extract_delegate_segments: bool = True
    emit_stacktrace: bool = False
    emit_mutable_buffer_names: bool = False
    external_constants: bool | Callable[[Node], str | None] = False
    missing_kernels: str = "error"
    runtime: str | None = None
    memory_planning: MemoryPlanningConfig = field(default_factory=MemoryPlanningConfig)

    def __post_init__(self) -> None:
        for name in ("segment_alignment", "constant_tensor_alignment"):
            _power_of_two("ExecutorchBackendConfig", name, getattr(self, name))
        target_of(self.runtime)
        if self.missing_kernels not in ("warn", "error", "ignore"):
            raise ValueError(
                f"[ExecutorchBackendConfig] missing_kernels must be 'warn', 'error' or 'ignore'; "
                f"got {self.missing_kernels!r}"
            )


def _power_of_two(where: str, name: str, value: int) -> None:
    if value < 1 or value & (value - 1):
        raise ValueError(f"[{where}] {name} must be a power of two; got {value}")
