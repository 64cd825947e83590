"""A profile: what was recorded, as figures, table, JSON and trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.files import read_json, write_text
from edgewise.inspect.layers import layers
from edgewise.profiling.locations import Location, Locations
from edgewise.profiling.machine import machine
from edgewise.profiling.overhead import overhead
from edgewise.profiling.runs import MethodRuns
from edgewise.profiling.summary import Grouping, MethodSummary, Row, Stats, summarize
from edgewise.profiling.table import table
from edgewise.profiling.trace import trace
from edgewise.profiling.write_etdump import write_etdump

if TYPE_CHECKING:
    from edgewise.inspect.record import MethodRecord, ProgramRecord

FORMAT = "edgewise-profile"
VERSION = 1
"""Raised by one when a reader of the former version would misread the file."""


class Profile:
    """The runs of one or several methods. Read anew each time: what is still being recorded
    shows up as it comes."""

    def __init__(
        self,
        methods: Callable[[], list[MethodRuns]],
        record: ProgramRecord | None = None,
        origin: str = "edgewise",
    ) -> None:
        self._methods = methods
        self._record = record
        self._found: dict[str, ProgramRecord | None] = {}
        self.origin = origin
        """"edgewise", or "etdump" for what ExecuTorch recorded."""

    @property
    def methods(self) -> list[MethodRuns]:
        """Everything that was recorded, in the order of the methods' first runs."""
        return self._methods()

    def summaries(self) -> list[MethodSummary]:
        """Figures of each method."""
        return [summarize(runs, Locations(self._record_of(runs))) for runs in self.methods]

    def table(self, by: Grouping = "operator", top: int | None = 20) -> str:
        """Text: for each method, what took most of the time.

        Args:
            by: "operator": each kernel, and each operator inside a delegate; "kind": those of
                one name together; "module" or "line": what a module or source line took, which
                needs the program's record.
            top: so many rows of each method; None: all.
        """
        records = [self._record_of(runs) for runs in self.methods]
        measured = self.origin == "edgewise"
        return table(self.summaries(), by, top, records, measured)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """For notebooks: the table."""
        from edgewise import notebook

        return notebook.block(notebook.text(self.table()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; docs/profiling.md has the fields. Times in microseconds."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "origin": self.origin,
            "machine": machine() if self.origin == "edgewise" else {},
            "methods": [self._method(summary) for summary in self.summaries()],
        }

    def save(self, path: str | Path) -> None:
        """Writes `to_dict` as JSON."""
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    def save_trace(self, path: str | Path) -> None:
        """Writes every run as a Chrome trace, which Perfetto and chrome://tracing open."""
        pairs = [(runs, Locations(self._record_of(runs))) for runs in self.methods]
        write_text(path, json.dumps(trace(pairs)) + "\n")

    def save_etdump(self, path: str | Path) -> None:
        """Writes every run as an ETDump file, which ExecuTorch's Inspector reads."""
        write_etdump(self.methods, path)

    def _record_of(self, runs: MethodRuns) -> MethodRecord | None:
        """The method's part of the record; None if there is none, or none that fits."""
        program = self._record
        if program is None and runs.file:
            if runs.file not in self._found:
                self._found[runs.file] = _find(runs.file)
            program = self._found[runs.file]
        if program is None:
            return None
        for method in program.methods:
            if method.name == runs.method:
                kinds = [instruction.kind for instruction in method.instructions]
                same = kinds == [instruction.kind for instruction in runs.instructions]
                return method if same or self.origin == "etdump" else None
        return None

    def _method(self, summary: MethodSummary) -> dict[str, Any]:
        runs = summary.runs
        record = self._record_of(runs)
        return {
            "file": runs.file,
            "method": runs.method,
            "runs": len(runs.runs),
            "threads": list(dict.fromkeys(run.thread for run in runs.runs)),
            "dropped": sum(run.dropped for run in runs.runs),
            "call": asdict(summary.call),
            "execute": asdict(summary.execute),
            "overhead": overhead(summary) if self.origin == "edgewise" else None,
            "instructions": [_instruction(summary, row) for row in summary.instructions],
            "nodes": {
                name: {"time": time, "with": [other for other in nodes if other != name]}
                for name, (time, nodes) in summary.by_node().items()
            },
            "estimates": _estimates(record),
        }


def read_profile(path: str | Path) -> dict[str, Any]:
    """What `Profile.save` wrote, as `Profile.to_dict`. ValueError if it is something else."""
    try:
        found = read_json(Path(path).read_bytes())
    except ValueError as cause:
        raise ValueError(
            f"[profile] {path} must be JSON; got {cause}; "
            "try what profile.save('profile.json') wrote"
        ) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(
            f"[profile] {path} must have the format {FORMAT!r}; try the file that "
            "Profile.save or `edgewise profile --json` writes"
        )
    if found.get("version") != VERSION:
        raise ValueError(
            f"[profile] {path} must have version {VERSION}; got {found.get('version')!r}"
        )
    return found


def _find(path: str) -> ProgramRecord | None:
    from edgewise.inspect.reading import open_program

    try:
        return open_program(path)
    except (ImportError, OSError, ValueError):  # moved, overwritten; flatbuffers not installed
        return None


def _estimates(record: MethodRecord | None) -> list[dict[str, Any]]:
    """What compilers of NPUs expect of their delegates; nothing of it was measured."""
    if record is None:
        return []
    where = {
        (one.delegate, one.number): {"module": one.module, "source": one.source}
        for one in layers(record)
    }
    return [
        {
            "delegate": index,
            "source": delegate.estimates.source,
            "figures": dict(delegate.estimates.figures),
            "layers": [
                {**row, **where[index, number]}
                for number, row in enumerate(delegate.estimates.layers)
            ],
        }
        for index, delegate in enumerate(record.delegates)
        if delegate.estimates is not None
    ]


def _instruction(summary: MethodSummary, row: Row) -> dict[str, Any]:
    parts = summary.parts.get(row.index, [])
    result = {"index": row.index, "kind": row.kind, **_row(summary, row)}
    if parts:
        result["rest"] = asdict(Stats.of(summary.rest(row).totals))
        result["parts"] = [_part(summary, part) for part in parts]
    return result


def _part(summary: MethodSummary, row: Row) -> dict[str, Any]:
    assert row.part is not None
    return {
        "payload": list(row.part.payload),
        **_row(summary, row),
        "counters": dict(row.part.counters),
    }


def _row(summary: MethodSummary, row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "calls": row.events / max(len(row.totals), 1),
        "time": asdict(Stats.of(row.totals)),
        "share": sum(row.totals) / max(summary.total, 1),
        **_location(row.location),
    }


def _location(location: Location) -> dict[str, Any]:
    return {
        "nodes": list(location.nodes),
        "module": location.module,
        "type": location.type,
        "source": location.source,
    }
