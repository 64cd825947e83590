"""Numbers that a definition asks of shapes, which dynamic shapes may not tell."""

from __future__ import annotations

from collections.abc import Iterable

from edgewise.edge.graph import Dim
from edgewise.edge.sizes import shown
from edgewise.errors import EdgewiseError


class NeedsNumber(EdgewiseError):
    """A definition computes with a size that is symbolic."""


def number(size: Dim) -> int:
    """The size. NeedsNumber if it is symbolic."""
    return numbers([size])[0]


def numbers(sizes: Iterable[Dim]) -> tuple[int, ...]:
    """The sizes. NeedsNumber if one is symbolic."""
    given = tuple(sizes)
    known = tuple(size for size in given if isinstance(size, int))
    if len(known) != len(given):
        raise NeedsNumber(f"sizes must be numbers; got {shown(given)}")
    return known
