"""Buffers that methods share: an arena of their own, with one slot for each name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from edgewise.edge.program import tensor_of
from edgewise.errors import EmitError

ARENA = 2
"""The file's memory_id of what is shared; 1 is what each method plans for itself."""


@dataclass(frozen=True)
class SharedState:
    """offsets: bytes from the arena's start, by the buffer's qualified name. size: of the arena."""

    offsets: Mapping[str, int]
    size: int


def plan_shared_state(methods: Iterable[ExportedProgram], alignment: int) -> SharedState:
    """Offsets for the buffers that any of the methods writes.

    EmitError if a name stands for buffers of different shapes or types.
    """
    programs = list(methods)
    written = {t for p in programs for t in p.graph_signature.buffers_to_mutate.values()}
    found: dict[str, torch.Tensor] = {}
    for program in programs:
        for spec in program.graph_signature.input_specs:
            if spec.kind != InputKind.BUFFER or spec.target not in written:
                continue
            tensor = tensor_of(program, spec)
            known = found.setdefault(str(spec.target), tensor)
            if (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
                raise EmitError(
                    f"[memory plan] a buffer that methods share must be the same in all of them; "
                    f"got {known.dtype} {list(known.shape)} and {tensor.dtype} "
                    f"{list(tensor.shape)} for {spec.target}"
                )
    offsets, end = {}, 0
    for name, tensor in found.items():
        offsets[name] = end
        size = math.prod(tensor.shape) * tensor.element_size()
        end += -(-max(size, 1) // alignment) * alignment
    return SharedState(offsets, end)
