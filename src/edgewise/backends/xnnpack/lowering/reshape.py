"""Reshapes with more than one symbolic size in the result.

XNNPACK's reshape infers at most one size. Others can be had without it as long as what
is symbolic stays whole: sizes of one come with a broadcast and go, in pairs, with a mean
over them; static sizes are merged and split by cutting along one dimension and joining
the pieces along another. `plan` finds the steps on logical shapes, so that the same
answer holds for whatever order the tensor lies in; the builder takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.edge.graph import Dim
from edgewise.edge.sizes import groups, is_symbolic, same_sizes, shown, symbolic_sizes

MAX_PIECES = 64
"""Most pieces that one dimension is cut into; beyond it a partition of its own is faster."""


class OutOfReach(ValueError):
    """A shape that no node of XNNPACK can make."""


@dataclass(frozen=True)
class Insert:
    """A new first dimension of size one."""


@dataclass(frozen=True)
class Drop:
    """Two dimensions of size one disappear. first < second."""

    first: int
    second: int


@dataclass(frozen=True)
class Merge:
    """The elements of `outer` move in front of those of `inner`; `outer` keeps size one."""

    outer: int
    inner: int


@dataclass(frozen=True)
class Split:
    """`dim` becomes `count` (where it was) and the rest (after it)."""

    dim: int
    count: int


Step = Insert | Drop | Merge | Split


def refusal(shape: Sequence[Dim], target: Sequence[Dim]) -> str | None:
    """What is asked for, if a tensor of this shape cannot be viewed as `target`; else None."""
    if symbolic_sizes(target) <= 1 or same_sizes(shape, target):
        return None
    return f"{shown(shape)} to {shown(target)}" if plan(shape, target) is None else None


def plan(shape: Sequence[Dim], target: Sequence[Dim]) -> list[Step] | None:
    """Steps to a shape that differs from `target` only in where sizes of one stand.

    None if there are none.
    """
    found = groups(shape, target)
    if found is None:
        return None
    sizes = list(shape)
    steps: list[Step] = []
    for sources, targets in reversed(found):
        left = [d for d in sources if shape[d] != 1]
        right = [target[d] for d in targets if target[d] != 1]
        if len(left) <= 1 and len(right) <= 1:
            continue
        if any(is_symbolic(shape[d]) for d in left) or any(is_symbolic(s) for s in right):
            return None
        if not _regroup(sizes, left, right, steps):
            return None
    return steps if _settle_ones(sizes, sum(1 for s in target if s == 1), steps) else None


def _regroup(sizes: list[Dim], left: list[int], right: list[Dim], steps: list[Step]) -> bool:
    """Static dimensions `left` become one, and that the sizes `right`; False if it is too much."""
    while len(left) > 1:
        outer, inner = left[-2:]
        count = sizes[outer]
        if not isinstance(count, int) or count > MAX_PIECES:
            return False
        steps.append(Merge(outer, inner))
        sizes[outer], sizes[inner] = 1, sizes[inner] * count
        left = [*left[:-2], inner]
    dim = left[0]
    for count in right[:-1]:
        whole = sizes[dim]
        assert isinstance(count, int) and isinstance(whole, int)
        if count > MAX_PIECES or len(sizes) == MAX_RANK:
            return False
        steps.append(Split(dim, count))
        sizes[dim : dim + 1] = [count, whole // count]
        dim += 1
    return True


def _settle_ones(sizes: list[Dim], wanted: int, steps: list[Step]) -> bool:
    ones = sum(1 for s in sizes if s == 1)
    while ones < wanted or (ones - wanted) % 2:
        if len(sizes) == MAX_RANK:
            return False
        steps.append(Insert())
        sizes.insert(0, 1)
        ones += 1
    while ones > wanted:
        first, second = [d for d, s in enumerate(sizes) if s == 1][-2:]
        steps.append(Drop(first, second))
        del sizes[second], sizes[first]
        ones -= 2
    return True
