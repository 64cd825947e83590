"""Latency of a program on this machine. Nothing else that an engine runs may run meanwhile."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WARM = 3
_LEAST, _MOST = 10, 2000


def latency(
    program: bytes, inputs: Sequence[Any], *, threads: int = 1, seconds: float = 0.5
) -> dict[str, float | int]:
    """Milliseconds of a call: the median and the 90th percentile, after some to warm up.

    seconds: for how long it is called; at least 10 and at most 2000 times.
    """
    import edgewise

    model = edgewise.load(program, threads=threads)
    for _ in range(_WARM):
        model(*inputs)
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _LEAST or (len(times) < _MOST and time.perf_counter() - start < seconds):
        before = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - before)
    times.sort()
    return {
        "latency_ms": 1e3 * times[len(times) // 2],
        "latency_p90_ms": 1e3 * times[int(len(times) * 0.9)],
        "calls": len(times),
    }


def cpu() -> str:
    """This machine's processor, for results that depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    names = (found.get("model name"), found.get("cpu family"), found.get("model"))
    return " ".join(name for name in names if name) or platform.machine()
