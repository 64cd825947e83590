"""Pooling over windows of images.

One-dimensional pooling is spelt as two-dimensional before (`edge.canonicalize`), and an
adaptive one whose sizes divide as an ordinary one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import MEANS, floating
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.precision import in_8_bits
from edgewise.backends.xnnpack.lowering.table import (
    FEWER_SYMBOLS,
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
    only_first,
)
from edgewise.backends.xnnpack.operators.windows import averages, pad, pool, result_shape
from edgewise.edge.graph import Dim, arguments, is_static, shape_of
from edgewise.edge.orders import NHWC
from edgewise.edge.sizes import shown
from edgewise.operators.arguments import Pair, pair
from edgewise.quantize.patterns import SAME_SCALE, SameScale

aten = torch.ops.aten
Args = dict[str, Any]


def _window(
    to: Lowering,
    kind: str,
    x: Ref,
    shape: tuple[Dim, ...],
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
) -> Ref:
    """A pooling node. `shape` is the result's: with ceil_mode the padding behind grows to it."""
    shape = tuple(shape)
    if x.rank == 3:
        result = _window(
            to,
            kind,
            to.b.view(x, (1, *x.shape)),
            (1, *shape),
            kernel,
            stride,
            padding,
            dilation,
            ceil_mode,
        )
        return to.b.view(result, shape)
    after = list(padding)
    if ceil_mode:
        for i in range(2):
            size, out = x.shape[2 + i], shape[2 + i]
            assert isinstance(size, int) and isinstance(out, int)
            reach = (kernel[i] - 1) * dilation[i] + 1
            after[i] = max((out - 1) * stride[i] + reach - size - padding[i], 0)
    x = to.b.in_order(x, NHWC)
    dims = [shape[d] for d in NHWC]
    value = pool(to, kind, x.value, dims, kernel, stride, padding, (after[0], after[1]), dilation)
    return Ref(value, NHWC)


def _max_pool2d(to: Lowering, node: Node, args: Args) -> Operand:
    kernel = pair(args["kernel_size"])
    return _window(
        to,
        "MaxPooling2d",
        to.ref(args["self"]),
        result_shape(node),
        kernel,
        pair(args["stride"], kernel),
        pair(args["padding"]),
        pair(args["dilation"]),
        args["ceil_mode"],
    )


def _stride_within_kernel(q: Query) -> str | None:
    kernel = pair(q.args["kernel_size"])
    stride = pair(q.args["stride"], kernel)
    within = stride[0] <= kernel[0] and stride[1] <= kernel[1]
    return None if within else f"stride {stride}, kernel_size {kernel}"


def _more_than_one(q: Query) -> str | None:
    kernel = pair(q.args["kernel_size"])
    return None if kernel != (1, 1) else f"{kernel}"


def _static_if_ceil(q: Query) -> str | None:
    sizes = shape_of(q.args["self"])[-2:]
    if q.args["ceil_mode"] and not all(isinstance(s, int) for s in sizes):
        return f"ceil_mode=True, size {tuple(map(str, sizes))}"
    return None


_POOL = (
    Constraint("stride <= kernel_size", _stride_within_kernel),
    Constraint("kernel_size above 1x1", _more_than_one, "a slice with the stride as its step"),
    Constraint("ceil_mode=False, or static sizes", _static_if_ceil),
)

define(
    "max_pool2d",
    (aten.max_pool2d.default,),
    _max_pool2d,
    _POOL,
    keep=True,
    quantization=SAME_SCALE,
    integers=STATIC_INT8,
)
define(
    "max_pool2d_with_indices",
    (aten.max_pool2d_with_indices.default,),
    lambda to, node, args: (_max_pool2d(to, node, args),),
    (*_POOL, only_first("indices are not used", "indices")),
)


# --- averages ----------------------------------------------------------------------------


def _avg_pool2d(to: Lowering, node: Node, args: Args) -> Operand:
    """XNNPACK leaves padding out of the average, as PyTorch does what ceil_mode adds; where padding
    counts, zeros are put in before."""
    kernel, padding = pair(args["kernel_size"]), pair(args["padding"])
    x = to.ref(args["self"])
    if args["count_include_pad"] and any(padding):
        amounts = {x.rank - 2: (padding[0],) * 2, x.rank - 1: (padding[1],) * 2}
        x, padding = pad(to, x, amounts, 0.0), (0, 0)
    stride = pair(args["stride"], kernel)
    is_static = all(isinstance(size, int) for size in shape_of(node)[-2:])
    clips = any(padding) or args["ceil_mode"]
    if clips and is_static and in_8_bits(node, to.constants):
        windows = _clipped_windows(x, node, kernel, stride, padding)
        if any(end - start < kernel[dim] for dim in range(2) for start, end in windows[dim]):
            return averages(to, x, {x.rank - 2 + dim: windows[dim] for dim in range(2)})
    shape, ceil = result_shape(node), args["ceil_mode"]
    return _window(to, "AvgPooling2d", x, shape, kernel, stride, padding, ceil_mode=ceil)


def _clipped_windows(
    x: Ref, node: Node, kernel: Pair, stride: Pair, padding: Pair
) -> tuple[list[Pair], list[Pair]]:
    """What each window has of the image, by rows and by columns."""

    def along(i: int) -> list[Pair]:
        size, steps = x.shape[x.rank - 2 + i], shape_of(node)[x.rank - 2 + i]
        assert isinstance(size, int) and isinstance(steps, int)
        starts = [step * stride[i] - padding[i] for step in range(steps)]
        return [(max(s, 0), min(s + kernel[i], size)) for s in starts]

    return along(0), along(1)


def _static_image(q: Query) -> str | None:
    sizes = shape_of(q.args["self"])[-2:]
    return None if all(isinstance(s, int) for s in sizes) else shown(sizes)


def _divides_by_window(q: Query) -> str | None:
    divisor, padded = q.args["divisor_override"], any(pair(q.args["padding"]))
    if divisor is None:
        return None
    if q.args["ceil_mode"]:
        return f"divisor_override={divisor} with ceil_mode=True"
    if divisor == math.prod(pair(q.args["kernel_size"])):
        counted = q.args["count_include_pad"] or not padded
        return None if counted else f"divisor_override={divisor} over padding that is left out"
    return f"divisor_override={divisor} for kernel_size {pair(q.args['kernel_size'])}"


def _not_by_window(node: Node) -> str | None:
    """Why XNNPACK has no kernel for the pooling: it divides by what the window has."""
    args = arguments(node)
    if args["ceil_mode"] and not is_static(node.meta["val"].shape[-2:]):
        return "XNNPACK wants windows that reach beyond the image of static size"
    divisor = args.get("divisor_override")
    kernel = args["kernel_size"]
    size = math.prod(kernel if len(kernel) == 2 else [kernel[0]] * 2)
    if divisor is None:
        return None
    if divisor == size and args["count_include_pad"] and not args["ceil_mode"]:
        return None
    return f"XNNPACK divides by the window's size; got divisor_override={divisor}"


define(
    "avg_pool2d",
    (aten.avg_pool2d.default,),
    _avg_pool2d,
    (
        Constraint("ceil_mode=False, or static sizes", _static_if_ceil),
        Constraint(
            "divisor_override is the pooling region",
            _divides_by_window,
            "dividing by the region and multiplying",
        ),
    ),
    also="with count_include_pad=True and padding: zeros are put around first",
    accuracy=MEANS,
    quantization=SameScale(starts=True, against=_not_by_window),
    integers=STATIC_INT8,
)


def _adaptive_avg_pool2d(to: Lowering, node: Node, args: Args) -> Operand:
    """Windows of different sizes: the first to the last element of which a part belongs to one."""
    x = to.ref(args["self"])
    windows: dict[int, list[Pair]] = {}
    for dim in (x.rank - 2, x.rank - 1):
        size, steps = x.shape[dim], shape_of(node)[dim]
        assert isinstance(size, int) and isinstance(steps, int)
        windows[dim] = [(i * size // steps, -(-(i + 1) * size // steps)) for i in range(steps)]
    return averages(to, x, windows)


define(
    "adaptive_avg_pool2d",
    (aten._adaptive_avg_pool2d.default,),
    _adaptive_avg_pool2d,
    (Constraint("static sizes of the image", _static_image, FEWER_SYMBOLS),),
    also="of sizes that do not divide: two products with matrices of means",
    accuracy=floating(2, 4),
    quantization=SameScale(starts=True),
    integers=STATIC_INT8,
)
