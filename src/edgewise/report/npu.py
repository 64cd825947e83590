"""When each command of an NPU program runs, for the page: by a model, not measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.inspect.reading import delegate_payloads

if TYPE_CHECKING:
    from edgewise.backends.ethosu.simulator.timing import Span

_BACKEND = "EthosUBackend"
_MOST_SPANS = 1200
"""Of a lane: shorter ones are drawn together."""


def npu_timelines(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """By method: of each Ethos-U delegate its number and, or why not, its timeline.

    cycles; clock: Hz; lanes: by name the cycles that it is busy, and [begin, end, what] of each
    stretch. OSError, ValueError: as `read_contents`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for method, number, backend, data in delegate_payloads(path):
        if backend == _BACKEND:
            found.setdefault(method, []).append({"delegate": number, **_described(data)})
    return found


def _described(data: memoryview) -> dict[str, Any]:
    from edgewise.backends.ethosu import payload
    from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
    from edgewise.backends.ethosu.simulator.timing import DMA, NPU, WAITING, timeline

    try:
        told = timeline(payload.from_bytes(data).commands)
    except (NotSimulatedError, NpuError, ValueError) as error:
        return {"problem": str(error)}
    return {
        "target": told.target,
        "clock": told.clock,
        "cycles": told.cycles,
        "lanes": {
            lane: {
                "busy": told.busy(lane),
                "spans": _drawn([s for s in told.spans if s.lane == lane], told.cycles),
            }
            for lane in (NPU, DMA, WAITING)
        },
    }


def _drawn(spans: Sequence[Span], cycles: int) -> list[list[Any]]:
    """Neighbours that nobody could tell apart are one."""
    least = cycles / _MOST_SPANS
    drawn: list[list[Any]] = []
    for span in spans:
        last = drawn[-1] if drawn else None
        if last is not None and span.end - last[0] < least:
            last[1] = max(last[1], span.end)
            last[2] = "several commands"
        else:
            drawn.append([span.begin, span.end, _what(span)])
    return drawn


def _what(span: Span) -> str:
    parts = [span.name]
    if span.macs:
        parts.append(f"{span.macs:,} MACs")
    if span.bound:
        parts.append(f"as long as its {span.bound} takes")
    return ", ".join(parts)
