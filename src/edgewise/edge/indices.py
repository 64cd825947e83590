"""Constant indices of a dimension."""

from __future__ import annotations

from collections.abc import Sequence


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Starts and lengths of the runs in which each index is the one before plus one."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and sum(found[-1]) == index:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
    return found


__all__ = ["runs"]
