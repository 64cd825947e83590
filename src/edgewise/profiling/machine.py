"""The machine that a profile was taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from edgewise._version import __version__


def machine() -> dict[str, Any]:
    """CPU, cores that the process may use, system, version of edgewise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu(),
        "cores": cores,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "edgewise": __version__,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
