"""Constant indices as slices, repeated and put together."""

from __future__ import annotations

import pytest

from edgewise.edge.indices import pattern

PATTERNS = {
    # Indices, of how many elements. The period; stretches: start, elements, times.
    "all": ([0, 1, 2, 3], 4, 4, [(0, 4, 1)]),
    "each twice": ([0, 0, 1, 1, 2, 2], 3, 3, [(0, 3, 2)]),
    "each twice, the last once": ([0, 0, 1, 1, 2], 3, 3, [(0, 2, 2), (2, 1, 1)]),
    "half as many again": ([0, 0, 1, 2, 2, 3, 4, 4, 5], 6, 2, [(0, 1, 2), (1, 1, 1)]),
    "every second": ([0, 2, 4], 6, 2, [(0, 1, 1)]),
    "the second of each three": ([1, 4], 6, 3, [(1, 1, 1)]),
    "pairs swapped": ([1, 0, 3, 2], 4, 2, [(1, 1, 1), (0, 1, 1)]),
    "backwards": ([2, 1, 0], 3, 3, [(2, 1, 1), (1, 1, 1), (0, 1, 1)]),
    "one": ([0, 0, 0], 1, 1, [(0, 1, 3)]),
    "some at the end": ([5, 5], 6, 6, [(5, 1, 2)]),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_patterns(case: str) -> None:
    indices, size, period, stretches = PATTERNS[case]
    found = pattern(indices, size)
    assert (found.period, found.stretches) == (period, stretches)
    again = [
        first + start + i
        for first in range(0, size, period)
        for start, count, times in stretches
        for i in range(count)
        for _ in range(times)
    ]
    assert again == indices
