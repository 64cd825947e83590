"""Parts of tensors repeated and put beside each other, for several operators."""

from __future__ import annotations

import math

import torch

from edgewise.backends.xnnpack.lowering.builder import Ref
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.table import Lowering
from edgewise.backends.xnnpack.operators.reduce import as_it_lies, named
from edgewise.edge.graph import Dim
from edgewise.edge.indices import pattern

MOST_PIECES = 64
"""That a tensor is put together from."""

# A product with ones repeats: it broadcasts, and keeps -0.0, infinities and NaN.


def repeat_each(to: Lowering, x: Ref, times: dict[int, int]) -> Ref:
    """Every element `times[dim]` times in a row along the logical dimensions named."""
    return _repeated(to, x, times, inner=True)


def repeat_whole(to: Lowering, x: Ref, times: dict[int, int]) -> Ref:
    """The whole extent `times[dim]` times one after the other."""
    return _repeated(to, x, times, inner=False)


def _repeated(to: Lowering, x: Ref, times: dict[int, int], inner: bool) -> Ref:
    """One dimension after the other where all at once would be more than XNNPACK's limit."""
    times = {dim: n for dim, n in times.items() if n != 1}
    while times:
        now = dict(list(times.items())[: max(MAX_RANK - x.rank, 0)])
        if not now:
            dim, n = times.popitem()
            x = _repeated_flat(to, x, dim, n, inner)
            continue
        x = _repeated_at_once(to, x, now, inner)
        times = {dim: n for dim, n in times.items() if dim not in now}
    return x


def _repeated_at_once(to: Lowering, x: Ref, times: dict[int, int], inner: bool) -> Ref:
    split: list[Dim] = []
    ones: list[int] = []
    joined: list[Dim] = []
    for dim, size in zip(x.perm, x.value.dims, strict=True):
        n = times.get(dim, 1)
        joined.append(size * n)
        if n == 1:
            split.append(size)
            ones.append(1)
        else:
            split += [size, 1] if inner else [1, size]
            ones += [1, n] if inner else [n, 1]
    lying = to.b.view(as_it_lies(x), split)
    wide = to.b.binary("Multiply", lying, torch.ones(ones, dtype=x.dtype))
    return named(to.b.view(wide, joined), x.perm)


def _repeated_flat(to: Lowering, x: Ref, dim: int, n: int, inner: bool) -> Ref:
    """For tensors of many dimensions: those around the repeated one are merged."""
    dims, axis = x.value.dims, x.perm.index(dim)
    before, behind = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    flat = to.b.view(as_it_lies(x), [before, dims[axis], behind])
    wide = _repeated_at_once(to, flat, {1: n}, inner)
    joined = [*dims[:axis], dims[axis] * n, *dims[axis + 1 :]]
    return named(to.b.view(wide, joined), x.perm)


def join(to: Lowering, parts: list[Ref], dim: int) -> Ref:
    """The parts one after the other, in the layout of the first."""
    perm = parts[0].perm
    values = [to.b.in_order(part, perm).value for part in parts]
    return parts[0] if len(parts) == 1 else Ref(to.b.concatenate(values, perm.index(dim)), perm)


def take(to: Lowering, x: Ref, dim: int, index: list[int]) -> Ref:
    """x at the indices of one dimension."""
    size = x.shape[dim]
    assert isinstance(size, int)
    found = pattern(index, size)
    if found.period == size:
        return _joined(to, x, dim, found.stretches)
    # Each period is a row of its own.
    axis, dims = x.perm.index(dim), x.value.dims
    before, behind = dims[:axis], dims[axis + 1 :]
    if x.rank == MAX_RANK and len(before) > 1:
        before = (math.prod(before),)
    elif x.rank == MAX_RANK:
        behind = (math.prod(behind),)
    rows = to.b.view(as_it_lies(x), (*before, size // found.period, found.period, *behind))
    taken = _joined(to, rows, len(before) + 1, found.stretches)
    joined = (*dims[:axis], len(index), *dims[axis + 1 :])
    return named(to.b.view(to.b.in_order(taken, rows.perm), joined), x.perm)


def _joined(to: Lowering, x: Ref, dim: int, stretches: list[tuple[int, int, int]]) -> Ref:
    if len(stretches) > 4 and x.perm[-1] == dim:
        # Elements of the innermost dimension would be copied one by one.
        x = to.b.in_order(x, (dim, *(d for d in x.perm if d != dim)))
    parts = [
        repeat_each(to, to.b.slice(x, dim, start, length), {dim: times})
        for start, length, times in stretches
    ]
    return join(to, parts, dim)
