"""Functions of 16-bit numbers as sums of tables, each for a range of the operand.

TOSA's table of 16-bit numbers has 513 entries, and straight lines between them: 128 numbers lie
on each. Where a function bends too much for that, a range is looked up in a table of its own,
whose entries are closer: the operand is shifted and multiplied by a power of two, and cut to 16
bits, so that every table gives a constant outside of its range. The tables of all ranges are
added; what those of the others give there is subtracted.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from edgewise.backends.ethosu.lowering.quant import Quant, at_borders

Numbers = npt.NDArray[np.int64]
Function = Callable[[torch.Tensor], torch.Tensor]

LOW, COUNT = -(2**15), 2**16
SPACING = 128
"""Numbers between two entries of a table of the whole range."""
ENTRIES = 513
ZOOMS = tuple(2**n for n in range(8))
STEEPEST = 2**15 - 1
"""Of what TOSA has a line rise from an entry to the next."""
FRACTION = 128
"""An interpolated result has so many parts of a step."""
MOST = 24
"""Ranges that a function may have."""
WITHIN = 1
"""Steps of the result that it may be off at each of the 65536 numbers."""


@dataclass(frozen=True)
class Segment:
    """From `start` on the operand is `(x - start) * zoom - 2**15` in a table of its own."""

    start: int
    zoom: int
    entries: npt.NDArray[np.int16]

    @property
    def first(self) -> int:
        """What it gives before its range, in parts of a step."""
        return int(self.entries[0]) * FRACTION


class TooManySegments(ValueError):
    """A function that no sum of tables follows."""


def segments(source: Quant, result: Quant, function: Function) -> list[Segment]:
    """Ranges whose tables follow the function within a step at every number of 16 bits.
    TooManySegments if there are more than `MOST`."""
    exact, knots, free = _values(source, result, function)
    key = hashlib.sha256(exact.tobytes() + free.tobytes()).digest()
    if key not in _found:
        _found[key] = _segments(exact, knots, free)
        while len(_found) > _KEPT:
            _found.popitem(last=False)
    made = _found[key]
    if made is None:
        raise TooManySegments(
            f"a function of 16-bit operands that {MOST} tables follow within {WITHIN} step of the "
            f"result; got one with more bends; try 8-bit operands, or a smaller range"
        )
    return made


_KEPT = 64
_found: OrderedDict[bytes, list[Segment] | None] = OrderedDict()
"""By the function's values: a program is lowered several times."""


def _values(
    source: Quant, result: Quant, function: Function
) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """In steps from the result's zero point: what the program stores for each stored number, and
    the entry that a table has for it (one more, past the end); and which numbers there are not."""
    stored = torch.arange(LOW, LOW + COUNT + 1, dtype=torch.float64)
    real = at_borders(function, (stored * source.scale).float(), source.scale)
    exact = result.quantize(real).long() - result.zero_point
    unused = (stored < source.low) | (stored > source.high)
    return exact.numpy(), exact.clamp(LOW, -LOW - 1).numpy(), unused.numpy()


def _segments(exact: Numbers, knots: Numbers, free: npt.NDArray[np.bool_]) -> list[Segment] | None:
    if _reach(exact, knots, free, 0, 1, COUNT) == COUNT:
        return [Segment(LOW, 1, knots[::SPACING].astype(np.int16))]
    knots, free = knots.copy(), free.copy()
    found: list[Segment] = []
    at = 0
    while at < COUNT:
        if len(found) == MOST:
            return None
        reached = {zoom: _reach(exact, knots, free, at, zoom) for zoom in ZOOMS}
        zoom = max(reached, key=lambda z: (reached[z], -z))
        end = reached[zoom]
        entries = knots[np.minimum(at + SPACING // zoom * np.arange(ENTRIES), end)]
        if end == at:  # two tables go half of the way each
            zoom, middle = SPACING, (knots[at] + knots[at + 1]) // 2
            entries[1:] = knots[at] = middle
            free[at] = True
        found.append(Segment(at + LOW, zoom, entries.astype(np.int16)))
        at = end
    return found


def _reach(
    exact: Numbers,
    knots: Numbers,
    free: npt.NDArray[np.bool_],
    at: int,
    zoom: int,
    span: int | None = None,
) -> int:
    """Up to where a table from `at` on follows. Its last entry but one is the last that it needs,
    so that it is constant behind its range."""
    gap = SPACING // zoom
    end = min(at + (span or COUNT // zoom - gap), COUNT)
    lines = knots[np.minimum(np.arange(at, end + 2 * gap, gap), COUNT)]
    slopes = np.diff(lines)
    left, rest = np.divmod(np.arange(end - at), gap)
    sums = lines[left] * gap + slopes[left] * rest
    off = np.abs((2 * sums + gap) // (2 * gap) - exact[at:end])
    wrong = (off > WITHIN) & ~free[at:end] | (np.abs(slopes[left]) > STEEPEST)
    return at + gap * int(left[wrong.argmax()]) if wrong.any() else end


__all__ = ["Segment", "TooManySegments", "segments"]
