"""Convolutions and pooling over volumes, as images: each layer of a volume is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import MEANS
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    Constraint,
    Lowering,
    Query,
    define,
    equals,
    only_first,
    rank,
)
from edgewise.backends.xnnpack.operators.reduce import as_it_lies, named
from edgewise.backends.xnnpack.operators.shape import every
from edgewise.backends.xnnpack.operators.windows import pad, pool, result_shape
from edgewise.edge.graph import Dim, shape_of
from edgewise.edge.orders import NHWC
from edgewise.edge.sizes import shown

aten = torch.ops.aten
Args = dict[str, Any]

NDHWC = (0, 2, 3, 4, 1)


def as_images(to: Lowering, x: Ref) -> Ref:
    """[N, C, D, H, W], as they are numbered, as N * D images."""
    n, d, h, w, c = x.value.dims
    return named(to.b.view(as_it_lies(x), (n * d, h, w, c)), NHWC)


def as_volumes(to: Lowering, x: Ref, shape: Sequence[Dim]) -> Ref:
    """Images as volumes [N, C, D, H, W]."""
    return named(to.b.view(as_it_lies(x), [shape[dim] for dim in NDHWC]), NDHWC)


def as_rows(to: Lowering, x: Ref, volumes: Dim) -> Ref:
    """Images as N images, of which each row is a layer: [N, C, D, H * W]."""
    n, h, w, c = x.value.dims
    return named(to.b.view(as_it_lies(x), (volumes, n // volumes, h * w, c)), NHWC)


def layers(to: Lowering, x: Ref, kernel: int, stride: int, gap: int, count: int) -> list[Ref]:
    """For each element of a kernel along the depth the layers that it reads, `count` of each
    volume, as images."""
    x = to.b.in_order(x, NDHWC)
    starts = [gap * index for index in range(kernel)]
    reach = stride * (count - 1) + 1
    return [as_images(to, every(to, x, 2, start, start + reach, stride)) for start in starts]


def static_volume(q: Query, operand: str) -> str | None:
    """What a volume's sizes are, if one of them is symbolic; None of anything else."""
    sizes = shape_of(q.args[operand])
    is_volume = len(sizes) == 5
    return shown(sizes) if is_volume and not all(isinstance(s, int) for s in sizes) else None


# --- pooling -----------------------------------------------------------------------------


def _three(value: Any, default: Sequence[int] = ()) -> list[int]:
    items = [value] if isinstance(value, int) else list(value or default)
    return items * 3 if len(items) == 1 else items


def _pool(to: Lowering, kind: str, node: Node, args: Args, dilation: Sequence[int]) -> Ref:
    """Over rows and columns of each layer, then over layers."""
    shape = result_shape(node)
    kernel, padding = _three(args["kernel_size"]), _three(args["padding"])
    stride = _three(args["stride"], kernel)
    x = to.ref(args["self"])
    if kind == "AvgPooling2d" and any(padding):
        around = {2 + dim: (amount, amount) for dim, amount in enumerate(padding)}
        x, padding = pad(to, x, around, 0.0), [0, 0, 0]
    x = to.b.in_order(x, NDHWC)
    n, depth, *_, c = x.value.dims

    def over(image: Ref, dims: Sequence[Dim], window: Any) -> Ref:
        size, step, before, gap = window
        if size == (1, 1) and step == (1, 1):
            return image
        return Ref(pool(to, kind, image.value, dims, size, step, before, before, gap), NHWC)

    rows = tuple(map(tuple, (kernel[1:], stride[1:], padding[1:], dilation[1:])))
    x = over(as_images(to, x), (n * depth, *shape[3:], c), rows)
    x = as_rows(to, x, n)
    across = ((kernel[0], 1), (stride[0], 1), (padding[0], 0), (dilation[0], 1))
    x = over(x, (n, shape[2], shape[3] * shape[4], c), across)
    return as_volumes(to, x, shape)


def _max_pool3d(to: Lowering, node: Node, args: Args) -> Operand:
    return _pool(to, "MaxPooling2d", node, args, _three(args["dilation"]))


def _avg_pool3d(to: Lowering, node: Node, args: Args) -> Operand:
    return _pool(to, "AvgPooling2d", node, args, (1, 1, 1))


def _counts_padding(q: Query) -> str | None:
    left_out = any(_three(q.args["padding"])) and not q.args["count_include_pad"]
    return "count_include_pad=False" if left_out else None


def _within_kernel(q: Query) -> str | None:
    """XNNPACK wants windows of maxima that leave nothing out."""
    kernel = _three(q.args["kernel_size"])
    stride = _three(q.args["stride"], kernel)
    return None if all(s <= k for s, k in zip(stride, kernel, strict=True)) else f"stride {stride}"


_STATIC = (
    rank("self", 5),
    Constraint("static sizes", lambda q: static_volume(q, "self")),
    equals("ceil_mode", False),
)


define(
    "max_pool3d",
    (aten.max_pool3d.default,),
    _max_pool3d,
    (*_STATIC, Constraint("stride <= kernel_size", _within_kernel)),
    keep=True,
    also="layer by layer, then across layers",
)
define(
    "max_pool3d_with_indices",
    (aten.max_pool3d_with_indices.default,),
    lambda to, node, args: (_max_pool3d(to, node, args),),
    (
        *_STATIC,
        Constraint("stride <= kernel_size", _within_kernel),
        only_first("indices are not used", "indices"),
    ),
    also="layer by layer, then across layers",
)
define(
    "avg_pool3d",
    (aten.avg_pool3d.default,),
    _avg_pool3d,
    (
        *_STATIC,
        Constraint("padding that is counted", _counts_padding),
        equals("divisor_override", None),
    ),
    also="layer by layer, then across layers",
    accuracy=MEANS,
)

__all__ = ["NDHWC", "as_images", "as_rows", "as_volumes", "layers", "static_volume"]
