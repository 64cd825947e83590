"""Images in another size."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT32, INT48, Tensor
from edgewise.backends.ethosu.lowering.values import Real, Sums
from edgewise.backends.ethosu.operators.selection import take
from edgewise.backends.ethosu.operators.shape import MOST_PIECES, moved, sizes
from edgewise.edge.graph import fake
from edgewise.edge.orders import NHWC, identity
from edgewise.partition.constraints import SCALE_BY_SIZES
from edgewise.quantize.patterns import SAME_SCALE
from edgewise.quantize.resampling import Resampling

aten = torch.ops.aten


def _resize(
    b: Builder, t: Tensor, after: tuple[int, int], bilinear: bool, corners: bool = False
) -> tuple[Tensor, int]:
    """[N, C, H, W] in another size, and how many times too large its numbers are.

    corners: centres of the pixels at the corners stay where they are.
    """
    t = b.in_order(t, NHWC)
    scale, offset, border, factor = [], [], [], 1
    for before, size in zip(t.dims[1:3], after, strict=True):
        n, d = _fraction(before, size, corners)
        # Centres of pixels on each other; or TOSA's nearest, half a pixel off, made a floor.
        shift = 0 if corners else d - n if bilinear else 1 - n
        scale += [2 * n, 2 * d]
        offset.append(shift)
        border.append((size - 1) * 2 * d - (before - 1) * 2 * n + shift)
        factor *= 2 * n if bilinear else 1
    dtype = t.dtype
    if bilinear:
        dtype = INT32 if t.dtype == INT8 else INT48
    made = b.tosa.add(
        "RESIZE",
        [t, b.tosa.shape(scale), b.tosa.shape(offset), b.tosa.shape(border)],
        [t.dims[0], *after, t.dims[3]],
        dtype,
        NHWC,
        mode=b.tosa.enum("ResizeMode", "BILINEAR" if bilinear else "NEAREST"),
    )
    return made, factor


def _fraction(before: int, after: int, corners: bool) -> tuple[int, int]:
    """By how much a dimension grows."""
    if corners:
        if after == 1 or before == 1:
            return 1, 1
        before, after = before - 1, after - 1
    common = math.gcd(before, after)
    return after // common, before // common


def _repeated(b: Builder, t: Tensor, after: tuple[int, int]) -> Tensor:
    """Every row and column several times, by copies beside each other."""
    for dim, size in zip((2, 3), after, strict=True):
        t = b.in_order(t, NHWC)
        times, axis = size // t.shape[dim], t.axis(dim)
        if times == 1:
            continue
        dims = list(t.dims)
        before, behind = math.prod(dims[: axis + 1]), math.prod(dims[axis + 1 :])
        flat = b.reshaped_to(t, [before, 1, behind], identity(3))
        beside = b.tosa.add("CONCAT", [flat] * times, [before, times, behind], t.dtype, axis=1)
        dims[axis] *= times
        t = b.reshaped_to(beside, dims, NHWC)
    return t


def _nearest(to: Lowering, node: Node, args: Args) -> Value:
    after = sizes(node)[2:]
    before = sizes(node.args[0])[2:]  # type: ignore[arg-type]
    whole = all(a % n == 0 for a, n in zip(after, before, strict=True))

    def move(t: Tensor) -> Tensor:
        pair = (after[0], after[1])
        if whole:
            return _repeated(to.b, t, pair)
        if to.family == "U85":
            return _resize(to.b, t, pair, False)[0]
        for dim, (size, n) in enumerate(zip(pair, before, strict=True), 2):
            t = take(to, t, dim, [i * n // size for i in range(size)])
        return t

    return moved(node, to.value(node.args[0]), move)


def _bilinear(to: Lowering, node: Node, args: Args) -> Real:
    x, after = to.stored(node.args[0]), sizes(node)[2:]
    # Without the zero point, of which the weights' sum would be another multiple.
    made, factor = _resize(to.b, x.tensor, (after[0], after[1]), True, bool(args["align_corners"]))
    if x.quant.zero_point:
        made = to.b.binary("SUB", made, to.b.number(x.quant.zero_point * factor, made))
    return Sums(made, (x.quant.scale / factor,))


def _whole_times(q: Ask) -> str | None:
    before, after = fake(q.node.all_input_nodes[0]).shape[2:], fake(q.node).shape[2:]
    if q.target.family == "U85" or all(a % b == 0 for a, b in zip(after, before, strict=True)):
        return None
    if max(int(size) for size in after) <= MOST_PIECES:
        return None
    return f"{list(before)} to {list(after)}"


def _few_steps(q: Ask) -> str | None:
    """TOSA's scale is a fraction of at most 11 bits, and at least a sixteenth."""
    before, after = fake(q.node.all_input_nodes[0]).shape[2:], fake(q.node).shape[2:]
    for b, a in zip(before, after, strict=True):
        if not _is_simple(int(b), int(a), bool(q.args.get("align_corners"))):
            return f"{b} to {a}"
    return None


def _is_simple(before: int, after: int, corners: bool) -> bool:
    n, d = _fraction(before, after, corners)
    return 2 * n <= 2**11 and d < 16 * n


def is_resampled(call: Resampling, family: str) -> bool:
    """Whether the NPU does it, so that the quantizer leaves the call whole."""
    pairs = list(zip(call.before, call.after, strict=True))
    if not call.is_by_sizes or not all(_is_simple(b, a, call.align_corners) for b, a in pairs):
        return False
    if call.target is aten.upsample_bilinear2d.vec:
        return family == "U85"
    small = all(a % b == 0 for b, a in pairs) or max(call.after) <= MOST_PIECES
    return call.target is aten.upsample_nearest2d.vec and (family == "U85" or small)


_FRACTION = Constraint("scales that are fractions of at most 11 bits", _few_steps)
define(
    "upsample_nearest2d",
    (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default),
    _nearest,
    (
        Constraint("images", lambda q: None if fake(q.node).dim() == 4 else "no image"),
        Constraint(
            f"whole multiples of the size, or at most {MOST_PIECES} rows and columns, "
            f"except on U85",
            _whole_times,
        ),
        SCALE_BY_SIZES,
        _FRACTION,
    ),
    reads=ANY,
    keep=True,
    also="whole multiples by copies, others than U85 by slices",
    quantization=SAME_SCALE,
)
define(
    "upsample_bilinear2d",
    (aten.upsample_bilinear2d.vec, aten.upsample_bilinear2d.default),
    _bilinear,
    (SCALE_BY_SIZES, _FRACTION),
    keep=True,
    only=("U85",),
    why="resizing needs its RESIZE operation",
    quantization=SAME_SCALE,
)
