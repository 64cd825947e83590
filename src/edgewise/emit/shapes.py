"""Shapes as the file holds them: numbers, with an upper bound where they are symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

STATIC, DYNAMIC_BOUND, DYNAMIC_UNBOUND = 0, 1, 2

_LIMIT = 2**31 - 1


def upper_bounds(shape: Sequence[Any], ranges: Mapping[Any, Any]) -> tuple[list[int], int]:
    """Sizes (upper bounds where symbolic) and how dynamic they are.

    ranges: the program's range_constraints, a ValueRanges for each symbol.
    """
    sizes, dynamism = [], STATIC
    for size in shape:
        if isinstance(size, int):
            sizes.append(size)
            continue
        bound = _bound(size, ranges)
        if bound is None:
            sizes.append(0)
            dynamism = DYNAMIC_UNBOUND
        else:
            sizes.append(bound)
            dynamism = max(dynamism, DYNAMIC_BOUND)
    return sizes, dynamism


def _bound(size: Any, ranges: Mapping[Any, Any]) -> int | None:
    from torch.utils._sympy.value_ranges import bound_sympy

    # An infinite bound is no Integer, nor is one of a quotient that torch leaves as it is.
    upper = bound_sympy(size.node.expr, dict(ranges)).upper
    return int(upper) if isinstance(upper, sympy.Integer) and upper < _LIMIT else None
