"""Images in another size, and tensors repeated."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import floating
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
)
from edgewise.backends.xnnpack.operators.reduce import as_it_lies, named
from edgewise.backends.xnnpack.operators.volumes import NDHWC, as_images, as_rows, as_volumes
from edgewise.edge.graph import Dim, shape_of
from edgewise.edge.orders import NHWC
from edgewise.partition.constraints import SCALE_BY_SIZES
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten
Args = dict[str, Any]

ALIGN_CORNERS = 0x8
MOST_COPIES = 1 << 16


# --- repetition: a product with ones broadcasts, and keeps -0.0, infinities and NaN ---------


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
    times: dict[int, Any] = {d: shape[d] // x.shape[d] for d in range(2, len(shape))}
    return repeat_each(to, x, times)


def _whole_factor(q: Query) -> str | None:
    before, after = shape_of(q.args["input"])[2:], shape_of(q.node)[2:]
    factors = q.args["scale_factors"] or [None] * len(after)
    for a, b, f in zip(after, before, factors, strict=True):
        if not (isinstance(a, int) and isinstance(b, int) and a % b == 0 and f in (None, a // b)):
            return f"{before} to {after}"
    return None


define(
    "upsample_nearest",
    (aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec),
    _nearest,
    (SIZES, Constraint("sizes are multiplied by whole numbers", _whole_factor)),
    keep=True,
    also="a product with ones, which broadcasts",
    quantization=dict.fromkeys(
        (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default), SAME_SCALE
    ),
)
