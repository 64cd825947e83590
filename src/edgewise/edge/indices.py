"""Constant indices of a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Starts and lengths of the runs in which each index is the one before plus one."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and sum(found[-1]) == index:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
    return found


@dataclass(frozen=True)
class Pattern:
    """Indices that repeat: those of each `period` elements of the dimension are those of the first
    ones plus a multiple of it. stretches: of the first period, where neighbouring elements begin,
    their number, and how often each of them stands beside itself."""

    period: int
    stretches: list[tuple[int, int, int]]


def pattern(indices: Sequence[int], size: int) -> Pattern:
    """Of indices of a dimension of `size` elements, with the fewest stretches."""
    values = np.asarray(indices)
    whole = Pattern(size, _stretches(indices))
    for period in range(1, size):
        count = size // period
        if size % period or len(values) % count:
            continue
        parts = values.reshape(count, -1) - np.arange(count)[:, None] * period
        first = parts[0]
        if (parts == first).all() and first.min() >= 0 and first.max() < period:
            found = _stretches(first.tolist())
            return Pattern(period, found) if len(found) < len(whole.stretches) else whole
    return whole


def _stretches(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for index, same in groupby(indices):
        times = sum(1 for _ in same)
        if found and found[-1][0] + found[-1][1] == index and found[-1][2] == times:
            found[-1] = found[-1][0], found[-1][1] + 1, times
        else:
            found.append((index, 1, times))
    return found


MOST_RUNS = 64
"""Of indices that become slices."""


def flattened(indices: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor | None:
    """Indices of several neighbouring dimensions of `sizes` as those of one dimension of all their
    elements; None if they are no integers, or have more than MOST_RUNS runs."""
    if any(index.dtype not in (torch.int32, torch.int64) for index in indices):
        return None
    flat = torch.zeros((), dtype=torch.int64)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index.long() % size
    few = flat.numel() and int((flat.reshape(-1).diff() != 1).sum()) < MOST_RUNS
    return flat if few else None


@dataclass(frozen=True)
class ByDistance:
    """Indices [rows, columns] of the last dimension that depend only on how far row and column are
    apart (a Toeplitz matrix), as attention by relative positions has them.

    With the elements `picked` in each row, one for each distance from the last row's first column
    to the first row's last column, row i of what is indexed begins at element `rows - 1 - i`. Of
    all rows behind one another, that are the elements from `cut[0]` to `cut[1]`, as rows that are
    one element shorter.
    """

    picked: torch.Tensor
    rows: int
    columns: int

    @property
    def cut(self) -> tuple[int, int]:
        """Start and end, of `rows * len(picked)` elements; of more than one row."""
        return self.rows - 1, self.rows - 1 + self.rows * (len(self.picked) - 1)


def by_distance(indices: torch.Tensor) -> ByDistance | None:
    """Of `indices` [..., rows, columns] whose matrices are all the same; None if they differ, or
    depend on more than the distance."""
    if indices.dtype not in (torch.int32, torch.int64) or indices.dim() < 2 or not indices.numel():
        return None
    matrices = indices.reshape(-1, *indices.shape[-2:])
    one = matrices[0].long()
    if not bool((matrices == one).all()) or not torch.equal(one[1:, 1:], one[:-1, :-1]):
        return None
    picked = torch.cat([one.flip(0)[:, 0], one[0, 1:]])
    return ByDistance(picked, *one.shape) if len(picked) > 1 else None


__all__ = ["MOST_RUNS", "ByDistance", "Pattern", "by_distance", "flattened", "pattern", "runs"]
