"""Profiles as ETDump files, which ExecuTorch's tools read."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgewise.files import write_whole
from edgewise.flatbuffer import pack
from edgewise.profiling.etdump_file import (
    IDENTIFIER,
    KERNEL,
    OF_KIND,
    RUN,
    DumpEvent,
    ETDump,
    ProfileEvent,
    RunData,
)
from edgewise.profiling.runs import Event, Instruction, MethodRuns, Run

_BLOCK = "Execute"


def write_etdump(methods: Sequence[MethodRuns], path: str | Path) -> None:
    """Writes every run (`Profile.methods`) as an ETDump file (`.etdp`), times in nanoseconds.

    Kernels and delegates are events, as are the parts of a delegate that its backend has timed.
    Raises ModuleNotFoundError without flatbuffers (extra `export`), OSError for the file.
    """
    write_whole({Path(path): [etdump_of(methods)]})


def etdump_of(methods: Sequence[MethodRuns]) -> bytes:
    """The file: a block for each run."""
    blocks = [
        RunData(_BLOCK, events=[DumpEvent(event) for event in _events(method, run)])
        for method in methods
        for run in method.runs
    ]
    body = pack(ETDump(version=0, run_data=blocks), IDENTIFIER)
    return struct.pack("<I", len(body)) + body


def _events(method: MethodRuns, run: Run) -> Iterator[ProfileEvent]:
    """In the order in which they ended; the run itself is the last."""
    for event in run.events:
        yield from _of_instruction(event, method.instructions[event.instruction])
    yield _event(RUN, run.run_begin, run.run_end)


def _of_instruction(event: Event, instruction: Instruction) -> Iterator[ProfileEvent]:
    name = OF_KIND.get(instruction.kind)
    if event.part is not None:
        part = _event(None, event.begin, event.end, event.instruction)
        part.delegate_debug_id_str = event.part.name
        yield part
    elif name is not None:
        if instruction.kind == "kernel":
            operator = instruction.name.rpartition("::")[2]
            yield _event(KERNEL + operator, event.begin, event.end, event.instruction)
        yield _event(name, event.begin, event.end, event.instruction)


def _event(name: str | None, begin: int, end: int, instruction: int = -1) -> ProfileEvent:
    return ProfileEvent(
        name=name, chain_index=0, instruction_id=instruction, start_time=begin, end_time=end
    )
