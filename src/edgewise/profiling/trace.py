"""Runs as a Chrome trace: the JSON object form of the Trace Event Format, with complete events.

Each thread has two tracks: what ran (call, instruction, part), and the user's modules at that
time. Slices of a track are disjoint or inside one another, as the format demands. Times are
microseconds since the first call, with three decimals, so that none is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgewise.profiling.locations import Location, Locations
from edgewise.profiling.runs import Event, MethodRuns, Run

_PROCESS = 1


def trace(methods: Sequence[tuple[MethodRuns, Locations]]) -> dict[str, Any]:
    """The document, for `json.dumps`."""
    runs = [run for method, _ in methods for run in method.runs]
    origin = min((run.begin for run in runs), default=0)
    threads = list(dict.fromkeys(run.thread for run in runs))
    writer = _Writer(origin, {thread: i for i, thread in enumerate(threads)})
    for method, locations in methods:
        for number, run in enumerate(method.runs):
            writer.add_run(method, locations, number, run)
    named = {thread for thread in threads if writer.has_modules(thread)}
    return {
        "traceEvents": [*_names(threads, named), *writer.events],
        "displayTimeUnit": "ns",
        "otherData": {"producer": "edgewise"},
    }


def _names(threads: Sequence[int], named: set[int]) -> Iterable[dict[str, Any]]:
    """Metadata events: what the tracks are called, and their order."""
    yield _metadata("process_name", 0, name="edgewise")
    for index, thread in enumerate(threads):
        yield _metadata("thread_name", 2 * index + 1, name=f"thread {thread}")
        yield _metadata("thread_sort_index", 2 * index + 1, sort_index=2 * index + 1)
        if thread in named:
            yield _metadata("thread_name", 2 * index + 2, name=f"modules, thread {thread}")
            yield _metadata("thread_sort_index", 2 * index + 2, sort_index=2 * index + 2)


def _metadata(kind: str, track: int, **arguments: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": track, "args": arguments}


class _Writer:
    def __init__(self, origin: int, tracks: dict[int, int]) -> None:
        self._origin = origin
        self._tracks = tracks
        self._modules: set[int] = set()
        self.events: list[dict[str, Any]] = []

    def has_modules(self, thread: int) -> bool:
        return thread in self._modules

    def add_run(self, method: MethodRuns, locations: Locations, number: int, run: Run) -> None:
        track = 2 * self._tracks[run.thread] + 1
        arguments = {"run": number, "file": method.file}
        self._add(track, "call", method.method, run.begin, run.end, arguments)
        leaves: list[tuple[Event, Location]] = []
        has_parts = {e.instruction for e in run.events if e.part is not None}
        for event in run.events:
            if event.part is not None:
                location = locations.of_part(event.instruction, event.part)
                details: dict[str, Any] = {"payload": list(event.part.payload)}
                details.update(event.part.counters)
                self._add_event(track, "operator", event.part.name, event, location, details)
                leaves.append((event, location))
            else:
                known = method.instructions[event.instruction]
                location = locations.of_instruction(event.instruction)
                name = known.name or known.kind
                self._add_event(track, known.kind, name, event, location, {})
                if event.instruction not in has_parts:
                    leaves.append((event, location))
        self._add_modules(run.thread, leaves)

    def _add_event(
        self,
        track: int,
        category: str,
        name: str,
        event: Event,
        location: Location,
        more: dict[str, Any],
    ) -> None:
        arguments: dict[str, Any] = {"instruction": event.instruction, **more}
        if location.module:
            arguments["module"] = location.module
        if location.source:
            arguments["source"] = location.source
        self._add(track, category, name, event.begin, event.end, arguments)

    def _add_modules(self, thread: int, leaves: list[tuple[Event, Location]]) -> None:
        """Modules as slices around what they ran, each inside its parent."""
        track = 2 * self._tracks[thread] + 2
        stack: list[tuple[str, int]] = []
        end = 0

        def close(depth: int) -> None:
            while len(stack) > depth:
                path, begin = stack.pop()
                self._modules.add(thread)
                self._add(track, "module", path or "(model)", begin, end, {})

        for event, location in sorted(leaves, key=lambda leaf: leaf[0].begin):
            depth = 0
            for (open_path, _), path in zip(stack, location.modules, strict=False):
                if open_path != path:
                    break
                depth += 1
            close(depth)
            stack += [(path, event.begin) for path in location.modules[len(stack) :]]
            end = event.end
        close(0)

    def _add(
        self, track: int, category: str, name: str, begin: int, end: int, arguments: dict[str, Any]
    ) -> None:
        self.events.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "pid": _PROCESS,
                "tid": track,
                "ts": (begin - self._origin) / 1e3,
                "dur": (end - begin) / 1e3,
                "args": arguments,
            }
        )
