"""What was recorded, run by run, whoever recorded it. Times are nanoseconds of one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Instruction:
    """An instruction of a method."""

    kind: str
    """"kernel", "delegate", "move", "jump" or "free"."""
    name: str = ""
    """A kernel's operator, `aten::add.out`; a delegate's backend."""
    delegate: int | None = None
    """Index into the method's delegates."""


@dataclass(frozen=True)
class Part:
    """Something inside a delegate that was timed by itself."""

    name: str
    payload: tuple[int, ...] = ()
    """Positions of the payload's nodes that it runs; empty if it is none of these."""
    counters: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What the backend counted beside the time: `cycles`."""
    occurrence: int = 0
    """Which of several that look the same within one call of the delegate."""


@dataclass(frozen=True)
class Event:
    """An instruction ran, or (`part`) a part of the delegate that it calls."""

    begin: int
    end: int
    instruction: int
    part: Part | None = None


@dataclass(frozen=True)
class Run:
    """One call of a method."""

    thread: int
    begin: int
    """When the call came in; then inputs are read and copied."""
    end: int
    """When its results were there."""
    run_begin: int
    """First instruction."""
    run_end: int
    events: tuple[Event, ...]
    """In the order in which they ended: the parts of a delegate before the delegate."""
    dropped: int = 0
    """Events that were too many to be kept."""


@dataclass
class MethodRuns:
    """The runs of one method of one file, by all its instances."""

    method: str
    file: str
    """The program's path; "" if it was loaded from bytes."""
    instructions: list[Instruction]
    runs: list[Run] = field(default_factory=list)


def numbered(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events, with the occurrence of parts that look the same; an instruction's own event
    ends its call."""
    seen: dict[int, Counter[tuple[str, tuple[int, ...]]]] = {}
    result = []
    for event in events:
        if event.part is None:
            seen.pop(event.instruction, None)
        else:
            key = (event.part.name, event.part.payload)
            counts = seen.setdefault(event.instruction, Counter())
            if counts[key]:
                event = replace(event, part=replace(event.part, occurrence=counts[key]))
            counts[key] += 1
        result.append(event)
    return tuple(result)
