"""Orders of dimensions in memory, and what a view makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from edgewise.edge.graph import Dim
from edgewise.edge.sizes import groups, same

Perm = tuple[int, ...]

NHWC: Perm = (0, 2, 3, 1)

S = TypeVar("S")


def identity(rank: int) -> Perm:
    return tuple(range(rank))


def by_dimension(sizes: Sequence[S], perm: Perm) -> tuple[S, ...]:
    """Sizes that lie as `perm`, in the order of dimensions."""
    return tuple(sizes[perm.index(dim)] for dim in range(len(perm)))


def permuted(perm: Perm, dims: Sequence[int]) -> Perm:
    """How a tensor laid out as `perm` lies after torch's `permute(dims)`: nothing moves."""
    return tuple(list(dims).index(dim) for dim in perm)


def order_that_matters(perm: Perm, shape: Sequence[Dim]) -> list[int]:
    """Dimensions of size one may lie anywhere."""
    return [d for d in perm if shape[d] != 1]


def perm_after_view(shape: Sequence[Dim], perm: Perm, target: Sequence[Dim]) -> Perm | None:
    """Order of the target's dimensions if x, laid out as `perm`, is viewed as `target`.

    Source and target dimensions fall into the smallest groups of equal product. A
    group that merges or splits dimensions needs those that matter to be neighbours in
    memory, in logical order; otherwise None, and None where symbols hide the groups.
    """
    found = groups(shape, target)
    if found is None:
        return None
    memory = order_that_matters(perm, shape)
    position = {dim: i for i, dim in enumerate(memory)}
    blocks: list[tuple[int, list[int]]] = []
    ones: list[int] = []
    for sources, targets in found:
        real = [d for d in sources if shape[d] != 1]
        if not real:
            ones += targets
            continue
        first = position[real[0]]
        if [position.get(d) for d in real] != list(range(first, first + len(real))):
            return None
        blocks.append((first, targets))
    order = [d for _, targets in sorted(blocks) for d in targets]
    kept = _keeping_dims([shape[d] for d in perm], order, ones, target)
    if kept is not None:
        return kept
    for dim in reversed(ones):
        # Next to the dimension that follows, so that plain orders stay plain.
        order.insert(order.index(dim + 1) if dim + 1 in order else len(order), dim)
    return tuple(order)


def _keeping_dims(
    dims: Sequence[Dim], order: Sequence[int], ones: Sequence[int], target: Sequence[Dim]
) -> Perm | None:
    """The order in which the target has the very dims that lie in memory, if there is one."""
    if len(dims) != len(target):
        return None
    real, free = list(order), list(ones)
    found = []
    for size in dims:
        source = free if size == 1 and free else real
        if not source or not same(target[source[0]], size):
            return None
        found.append(source.pop(0))
    return tuple(found)
