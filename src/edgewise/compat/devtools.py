"""`executorch.devtools`: ETDump files through the Inspector's names, and the record instead of an
ETRecord. `edgewise.profiling.read_etdump` and `edgewise.profile` tell more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgewise.accuracy.tables import aligned
from edgewise.inspect.record import ProgramRecord, load_record
from edgewise.profiling.etdump import open_etdump
from edgewise.profiling.etdump_file import DumpEvent, ETDump, ProfileEvent

_NATIVE_CALL = "native_call_"
_IN_TABLES_NOT = (_NATIVE_CALL,)
_TORCHS_SELF = "L__self__"


class TimeScale(Enum):
    """Units of time. A device that counts cycles is not timed in any other."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


_PER_SECOND = {TimeScale.NS: 1e9, TimeScale.US: 1e6, TimeScale.MS: 1e3, TimeScale.S: 1.0}


@dataclass
class PerfData:
    """Times of an event, one for each run."""

    raw: list[float]

    @property
    def p10(self) -> float:
        """A tenth of the runs took no longer."""
        return float(np.percentile(self.raw, 10))

    @property
    def p50(self) -> float:
        """The median."""
        return float(np.percentile(self.raw, 50))

    @property
    def p90(self) -> float:
        """Nine tenths of the runs took no longer."""
        return float(np.percentile(self.raw, 90))

    @property
    def avg(self) -> float:
        """The mean."""
        return float(np.mean(self.raw))

    @property
    def min(self) -> float:
        """The fastest run."""
        return min(self.raw)

    @property
    def max(self) -> float:
        """The slowest run."""
        return max(self.raw)


@dataclass
class Event:
    """Something that took time, in all runs of its block."""

    name: str
    perf_data: PerfData
    delegate_debug_identifier: int | str | None = None
    is_delegated_op: bool | None = None
    op_types: list[str] = field(default_factory=list)
    module_hierarchy: dict[str, str] = field(default_factory=dict)
    """By node of the model the module that it comes from; from the record."""
    stack_traces: dict[str, str] = field(default_factory=dict)
    """By node of the model its source line; from the record."""
    _instruction_id: int = -1


@dataclass
class EventBlock:
    """What was recorded under one name: `Default` while loading, `Execute` in runs."""

    name: str
    events: list[Event]
    _unit: str = "ms"

    def to_dataframe(self, include_units: bool = False) -> Any:
        """A pandas table: a row for each event, in the Inspector's unit of time."""
        unit = f" ({self._unit})" if include_units else ""
        return import_module("pandas").DataFrame(_rows(self, unit))


class Inspector:
    """The events of an ETDump file.

    etrecord: what `generate_etrecord` wrote, or a program's record: modules and source lines.
    ValueError for a file that is no ETDump, and without one.
    """

    def __init__(
        self,
        etdump_path: str | Path | None = None,
        etdump_data: bytes | None = None,
        etrecord: ProgramRecord | str | Path | None = None,
        source_time_scale: TimeScale = TimeScale.NS,
        target_time_scale: TimeScale = TimeScale.MS,
    ) -> None:
        if (etdump_path is None) == (etdump_data is None):
            given = "neither" if etdump_path is None else "both"
            raise ValueError(f"[Inspector] needs etdump_path or etdump_data; got {given}")
        if (source_time_scale is TimeScale.CYCLES) != (target_time_scale is TimeScale.CYCLES):
            raise ValueError("[Inspector] cycles are not time: both scales must be cycles, or none")
        data = etdump_data if etdump_data is not None else Path(str(etdump_path)).read_bytes()
        record = load_record(etrecord) if isinstance(etrecord, (str, PathLike)) else etrecord
        self._unit = target_time_scale.value
        scale = _PER_SECOND.get(target_time_scale, 1) / _PER_SECOND.get(source_time_scale, 1)
        dump = open_etdump(data, str(etdump_path or "data"))
        self.event_blocks = _blocks(dump.run_data, scale, self._unit)
        if record is not None:
            _add_provenance(self.event_blocks, record)

    def print_data_tabular(self, file: IO[str] | None = None, include_units: bool = True) -> None:
        """A line for each event; those inside of kernels are left out."""
        unit = f" ({self._unit})" if include_units else ""
        heads = ("block", "event", *(f"{name}{unit}" for name in ("p10", "p50", "p90", "avg")))
        rows = [(*heads, "runs", "modules")]
        for block in self.event_blocks:
            for event in block.events:
                if event.name.startswith(_IN_TABLES_NOT):
                    continue
                times = event.perf_data
                figures = [f"{v:.6g}" for v in (times.p10, times.p50, times.p90, times.avg)]
                modules = ", ".join(sorted(set(event.module_hierarchy.values()) - {""}))
                rows.append((block.name, event.name, *figures, str(len(times.raw)), modules))
        print("\n".join(aligned(rows, "")), file=file or sys.stdout)

    def to_dataframe(self, include_units: bool = False) -> Any:
        """The same as a pandas table, nothing left out."""
        unit = f" ({self._unit})" if include_units else ""
        rows = [row for block in self.event_blocks for row in _rows(block, unit)]
        return import_module("pandas").DataFrame(rows)

    def find_total_for_module(self, module_name: str) -> float:
        """Mean time of all instructions that compute nodes of the module, in the target's scale.
        `layers.0` may be spelt `L__self___layers_0`, as torch does; `L__self__` is the whole model.
        0 without a record."""
        calls = ("OPERATOR_CALL", "DELEGATE_CALL")
        return sum(
            event.perf_data.avg
            for block in self.event_blocks
            for event in block.events
            if event.name in calls
            and any(_is_in(one, module_name) for one in event.module_hierarchy.values())
        )


def _is_in(module: str, name: str) -> bool:
    if name.startswith(_TORCHS_SELF):
        spelt = "_".join([_TORCHS_SELF, *module.split(".")]) if module else _TORCHS_SELF
        return f"{spelt}_".startswith(f"{name}_")
    return f"{module}.".startswith(f"{name}.")


def generate_etrecord(
    et_record: str | Path, edge_dialect_program: Any, executorch_program: Any
) -> None:
    """Writes the program's record. The edge program is not looked at: the record knows it."""
    executorch_program.record().save(et_record)


def parse_etrecord(etrecord_path: str | Path) -> ProgramRecord:
    """What `generate_etrecord` wrote."""
    return load_record(etrecord_path)


def deserialize_from_etdump_flatcc(data: bytes, size_prefixed: bool = True) -> ETDump:
    """An ETDump file's content as dataclasses. ValueError if it is none."""
    return open_etdump(data, "data")


def _blocks(runs: Any, scale: float, unit: str) -> list[EventBlock]:
    """Runs of one name are one block; events that stand for the same are one event."""
    found: dict[str, dict[tuple[Any, ...], Event]] = {}
    for run in runs or ():
        events = found.setdefault(run.name or "", {})
        seen: dict[tuple[Any, ...], int] = {}
        for one in _profiled(run.events or ()):
            key: tuple[Any, ...] = (one.name, one.instruction_id, _identifier(one))
            number = seen[key] = seen.get(key, 0) + 1
            event = events.setdefault((*key, number), _event(one))
            event.perf_data.raw.append((one.end_time - one.start_time) * scale)
    return [EventBlock(name, list(events.values()), unit) for name, events in found.items()]


def _rows(block: EventBlock, unit: str) -> list[dict[str, Any]]:
    return [
        {
            "event_block_name": block.name,
            "event_name": event.name,
            "raw": event.perf_data.raw,
            **{
                name + unit: getattr(event.perf_data, name)
                for name in ("p10", "p50", "p90", "avg", "min", "max")
            },
            "op_types": event.op_types,
            "delegate_debug_identifier": event.delegate_debug_identifier,
            "module_hierarchy": event.module_hierarchy,
            "stack_traces": event.stack_traces,
            "is_delegated_op": event.is_delegated_op,
        }
        for event in block.events
    ]


def _profiled(events: Sequence[DumpEvent]) -> list[ProfileEvent]:
    return [event.profile_event for event in events if event.profile_event is not None]


def _identifier(event: ProfileEvent) -> int | str | None:
    if event.delegate_debug_id_str is not None:
        return event.delegate_debug_id_str
    return event.delegate_debug_id_int if event.in_delegate else None


def _event(one: ProfileEvent) -> Event:
    identifier = _identifier(one)
    name = one.name if one.name is not None else str(identifier)
    inner = [name.removeprefix(_NATIVE_CALL)] if name.startswith(_NATIVE_CALL) else []
    return Event(name, PerfData([]), identifier, one.in_delegate, inner, {}, {}, one.instruction_id)


def _add_provenance(blocks: Sequence[EventBlock], record: ProgramRecord) -> None:
    method = record.method()
    for block in blocks:
        for event in block.events:
            index = event._instruction_id
            if not 0 <= index < len(method.instructions):
                continue
            nodes = [method.by_name[name] for name in method.instructions[index].nodes]
            event.module_hierarchy = {node.name: node.module for node in nodes}
            event.stack_traces = {node.name: node.source for node in nodes}
            event.op_types = [node.operator for node in nodes]
