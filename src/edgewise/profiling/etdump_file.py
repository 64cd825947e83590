"""What an ETDump file holds. Schema: schema/etdump.fbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.flatbuffer import (
    INT32,
    UINT8,
    UINT32,
    UINT64,
    Table,
    scalar,
    string,
    table,
    tables,
    vector,
)

IDENTIFIER = b"ED00"
RUN = "Method::execute"
OF_KIND = {"kernel": "OPERATOR_CALL", "delegate": "DELEGATE_CALL"}
KERNEL = "native_call_"
"""Begins the name that a kernel gives itself, inside of its OPERATOR_CALL."""
_NONE = -1


@dataclass
class DebugEvent(Table):
    """Numbers that were logged; not read."""


@dataclass
class AllocationEvent(Table):
    """Memory that was taken; not used."""

    allocator_id: int = scalar(INT32)
    allocation_size: int = scalar(UINT64)


@dataclass
class ProfileEvent(Table):
    """Something that took time."""

    name: str | None = string()
    chain_index: int = scalar(INT32)
    instruction_id: int = scalar(INT32, _NONE)
    delegate_debug_id_int: int = scalar(INT32, _NONE)
    delegate_debug_id_str: str | None = string()
    delegate_debug_metadata: Any = vector(UINT8)
    start_time: int = scalar(UINT64)
    end_time: int = scalar(UINT64)

    @property
    def in_delegate(self) -> bool:
        """Whether a backend recorded it."""
        return self.delegate_debug_id_str is not None or self.delegate_debug_id_int != _NONE


@dataclass
class DumpEvent(Table):
    """An event of one of the kinds."""

    profile_event: ProfileEvent | None = table(ProfileEvent)
    allocation_event: AllocationEvent | None = table(AllocationEvent)
    debug_event: DebugEvent | None = table(DebugEvent)


@dataclass
class Allocator(Table):
    """An allocator by its name."""

    name: str | None = string()


@dataclass
class RunData(Table):
    """A block of events."""

    name: str | None = string()
    bundled_input_index: int = scalar(INT32, _NONE)
    allocators: Any = tables(Allocator)
    events: Any = tables(DumpEvent)


@dataclass
class ETDump(Table):
    """The whole file."""

    version: int = scalar(UINT32)
    run_data: Any = tables(RunData)
