"""Sizes that may be symbolic, and what can be told of them.

A size is an int or an expression of the program's symbols. Two sizes are the same if
their expressions are: nothing is assumed of a symbol's value, so no guard is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sympy

from edgewise.edge.graph import Dim


def is_symbolic(size: Dim) -> bool:
    return not isinstance(size, int)


def symbolic_sizes(shape: Iterable[Dim]) -> int:
    """How many of the sizes are symbolic."""
    return sum(1 for size in shape if is_symbolic(size))


def same(a: Dim, b: Dim) -> bool:
    """Whether the sizes are equal whatever the symbols are, as far as can be told."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(a == b) or _no_difference(a, b)


def same_sizes(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def are_quotients(
    factors: Sequence[float | None] | None, before: Sequence[Dim], after: Sequence[Dim]
) -> bool:
    """Whether the factors by which images are resized, where they are given, are what their sizes
    say: 15 rows of 9 by 1.7 are 1.666... times as many, and `interpolate` steps by the factor."""
    known = factors or [None] * len(after)
    return all(
        f is None or (isinstance(a, int) and isinstance(b, int) and a == b * f)
        for a, b, f in zip(after, before, known, strict=True)
    )


@cache
def _no_difference(a: Dim, b: Dim) -> bool:
    return bool(sympy.expand(sympy.sympify(a) - sympy.sympify(b)) == 0)


@cache
def divides(a: Dim, b: Dim) -> bool:
    """Whether b is a multiple of a whatever the symbols are, as far as can be told."""
    if isinstance(a, int) and isinstance(b, int):
        return a != 0 and b % a == 0
    denominator = sympy.fraction(sympy.cancel(sympy.sympify(b) / sympy.sympify(a)))[1]
    return bool(denominator == 1)


def broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of an elementwise result, for shapes that go together.

    Of a number (not one) and a symbol, which export has shown to be equal, the number.
    """
    rank = max(len(a), len(b))
    left: Sequence[Dim] = (1,) * (rank - len(a)) + tuple(a)
    right: Sequence[Dim] = (1,) * (rank - len(b)) + tuple(b)
    found: list[Dim] = []
    for x, y in zip(left, right, strict=True):
        if x == 1 or (is_symbolic(x) and isinstance(y, int) and y != 1):
            found.append(y)
        elif isinstance(x, int) and isinstance(y, int) and y not in (1, x):
            raise ValueError(f"[broadcast] shapes must go together; got {shown(a)} and {shown(b)}")
        else:
            found.append(x)
    return tuple(found)


def groups(shape: Sequence[Dim], target: Sequence[Dim]) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of neighbouring dimensions with equal products: (sources, targets).

    None if that cannot be told.
    """
    found = []
    i = j = 0
    while i < len(shape) or j < len(target):
        sources: list[int] = []
        targets: list[int] = []
        a: Dim = 1
        b: Dim = 1
        if i < len(shape):
            a, i = shape[i], i + 1
            sources.append(i - 1)
        if j < len(target):
            b, j = target[j], j + 1
            targets.append(j - 1)
        while not same(a, b):
            smaller = _smaller(a, b)
            if smaller is None or (i == len(shape) if smaller else j == len(target)):
                return None
            if smaller:
                a, i = a * shape[i], i + 1
                sources.append(i - 1)
            else:
                b, j = b * target[j], j + 1
                targets.append(j - 1)
        found.append((sources, targets))
    return found


def _smaller(a: Dim, b: Dim) -> bool | None:
    """Whether a is the smaller of two different products; None if that cannot be told."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if divides(a, b):
        return True
    return False if divides(b, a) else None


def shown(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


# --- numbers for symbols ------------------------------------------------------------------

LARGEST_BOUND = 1 << 16
"""A bound above is none that anybody chose; the export's example says more."""


def symbol_values(
    shapes: Iterable[Sequence[Any]], ranges: Mapping[Any, Any] | None = None
) -> dict[Any, int]:
    """A number for each symbol in the shapes of fake tensors: its upper bound where it has one,
    else what it was in the export.

    ranges: the program's range_constraints; None: those of the symbols' environment.
    """
    found: dict[Any, int] = {}
    for shape in shapes:
        for size in shape:
            if isinstance(size, int):
                continue
            env = size.node.shape_env
            for symbol in size.node.expr.free_symbols:
                if symbol not in found:
                    known = env.var_to_range if ranges is None else ranges
                    found[symbol] = _value(symbol, known, env)
    return found


def _value(symbol: Any, ranges: Mapping[Any, Any], env: Any) -> int:
    known = ranges.get(symbol)
    hint = env.backed_var_to_val.get(symbol)
    upper = known.upper if known is not None else None
    if isinstance(upper, sympy.Integer) and upper <= LARGEST_BOUND:
        return int(upper)
    if hint is not None:
        return int(hint)
    return max(int(known.lower), 1) if known is not None else 1


def at(size: Dim, values: Mapping[Any, int]) -> int:
    """The size where the symbols have these values; 0 where there is none, for it divides by 0."""
    if isinstance(size, int):
        return size
    try:
        return int(size.xreplace({s: sympy.Integer(values[s]) for s in size.free_symbols}))
    except ZeroDivisionError:
        return 0
