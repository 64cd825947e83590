"""Text for terminals: columns, decibels, shares, source locations."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """A line for each row; all rows have as many cells."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        (indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def short_db(value: float) -> str:
    """`exact` where there is no noise."""
    return "exact" if value == math.inf else f"{value:.1f}"


def short_share(value: float) -> str:
    """As a percentage of three digits."""
    return f"{100 * value:.3g} %"


def location(source: str) -> str:
    """`dir/file.py:12` of the longest path; `-` if it is not known."""
    if not source:
        return "-"
    path, _, line = source.rpartition(":")
    here = os.getcwd() + os.sep
    path = path.removeprefix(here)
    if os.path.isabs(path):
        path = os.sep.join(path.split(os.sep)[-2:])
    return f"{path}:{line}"
