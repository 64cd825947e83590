"""ETDump files as profiles: what ExecuTorch's runtime recorded of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgewise.flatbuffer import unpack
from edgewise.profiling.etdump_file import (
    IDENTIFIER,
    KERNEL,
    OF_KIND,
    RUN,
    ETDump,
    ProfileEvent,
    RunData,
)
from edgewise.profiling.result import Profile
from edgewise.profiling.runs import Event, Instruction, MethodRuns, Part, Run, numbered

if TYPE_CHECKING:
    from edgewise.inspect.record import ProgramRecord

_KINDS = {name: kind for kind, name in OF_KIND.items()}
_MOST_INSTRUCTIONS = 1 << 16
"""That a method may have; a larger index is damage."""


def read_etdump(
    path: str | Path,
    *,
    method: str = "forward",
    program: str | Path | None = None,
    record: ProgramRecord | None = None,
    ticks_per_second: float = 1e9,
) -> Profile:
    """Reads an ETDump file as a profile.

    Args:
        path: the file (`.etdp`).
        method: which method ran; the file does not say.
        program: the `.pte` that ran; its record, if there is one beside it, leads to modules and
            source lines.
        record: that record itself.
        ticks_per_second: of the clock of the device. ExecuTorch counts nanoseconds where nothing
            else was set up.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no ETDump, it is damaged, or it holds no run.
    """
    if not ticks_per_second > 0:
        raise ValueError(f"[etdump] ticks_per_second must be above 0; got {ticks_per_second}")
    dump = open_etdump(Path(path).read_bytes(), str(path))
    scale = 1e9 / ticks_per_second
    instructions: dict[int, Instruction] = {}
    runs = [
        _run(execute, inside, scale, instructions)
        for block in dump.run_data or ()
        for execute, inside in _executions(block)
    ]
    if not runs:
        raise ValueError(
            f"[etdump] {path} must hold a run of a method ({RUN!r}); got none; try to execute "
            "the method before the file is written"
        )
    count = max(instructions, default=-1) + 1
    indices = [event.instruction for run in runs for event in run.events]
    if max(indices, default=0) >= _MOST_INSTRUCTIONS:
        raise ValueError(
            f"[etdump] {path} is damaged: an instruction's index must be below "
            f"{_MOST_INSTRUCTIONS}; got {max(indices)}"
        )
    count = max([count, *(index + 1 for index in indices)])
    unknown = Instruction("other")
    listed = [instructions.get(i, unknown) for i in range(count)]
    file = str(program) if program is not None else ""
    found = [MethodRuns(method, file, listed, runs)]
    return Profile(lambda: found, record, origin="etdump")


def open_etdump(data: bytes, path: str) -> ETDump:
    """The bytes of a file. path: for messages. ValueError if they are none of an ETDump."""
    view = memoryview(data)
    if data[8:12] == IDENTIFIER:
        size = int.from_bytes(data[:4], "little")
        if size > len(data) - 4:
            raise ValueError(f"[etdump] {path} must have {size + 4} bytes; got {len(data)}")
        view = view[4:]
    elif data[4:8] != IDENTIFIER:
        raise ValueError(
            f"[etdump] {path} must have the identifier {IDENTIFIER.decode()!r} at byte 4 or 8; "
            f"got {data[4:12]!r}; try the file that write_etdump_result_to_file() of "
            "ExecuTorch's runtime writes"
        )
    try:
        return unpack(ETDump, view)
    except (ValueError, OverflowError) as cause:
        raise ValueError(f"[etdump] {path} is damaged: {cause}") from None


def _executions(block: RunData) -> Iterator[tuple[ProfileEvent, list[ProfileEvent]]]:
    """Each run of the block, and what ended within it: that stands before it, since events are
    written when they end. Delegates may count by another clock, so that times do not tell."""
    inside: list[ProfileEvent] = []
    for entry in block.events or ():
        event = entry.profile_event
        if event is None:
            continue
        if event.name != RUN or event.in_delegate:
            inside.append(event)
        else:
            yield event, inside
            inside = []


def _run(
    execute: ProfileEvent,
    inside: list[ProfileEvent],
    scale: float,
    instructions: dict[int, Instruction],
) -> Run:
    def time(ticks: int) -> int:
        return round(ticks * scale)

    names = {
        event.instruction_id: event.name[len(KERNEL) :]
        for event in inside
        if event.name is not None and event.name.startswith(KERNEL)
    }
    events = []
    delegates = 0
    for event in inside:
        index = event.instruction_id
        begin, end = time(event.start_time), time(event.end_time)
        if index < 0:
            continue
        if event.in_delegate:
            name = event.delegate_debug_id_str
            if name is None:
                name = f"delegate's id {event.delegate_debug_id_int}"
            events.append(Event(begin, end, index, Part(name)))
        elif event.name in _KINDS:
            kind = _KINDS[event.name]
            is_delegate = kind == "delegate"
            known = instructions.get(index)
            if known is None:
                name = "delegate" if is_delegate else names.get(index, "")
                instructions[index] = Instruction(kind, name, delegates if is_delegate else None)
            delegates += is_delegate
            events.append(Event(begin, end, index))
    return Run(
        thread=0,
        begin=time(execute.start_time),
        end=time(execute.end_time),
        run_begin=time(execute.start_time),
        run_end=time(execute.end_time),
        events=numbered(events),
    )
