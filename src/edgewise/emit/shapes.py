"""Shapes as the file holds them: numbers, with an upper bound where they are symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

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


def has_unbounded_inputs(program: ExportedProgram) -> bool:
    """Whether a caller may give tensors of any size: then no size has to have a bound."""
    shapes = [
        node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    ranges = program.range_constraints
    return any(upper_bounds(shape, ranges)[1] == DYNAMIC_UNBOUND for shape in shapes)


def _bound(size: Any, ranges: Mapping[Any, Any]) -> int | None:
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    expression = size.node.expr
    # Symbols that decompositions made are known to their shape environment only; there
    # `nonzero` and its kind are bounded by the number of elements that they are taken from.
    known = dict(ranges)
    for symbol in expression.free_symbols:
        found = size.node.shape_env.var_to_range.get(symbol)
        if found is not None and _finite(found.upper):
            mine = known.get(symbol, ValueRanges.unknown_int())
            known[symbol] = mine & found if _finite(mine.upper) else found
    # An infinite bound is no Integer, nor is one of a quotient that torch leaves as it is.
    upper = bound_sympy(expression, known).upper
    return int(upper) if _finite(upper) else None


def _finite(upper: Any) -> bool:
    return isinstance(upper, sympy.Integer) and bool(upper < _LIMIT)
