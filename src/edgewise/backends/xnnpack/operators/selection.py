"""Choices by constant masks and by constant indices.

A choice is a minimum and a maximum: `min(x, inf)` is x and `min(x, -inf)` is -inf, so
`where(mask, x, y)` is `max(min(x, H), min(y, -H))` with H inf where the mask holds and
-inf elsewhere. Infinities of the branch that is not chosen stay out, as they would not in
`x * mask`. NaN of the chosen branch may be lost: see `maximum`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering import reshape
from edgewise.backends.xnnpack.lowering.accuracy import NAN_AMONG
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    Constraint,
    Lowering,
    Query,
    constant,
    define,
    equals,
    static_dim,
)
from edgewise.backends.xnnpack.operators.pieces import MOST_PIECES, join, take
from edgewise.edge.graph import shape_of
from edgewise.edge.indices import pattern
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten
Args = dict[str, Any]


def _where(to: Lowering, node: Node, args: Args) -> Operand:
    mask = to.tensor(args["condition"])
    a, b = to.operand(args["self"]), to.operand(args["other"])
    if isinstance(a, torch.Tensor):
        assert isinstance(b, Ref)
        a, b, mask = b, a, ~mask
    if isinstance(b, torch.Tensor):
        return _or_constant(to, a, mask, b)
    high = _signed(mask, a.dtype)
    left, right = to.b.binary("Minimum", a, high), to.b.binary("Minimum", b, -high)
    return to.b.binary("Maximum", left, right)


def _signed(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(mask.shape, math.inf, dtype=dtype).masked_fill(~mask, -math.inf)


def _or_constant(to: Lowering, x: Ref, mask: torch.Tensor, other: torch.Tensor) -> Ref:
    """x where the mask holds, the constant elsewhere: between two bounds."""
    other = other.to(x.dtype)
    high = torch.where(mask, torch.tensor(math.inf, dtype=x.dtype), other)
    low = torch.where(mask, torch.tensor(-math.inf, dtype=x.dtype), other)
    lifts = bool((low > -math.inf).any())
    # The bound that does nothing is left out; one stays, for the mask may widen the result.
    result = x if lifts and not bool((high < math.inf).any()) else to.b.binary("Minimum", x, high)
    if lifts:
        result = to.b.binary("Maximum", result, low)
    return result


define(
    "where",
    (aten.where.self,),
    _where,
    (constant("condition"),),
    typed_constants=False,
    also="minimum and maximum with infinities",
    deviations=(NAN_AMONG,),
)


# --- constant indices --------------------------------------------------------------------


def _index_list(index: torch.Tensor, size: int) -> list[int]:
    return [int(i) % size for i in index.reshape(-1)]


def _few_pieces(index: torch.Tensor, size: Any) -> str | None:
    if not isinstance(size, int):
        return f"a size of {size}"
    if index.numel() == 0 or index.dtype == torch.bool:
        return f"{list(index.shape)} of {index.dtype}"
    found = len(pattern(_index_list(index, size), size).stretches)
    return None if found <= MOST_PIECES else f"{found}"


def _index_select(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    size = x.shape[dim]
    assert isinstance(size, int)
    return take(to, x, dim, _index_list(to.tensor(args["index"]), size))


def _constant_index(q: Query) -> str | None:
    if q.args["index"] not in q.constants:
        return f"index is computed by {q.args['index']}"
    shape = shape_of(q.args["self"])
    if not shape:
        return "0-D"
    return _few_pieces(q.constants.tensor(q.args["index"]), shape[q.args["dim"] % len(shape)])


RANGES = f"constant indices of at most {MOST_PIECES} ranges"

define(
    "index_select",
    (aten.index_select.default,),
    _index_select,
    (Constraint(RANGES, _constant_index),),
    keep=True,
    typed_constants=False,
    also="slices, concatenated",
)


def _indexed(indices: list[Any]) -> list[tuple[int, Node]]:
    return [(d, i) for d, i in enumerate(indices) if i is not None]


def _index(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    ((dim, index),) = _indexed(args["indices"])
    size = x.shape[dim]
    assert isinstance(size, int)
    wanted = to.tensor(index)
    taken = take(to, x, dim, _index_list(wanted, size))
    return to.b.view(taken, (*x.shape[:dim], *wanted.shape, *x.shape[dim + 1 :]))


def _one_constant_index(q: Query) -> str | None:
    found = _indexed(q.args["indices"])
    if len(found) != 1:
        return f"{len(found)} indexed dimensions"
    ((dim, index),) = found
    if index not in q.constants:
        return f"indices computed by {index}"
    return _few_pieces(q.constants.tensor(index), shape_of(q.args["self"])[dim])


define(
    "index",
    (aten.index.Tensor,),
    _index,
    (Constraint(f"one dimension, {RANGES}", _one_constant_index),),
    typed_constants=False,
    also="slices, concatenated",
)


def _roll(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    shape, dims = x.shape, args["dims"]
    if not dims:
        x, dims = to.b.view(x, [math.prod(shape)]), [0]
    for dim, shift in zip(dims, args["shifts"], strict=True):
        dim %= x.rank
        size = x.shape[dim]
        assert isinstance(size, int)
        cut = -shift % size
        if cut:
            parts = [to.b.slice(x, dim, cut, size - cut), to.b.slice(x, dim, 0, cut)]
            x = join(to, parts, dim)
    return to.b.view(x, shape)


def _static_roll(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    rolled = [shape[d] for d in q.args["dims"]] if q.args["dims"] else list(shape)
    numbers = [*rolled, *q.args["shifts"]]
    if all(isinstance(n, int) for n in numbers):
        return None
    return f"shifts={q.args['shifts']}, dims={q.args['dims']} of {list(map(str, shape))}"


define(
    "roll",
    (aten.roll.default,),
    _roll,
    (Constraint("static sizes and shifts", _static_roll),),
    keep=True,
    also="two slices, concatenated",
    quantization=SAME_SCALE,
)


def _unfold(to: Lowering, node: Node, args: Args) -> Operand:
    """Windows that overlap: what they have of a step, beside what they have of the next one."""
    x = to.ref(args["self"])
    dim, size, step = args["dimension"] % x.rank, args["size"], args["step"]
    length = x.shape[dim]
    assert isinstance(length, int)
    count = (length - size) // step + 1
    if count < _steps(size, step):
        each = [_as_rows(to, to.b.slice(x, dim, i * step, size), dim, 1) for i in range(count)]
        return join(to, each, dim)
    parts = []
    for first in range(0, size, step):
        width = min(step, size - first)
        whole = count if first + count * step <= length else count - 1
        rows = []
        if whole:
            steps = _as_rows(to, to.b.slice(x, dim, first, whole * step), dim, whole)
            rows.append(to.b.slice(steps, x.rank, 0, width) if width < step else steps)
        if whole < count:  # what is behind the last window is less than a step
            last = to.b.slice(x, dim, first + whole * step, width)
            rows.append(_as_rows(to, last, dim, 1))
        parts.append(join(to, rows, dim))
    return join(to, parts, parts[0].rank - 1)


def _as_rows(to: Lowering, x: Ref, dim: int, count: int) -> Ref:
    """A dimension as so many rows, whose elements become the last dimension."""
    size = x.shape[dim]
    assert isinstance(size, int)
    rows = to.b.view(x, (*x.shape[:dim], count, size // count, *x.shape[dim + 1 :]))
    return to.b.permute(rows, [*(d for d in range(rows.rank) if d != dim + 1), dim + 1])


def _steps(size: int, step: int) -> int:
    return -(-size // step)


def _few_windows(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    if not shape:
        return "no dimensions"
    length, size, step = shape[q.args["dimension"]], q.args["size"], q.args["step"]
    if not isinstance(length, int):
        return f"size {length}"
    pieces = min((length - size) // step + 1, _steps(size, step))
    return None if pieces <= MOST_PIECES else f"{pieces}"


_FEWEST = 16
"""Elements of a step that are copied at once: pieces of fewer take longer than the kernel does."""


def _long_steps(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    if not shape:
        return "no dimensions"
    behind = shape[q.args["dimension"] % len(shape) + 1 :]
    count = min(q.args["step"], q.args["size"]) * math.prod(n for n in behind if isinstance(n, int))
    return None if count >= _FEWEST else f"{count}"


define(
    "unfold_copy",
    (aten.unfold_copy.default,),
    _unfold,
    (
        Constraint(
            f"windows of a static size, at most {MOST_PIECES} or of as many steps", _few_windows
        ),
        Constraint(f"steps of at least {_FEWEST} elements", _long_steps),
    ),
    keep=True,
    also="slices, concatenated",
    quantization=SAME_SCALE,
)


def _flip(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    for dim in args["dims"] if x.rank else ():
        size = x.shape[dim % x.rank]
        assert isinstance(size, int)
        x = take(to, x, dim % x.rank, list(range(size))[::-1])
    return x


def _short_flip(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    sizes = [shape[d] for d in q.args["dims"] if shape]
    return None if all(isinstance(s, int) and s <= MOST_PIECES for s in sizes) else f"{sizes}"


define(
    "flip",
    (aten.flip.default,),
    _flip,
    (Constraint(f"dimensions of at most {MOST_PIECES}", _short_flip),),
    also="slices, concatenated",
    quantization=SAME_SCALE,
)


def _with_part(to: Lowering, x: Ref, part: Ref, dim: int, start: int) -> Ref:
    """x with the part in the place of its own elements from `start` on."""
    part = to.b.convert(part, x.dtype)
    size, length = x.shape[dim], part.shape[dim]
    assert isinstance(size, int) and isinstance(length, int)
    parts = [part]
    if start > 0:
        parts.insert(0, to.b.slice(x, dim, 0, start))
    if start + length < size:
        parts.append(to.b.slice(x, dim, start + length, size - start - length))
    return join(to, parts, dim)


def _slice_scatter(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    size = x.shape[dim]
    assert isinstance(size, int)
    start, _, _ = slice(args["start"], None).indices(size)
    return _with_part(to, x, to.ref(args["src"]), dim, start)


def _select_scatter(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dim = args["dim"] % x.rank
    size = x.shape[dim]
    assert isinstance(size, int)
    part = to.b.view(to.ref(args["src"]), _with_ones(x.shape, dim))
    return _with_part(to, x, part, dim, args["index"] % size)


def _static_scatter(q: Query) -> str | None:
    shape, dim = shape_of(q.args["self"]), q.args["dim"]
    found = {"start": q.args["start"] or 0, "end": q.args["end"] or 0, "size": shape[dim]}
    return None if all(isinstance(v, int) for v in found.values()) else f"{found}"


def _with_ones(shape: Sequence[Any], dim: int) -> list[Any]:
    return [1 if d == dim % len(shape) else size for d, size in enumerate(shape)]


def _reshapable_part(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    return reshape.refusal(shape_of(q.args["src"]), _with_ones(shape, q.args["dim"]))


define(
    "slice_scatter",
    (aten.slice_scatter.default,),
    _slice_scatter,
    (equals("step", 1), Constraint("a static range of a static size", _static_scatter)),
    also="slices around the new part, concatenated",
)
define(
    "select_scatter",
    (aten.select_scatter.default,),
    _select_scatter,
    (static_dim(), Constraint("at most one symbolic size", _reshapable_part)),
    also="slices around the new part, concatenated",
)
