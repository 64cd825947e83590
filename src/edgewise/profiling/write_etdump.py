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
    when = event.begin, event.end, event.instruction
    if event.part is not None:
        yield _event(None, *when, part=event.part.name)
    elif name is not None:
        if instruction.kind == "kernel":
            yield _event(KERNEL + instruction.name.rpartition("::")[2], *when)
        yield _event(name, *when)


def _event(
    name: str | None, begin: int, end: int, instruction: int = -1, part: str | None = None
) -> ProfileEvent:
    return ProfileEvent(
        name, 0, instruction, delegate_debug_id_str=part, start_time=begin, end_time=end
    )
