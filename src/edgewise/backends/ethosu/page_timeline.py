"""When each command of a program runs, for the report page: by a model, not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgewise.backends.ethosu import payload
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.timing import DMA, NPU, WAITING, Span, timeline

_MOST_SPANS = 1200
"""Of a lane: shorter ones are drawn together."""


def page_timeline(data: memoryview) -> dict[str, Any]:
    """As `edgewise.registry.Backend.timeline`."""
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
            drawn.append([span.begin, span.end, _what(span), span.offset])
    return drawn


def _what(span: Span) -> str:
    parts = [span.name]
    if span.macs:
        parts.append(f"{span.macs:,} MACs")
    if span.bound:
        parts.append(f"as long as its {span.bound} takes")
    return ", ".join(parts)
