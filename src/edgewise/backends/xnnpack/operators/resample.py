"""Images in another size, and tensors repeated."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import floating
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
)
from edgewise.backends.xnnpack.operators.pieces import MOST_PIECES, repeat_each, repeat_whole, take
from edgewise.backends.xnnpack.operators.volumes import NDHWC, as_images, as_rows, as_volumes
from edgewise.edge.graph import Dim, shape_of
from edgewise.edge.indices import pattern
from edgewise.edge.orders import NHWC
from edgewise.partition.constraints import SCALE_BY_SIZES
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten
Args = dict[str, Any]

ALIGN_CORNERS = 0x8
MOST_COPIES = 1 << 16


# --- repetition ----------------------------------------------------------------------------


def _expand(to: Lowering, node: Node, args: Args) -> Operand:
    x, shape = to.ref(args["self"]), shape_of(node)
    more = len(shape) - x.rank
    x = to.b.view(x, (*(1,) * more, *x.shape))
    return repeat_each(to, x, _copies(x.shape, shape))


def _copies(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> dict[int, int]:
    return {d: a for d, (b, a) in enumerate(zip(before, after, strict=True)) if b == 1 and a != 1}


def _few_copies(q: Query) -> str | None:
    before, after = shape_of(q.args["self"]), shape_of(q.node)
    before = (1,) * (len(after) - len(before)) + before
    sizes = [a for b, a in zip(before, after, strict=True) if b == 1 and a != 1]
    if not all(isinstance(s, int) for s in sizes):
        return f"{list(map(str, before))} to {list(map(str, after))}"
    return None if math.prod(sizes) <= MOST_COPIES else f"{math.prod(sizes)}"


define(
    "expand_copy",
    (aten.expand_copy.default,),
    _expand,
    (Constraint(f"at most {MOST_COPIES} copies, of static number", _few_copies),),
    sizes=("size",),
    also="a product with ones, which broadcasts",
    quantization=SAME_SCALE,
)


def _repeat(to: Lowering, node: Node, args: Args) -> Operand:
    x, times = to.ref(args["self"]), args["repeats"]
    x = to.b.view(x, (*(1,) * (len(times) - x.rank), *x.shape))
    return repeat_whole(to, x, dict(enumerate(times)))


def _few_repeats(q: Query) -> str | None:
    times = q.args["repeats"]
    if not all(isinstance(n, int) for n in times):
        return f"repeats={times}"
    return None if math.prod(times) <= MOST_COPIES else f"{math.prod(times)}"


define(
    "repeat",
    (aten.repeat.default,),
    _repeat,
    (Constraint(f"at most {MOST_COPIES} copies, of static number", _few_repeats),),
    also="a product with ones, which broadcasts",
    quantization=SAME_SCALE,
)


# --- resizing ------------------------------------------------------------------------------


def _resized(to: Lowering, x: Ref, height: Dim, width: Dim, args: Args) -> Ref:
    """An image whose channels are last in memory."""
    n, _, _, c = x.value.dims
    value = to.b.node(
        "StaticResizeBilinear2D",
        [x.value],
        (n, height, width, c),
        x.dtype,
        new_height=height,
        new_width=width,
        flags=ALIGN_CORNERS if args["align_corners"] else 0,
    )
    return Ref(value, NHWC)


def _bilinear(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.b.in_order(to.ref(args["input"]), NHWC)
    _, _, height, width = shape_of(node)
    return _resized(to, x, height, width, args)


def _linear(to: Lowering, node: Node, args: Args) -> Operand:
    """As images of one row."""
    x, after = to.ref(args["input"]), shape_of(node)
    rows = to.b.view(x, (*x.shape[:2], 1, x.shape[2]))
    image = _resized(to, to.b.in_order(rows, NHWC), 1, after[2], args)
    return to.b.view(image, after)


def _trilinear(to: Lowering, node: Node, args: Args) -> Operand:
    """Each layer as an image, then the layers as the rows of one image."""
    x, shape = to.b.in_order(to.ref(args["input"]), NDHWC), shape_of(node)
    n, before, *_ = x.value.dims
    depth, height, width = shape[2:]
    x = as_rows(to, _resized(to, as_images(to, x), height, width, args), n)
    if depth != before:
        x = _resized(to, x, depth, height * width, args)
    return as_volumes(to, x, shape)


def _static_size(q: Query) -> str | None:
    sizes = [*shape_of(q.args["input"])[2:], *shape_of(q.node)[2:]]
    return None if all(isinstance(s, int) for s in sizes) else f"size {list(map(str, sizes[2:]))}"


SIZES = Constraint("static sizes", _static_size, "an export with static image sizes")

define(
    "upsample_bilinear2d",
    (aten.upsample_bilinear2d.vec,),
    _bilinear,
    (SIZES, SCALE_BY_SIZES),
    accuracy=floating(1, 24),
    quantization=dict.fromkeys(
        (aten.upsample_bilinear2d.vec, aten.upsample_bilinear2d.default), SAME_SCALE
    ),
    integers=STATIC_INT8,
)


define(
    "upsample_linear1d",
    (aten.upsample_linear1d.vec,),
    _linear,
    (SIZES, SCALE_BY_SIZES),
    keep=True,
    also="as images of one row",
    accuracy=floating(1, 24),
    quantization=dict.fromkeys(
        (aten.upsample_linear1d.vec, aten.upsample_linear1d.default), SAME_SCALE
    ),
    integers=STATIC_INT8,
)
define(
    "upsample_trilinear3d",
    (aten.upsample_trilinear3d.vec,),
    _trilinear,
    (SIZES, SCALE_BY_SIZES),
    keep=True,
    also="layer by layer, then across layers",
    accuracy=floating(2, 48),
)


def _nearest(to: Lowering, node: Node, args: Args) -> Operand:
    """With the channels last in memory: where they are not, elements are copied one by one,
    which took 11 ms instead of the portable kernel's 3.6 for 128 planes of 64 by 64."""
    x, shape = to.ref(args["input"]), shape_of(node)
    if x.shape[1] != 1:
        x = to.b.in_order(x, (0, *range(2, x.rank), 1))
    whole: dict[int, int] = {}  # all at once, last
    for dim, index in enumerate(_sources(args["input"], node, args), 2):
        before, times = x.shape[dim], shape[dim] // x.shape[dim]
        if pattern(index, before).stretches == [(0, before, times)]:
            whole[dim] = times
        else:
            x = take(to, x, dim, index)
    return repeat_each(to, x, whole)


def _sources(x: Node, node: Node, args: Args) -> list[list[int]]:
    """For each dimension of an image, which element each one of the result is. Sizes are static."""
    before, after = shape_of(x)[2:], shape_of(node)[2:]
    factors = args["scale_factors"] or [None] * len(after)
    # PyTorch looks at no factor where a side of an image stays or doubles.
    is_image = len(after) == 2
    target = aten.upsample_nearest2d.vec if is_image else aten.upsample_nearest1d.vec
    ones = [1] if is_image else []
    found = []
    for old, new, factor in zip(before, after, factors, strict=True):
        numbers = torch.arange(old, dtype=torch.float32).reshape(1, 1, *ones, old)
        by_size = factor is None
        taken = target(
            numbers, [*ones, new] if by_size else None, None if by_size else [*ones, factor]
        )
        found.append([int(i) for i in taken.flatten()])
    return found


def _few_pieces(q: Query) -> str | None:
    x = q.args["input"]
    before, after = shape_of(x)[2:], shape_of(q.node)[2:]
    if not all(isinstance(size, int) for size in (*before, *after)):
        return None  # which another constraint says
    for size, index in zip(before, _sources(x, q.node, q.args), strict=True):
        found = len(pattern(index, size).stretches)
        if found > MOST_PIECES:
            return f"{before} to {after}, {found}"
    return None


define(
    "upsample_nearest",
    (aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec),
    _nearest,
    (SIZES, Constraint(f"put together from at most {MOST_PIECES} pieces", _few_pieces)),
    keep=True,
    also="a product with ones, which broadcasts; not by whole numbers: slices, concatenated",
    quantization=dict.fromkeys(
        (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default), SAME_SCALE
    ),
)
