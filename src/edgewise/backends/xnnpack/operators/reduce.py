"""How a sum, a mean or a maximum over any dimensions is computed.

XNNPACK has pooling and products, no general reduction. The reduced dimensions are taken
where they lie in memory: neighbours form one run, and each run, from the innermost
outwards, is one pooling of [..., run, 1, rest], or, if nothing lies behind it, a fully
connected node with one output (mean) or a pooling of the transposed tensor (maximum).
Nothing else is transposed. Results keep the reduced dimensions with size one.

Measured, two threads, against pooling and the portable kernel (us): the mean of 768 numbers
in each of 197 rows by a fully connected node 20, 176, 43; of 16384 in 64 rows 159, 1090,
293; the maximum of 768 in 197 rows by pooling the transposed tensor 40, portable 364.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from edgewise.backends.xnnpack.lowering.builder import Ref
from edgewise.backends.xnnpack.lowering.graph import KEEP_DIMS
from edgewise.backends.xnnpack.lowering.table import Lowering
from edgewise.backends.xnnpack.operators.normalization import mean_of_last
from edgewise.backends.xnnpack.operators.windows import pad, pool
from edgewise.edge.graph import Dim
from edgewise.edge.orders import identity
from edgewise.edge.sizes import symbolic_sizes

MOST_WEIGHTS = 512
"""Most weights of one fully connected node that takes a mean. Longer rows are cut in pieces of
equal length and the means of these are taken, which also keeps digits that a long sum loses;
those that cannot be are pooled."""
MOST_WINDOW = 8192
"""Most rows of a pooling window; more are cut into columns."""


def mean_over(to: Lowering, x: Ref, dims: Collection[int]) -> Ref:
    """The mean over the logical dimensions, which stay with size one."""
    if symbolic_sizes(x.shape) > 1 and len(dims) == 2 < x.rank:
        # Pooled where they lie, without a reshape: that could not infer several sizes.
        rest = [d for d in range(x.rank) if d not in dims]
        x = to.b.in_order(x, (*rest[:-1], *sorted(dims), rest[-1]))
    for first, last in reversed(_runs(x, dims)):
        x = _mean_of_run(to, x, first, last)
    return x


def sum_over(to: Lowering, x: Ref, dims: Collection[int]) -> Ref:
    """The sum over dimensions of static sizes: their number times the mean."""
    count = math.prod(size_in(x, dims))
    return to.b.scale(mean_over(to, x, dims), float(count))


def max_over(to: Lowering, x: Ref, dims: Collection[int]) -> Ref:
    """The maximum over dimensions of static sizes."""
    for first, last in reversed(_runs(x, dims)):
        x = _max_of_run(to, x, first, last)
    return x


def min_over(to: Lowering, x: Ref, dims: Collection[int]) -> Ref:
    return to.b.unary("Negate", max_over(to, to.b.unary("Negate", x), dims))


def without(to: Lowering, x: Ref, dims: Collection[int]) -> Ref:
    """x without dimensions of size one."""
    return to.b.view(x, [s for d, s in enumerate(x.shape) if d not in dims])


def size_in(x: Ref, dims: Collection[int]) -> list[Dim]:
    return [x.shape[d] for d in dims]


def _runs(x: Ref, dims: Collection[int]) -> list[tuple[int, int]]:
    """First and last axis in memory of each run of reduced dimensions."""
    found: list[tuple[int, int]] = []
    is_open = False
    for axis, dim in enumerate(x.perm):
        if x.value.dims[axis] == 1:
            continue
        if dim in dims:
            first = found.pop()[0] if is_open else axis
            found.append((first, axis))
        is_open = dim in dims
    return found


def as_it_lies(x: Ref) -> Ref:
    """x with its dimensions in the order of memory."""
    return Ref(x.value, identity(x.rank))


def named(lying: Ref, perm: Sequence[int]) -> Ref:
    """The converse: what lies under the names that its dimensions have, in order, in `perm`."""
    return Ref(lying.value, tuple(perm[i] for i in lying.perm))


def _shaped(to: Lowering, x: Ref, dims: Sequence[Dim]) -> Ref:
    """x viewed and laid out as `dims`."""
    return to.b.in_order(to.b.view(x, dims), identity(len(dims)))


def _reduced(to: Lowering, x: Ref, result: Ref, first: int, last: int) -> Ref:
    """The result of a run under x's dimensions, the run's with size one."""
    dims = [1 if first <= i <= last else size for i, size in enumerate(x.value.dims)]
    return named(to.b.view(result, dims), x.perm)


def _cut(x: Ref, first: int, last: int) -> tuple[list[Dim], Dim, Dim]:
    """Sizes before the run, of the run, and behind it."""
    dims = x.value.dims
    before, run, behind = dims[:first], dims[first : last + 1], dims[last + 1 :]
    few: Sequence[Dim] = before if len(before) <= 3 else [math.prod(before)]
    return list(few), math.prod(run), math.prod(behind)


def _mean_of_run(to: Lowering, x: Ref, first: int, last: int) -> Ref:
    lying = as_it_lies(x)
    before, run, behind = _cut(x, first, last)
    pieces = _pieces(run) if behind == 1 and isinstance(run, int) else None
    if pieces is not None:
        rest = run
        for piece in pieces[:-1]:
            rest //= piece
            lying = mean_of_last(to, to.b.view(lying, [*before, rest, piece]))
            lying = to.b.view(lying, [*before, rest])
        if len(pieces) == 1 and not first == last == x.rank - 1:
            lying = to.b.view(lying, [*before, run])
        return _reduced(to, x, mean_of_last(to, lying), first, last)
    dims = x.value.dims
    window = {x.rank - 3, x.rank - 2}
    pooled = {i for i in range(first, last + 1) if dims[i] != 1}
    if x.rank < 3 or not pooled <= window or any(dims[i] != 1 for i in window - pooled):
        lying = _shaped(to, lying, [*(before or [1]), run, 1, behind])
    *lead, _, _, channels = lying.value.dims
    shape = (*lead, 1, 1, channels)
    value = to.b.node("GlobalAvgPooling2d", [lying.value], shape, x.dtype, flags=KEEP_DIMS)
    return _reduced(to, x, Ref(value, identity(len(shape))), first, last)


def _pieces(run: int) -> list[int] | None:
    """Lengths of at most MOST_WEIGHTS whose product is the run's, the longest that fit first; None
    if there are none."""
    pieces: list[int] = []
    while run > MOST_WEIGHTS:
        counts = range(-(-run // MOST_WEIGHTS), run // 2 + 1)
        piece = next((run // count for count in counts if run % count == 0), None)
        if piece is None:
            return None
        pieces.append(piece)
        run //= piece
    return [*pieces, run]


def _max_of_run(to: Lowering, x: Ref, first: int, last: int) -> Ref:
    _, run, behind = _cut(x, first, last)
    before = math.prod(x.value.dims[:first])
    assert isinstance(run, int)
    lying = _shaped(to, as_it_lies(x), [before, run, behind])
    if not isinstance(behind, int):
        # XNNPACK 20241108 goes on with the channels that a pooling first had.
        lying = to.b.permute(lying, (0, 2, 1))
        lying = to.b.in_order(lying, identity(3))
        before, behind = before * behind, 1
        lying = _shaped(to, lying, [before, run, 1])
    elif behind == 1 and isinstance(before, int):
        # The window's columns are contiguous in [1, run, before].
        lying = to.b.permute(lying, (2, 1, 0))
        lying = to.b.in_order(lying, identity(3))
        before, behind = behind, before
    rows, columns = run, 1
    if run > MOST_WINDOW:
        columns = -(-run // MOST_WINDOW)
        rows = -(-run // columns)
        lying = pad_after(to, lying, 1, rows * columns - run, -math.inf)
    lying = _shaped(to, lying, [before, rows, columns, behind])
    value = pool(to, "MaxPooling2d", lying.value, (before, 1, 1, behind), (rows, columns))
    return _reduced(to, x, Ref(value, identity(4)), first, last)


def pad_after(to: Lowering, x: Ref, dim: int, amount: int, number: float) -> Ref:
    """x with `amount` times the number put behind it along a logical dimension."""
    return x if amount == 0 else pad(to, x, {dim: (0, amount)}, number)
