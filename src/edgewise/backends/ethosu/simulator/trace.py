"""A timeline as a trace file that Chrome's and Perfetto's viewers show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgewise.backends.ethosu.simulator.timing import DMA, NPU, WAITING, Timeline

_LANES = (NPU, DMA, WAITING)


def trace(timelines: Sequence[Timeline]) -> str:
    """JSON: a process for each delegate, a thread for each lane; times in microseconds."""
    events: list[dict[str, Any]] = []
    for process, timeline in enumerate(timelines):
        name = {"name": f"delegate {process}: {timeline.target}"}
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": name})
        for thread, lane in enumerate(_LANES):
            events.append(
                {
                    "name": "thread_name",
                    "ph": "M",
                    "pid": process,
                    "tid": thread,
                    "args": {"name": lane},
                }
            )
        scale = 1e6 / timeline.clock
        for span in timeline.spans:
            events.append(
                {
                    "name": span.name,
                    "cat": span.lane,
                    "ph": "X",
                    "pid": process,
                    "tid": _LANES.index(span.lane),
                    "ts": span.begin * scale,
                    "dur": (span.end - span.begin) * scale,
                    "args": {
                        "command": f"{span.offset:#x}",
                        "cycles": span.end - span.begin,
                        "MACs": span.macs,
                        "bound": span.bound,
                    },
                }
            )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1) + "\n"
