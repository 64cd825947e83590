"""Runs of a method in figures: for each instruction and part, its time over the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgewise.profiling.locations import Location, Locations
from edgewise.profiling.runs import MethodRuns, Part

Grouping = Literal["operator", "kind", "module", "line"]
"""operator: each instruction and part by itself. kind: those of a name together."""

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Stats:
    """Of a time over the runs, in microseconds. p90: nine runs of ten took no longer."""

    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float

    @staticmethod
    def of(nanoseconds: Sequence[int]) -> Stats:
        """Zeros if there are none. Percentiles are linear between the two nearest values."""
        if not nanoseconds:
            return Stats(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        ordered = sorted(nanoseconds)
        p50, p90, p99 = (_percentile(ordered, p) / 1e3 for p in PERCENTILES)
        mean = sum(ordered) / len(ordered) / 1e3
        return Stats(mean, ordered[0] / 1e3, p50, p90, p99, ordered[-1] / 1e3)


@dataclass
class Row:
    """An instruction or a part of one, over all runs."""

    index: int
    """Of the instruction; of a group the first one's."""
    kind: str
    name: str
    location: Location
    part: Part | None = None
    totals: list[int] = field(default_factory=list)
    """Nanoseconds in each run: the sum, where it ran several times."""
    events: int = 0

    def add(self, run: int, nanoseconds: int) -> None:
        """Once more in run number `run`."""
        self.totals[run] += nanoseconds
        self.events += 1


@dataclass
class MethodSummary:
    """One method's figures."""

    runs: MethodRuns
    instructions: list[Row]
    parts: dict[int, list[Row]]
    """By instruction, in the order in which they first ran."""
    call: Stats
    execute: Stats

    @property
    def total(self) -> int:
        """Nanoseconds of all runs, without inputs and outputs."""
        return sum(run.run_end - run.run_begin for run in self.runs.runs)

    @property
    def leaves(self) -> list[Row]:
        """What does not overlap: instructions, delegates as their parts and the rest."""
        result = []
        for row in self.instructions:
            parts = self.parts.get(row.index, [])
            result.extend(parts)
            result.append(self.rest(row) if parts else row)
        return result

    def rest(self, row: Row) -> Row:
        """What no part of a delegate took: arguments, setting up, waiting."""
        parts = self.parts.get(row.index, [])
        inside = [sum(items) for items in zip(*(p.totals for p in parts), strict=True)]
        totals = [a - b for a, b in zip(row.totals, inside, strict=True)]
        name = f"({row.name}: outside its operators)"
        return Row(row.index, row.kind, name, Location(), None, totals, row.events)

    def grouped(self, by: Grouping) -> list[Row]:
        """The leaves, those that belong together as one; the largest first."""
        key: Callable[[Row], str] = {
            "operator": lambda row: f"{id(row)}",
            "kind": lambda row: row.name,
            "module": lambda row: row.location.module,
            "line": lambda row: row.location.source,
        }[by]
        groups: dict[str, list[Row]] = {}
        for row in self.leaves:
            groups.setdefault(key(row), []).append(row)
        rows = [_joined(members, by) for members in groups.values()]
        return sorted(rows, key=lambda row: -sum(row.totals))

    def by_node(self) -> dict[str, tuple[float, tuple[str, ...]]]:
        """The median time of what computes a node, in microseconds, and all nodes that this
        computes; by the record's names."""
        found: dict[str, tuple[float, tuple[str, ...]]] = {}
        for row in self.leaves:
            for node in row.location.nodes:
                time, nodes = found.get(node, (0.0, ()))
                both = tuple(dict.fromkeys((*nodes, *row.location.nodes)))
                found[node] = (time + Stats.of(row.totals).p50, both)
        return found


def summarize(runs: MethodRuns, locations: Locations) -> MethodSummary:
    """The figures of a method's runs."""
    count = len(runs.runs)
    rows: dict[int, Row] = {}
    parts: dict[tuple[int, str, tuple[int, ...], int], Row] = {}
    layers: dict[tuple[int, str, int], Row] = {}
    for number, run in enumerate(runs.runs):
        for event in run.events:
            index, part = event.instruction, event.part
            if part is not None:
                key = (index, part.name, part.payload, part.occurrence)
                row = parts.get(key)
                if row is None:
                    row = parts[key] = _row_of_part(index, part, locations, layers, count)
            else:
                row = rows.get(index)
                if row is None:
                    known = runs.instructions[index]
                    location = locations.of_instruction(index)
                    name = known.name or known.kind
                    row = rows[index] = Row(index, known.kind, name, location, None, [0] * count)
            row.add(number, event.end - event.begin)
    by_instruction: dict[int, list[Row]] = {}
    for (index, *_), row in parts.items():
        own = by_instruction.setdefault(index, [])
        if row not in own:
            own.append(row)
    return MethodSummary(
        runs,
        [rows[index] for index in sorted(rows)],
        by_instruction,
        Stats.of([run.end - run.begin for run in runs.runs]),
        Stats.of([run.run_end - run.run_begin for run in runs.runs]),
    )


def _row_of_part(
    index: int,
    part: Part,
    locations: Locations,
    layers: dict[tuple[int, str, int], Row],
    count: int,
) -> Row:
    """Operations of one kind of an NPU's layer are one row."""
    layer = locations.layer_of(index, part)
    key = None if layer is None else (index, part.name, layer.number)
    if key is not None and key in layers:
        return layers[key]
    name = part.name if layer is None else f"{layer.operator} ({part.name})"
    row = Row(index, "part", name, locations.of_part(index, part), part, [0] * count)
    if key is not None:
        layers[key] = row
    return row


def _joined(rows: list[Row], by: Grouping) -> Row:
    first = rows[0]
    if len(rows) == 1 and by in ("operator", "kind"):
        return first
    totals = [sum(items) for items in zip(*(row.totals for row in rows), strict=True)]
    nodes = tuple(dict.fromkeys(node for row in rows for node in row.location.nodes))
    same_location = len({(r.location.modules, r.location.source) for r in rows}) == 1
    location = first.location if same_location else Location(nodes=nodes)
    if by == "module":
        sources = {row.location.source for row in rows}
        source = sources.pop() if len(sources) == 1 else ""
        location = Location(nodes, first.location.modules, first.location.type, source)
    elif by == "line":
        location = Location(
            nodes, _common(row.location.modules for row in rows), "", first.location.source
        )
    name = first.name if by == "kind" else _names(rows)
    return Row(first.index, first.kind, name, location, None, totals, sum(r.events for r in rows))


def _names(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row.name for row in rows))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _common(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    result = []
    for level in zip(*paths, strict=False):
        if len(set(level)) != 1:
            break
        result.append(level[0])
    return tuple(result)


def _percentile(ordered: Sequence[int], percent: int) -> float:
    position = percent / 100 * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
