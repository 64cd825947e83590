"""Images made larger."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Lowering, Real, Tensor, moved
from edgewise.backends.neutron.lowering.table import (
    SAME_QUANTIZATION,
    Constraint,
    Query,
    define,
    rank,
)
from edgewise.backends.neutron.operators.windows import image
from edgewise.backends.neutron.tflite.schema import (
    BuiltinOperator,
    ResizeBilinearOptions,
    ResizeNearestNeighborOptions,
)
from edgewise.edge.graph import fake
from edgewise.edge.orders import NHWC
from edgewise.flatbuffer import Table
from edgewise.partition.constraints import SCALE_BY_SIZES
from edgewise.quantize.patterns import SAME_SCALE
from edgewise.quantize.resampling import Resampling

aten = torch.ops.aten
_SCALES = (1, 2, 4, 8)


def _resize(
    to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator, options: Table
) -> Real:
    def resize(x: Tensor) -> Tensor:
        x = image(to, x)
        shape = tuple(int(n) for n in fake(node).shape)
        sizes = to.ints(f"{node.name}_size", shape[2:])
        return to.add(code, [x, sizes], to.result(node, shape, NHWC, x.quant), options)

    return moved(to.real(args.get("input", args.get("self"))), resize)


def _bilinear(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    corners = bool(args["align_corners"])
    options = ResizeBilinearOptions(align_corners=corners, half_pixel_centers=not corners)
    return _resize(to, node, args, BuiltinOperator.RESIZE_BILINEAR, options)


def _nearest(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    options = ResizeNearestNeighborOptions()
    return _resize(to, node, args, BuiltinOperator.RESIZE_NEAREST_NEIGHBOR, options)


def _whole_scales(q: Query) -> str | None:
    name = "input" if "input" in q.args else "self"
    before, after = q.shape_of(name)[2:], q.shape[2:]
    corners = bool(q.args.get("align_corners", False))
    for old, new in zip(before, after, strict=True):
        if corners and old == 1:
            return f"one row or column with align_corners ({list(before)} to {list(after)})"
        if not _is_whole(old, new, corners):
            return f"{list(before)} to {list(after)}"
    return None


def _is_whole(before: int, after: int, corners: bool) -> bool:
    if corners:
        before, after = before - 1, after - 1
    return before > 0 and any(before * scale == after for scale in _SCALES)


def is_resampled(call: Resampling) -> bool:
    """Whether the NPU does it, so that the quantizer leaves the call whole."""
    known = (aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec)
    return (
        call.target in known
        and call.is_by_sizes
        and all(
            _is_whole(b, a, call.align_corners)
            for b, a in zip(call.before, call.after, strict=True)
        )
    )


_RULES = (
    Constraint("scales of 1, 2, 4 or 8 (with align_corners of size - 1)", _whole_scales),
    SCALE_BY_SIZES,
    SAME_QUANTIZATION,
)

define(
    "upsample_bilinear2d",
    (aten.upsample_bilinear2d.vec,),
    _bilinear,
    (rank("input", 4), *_RULES),
    images=True,
    keep=True,
    also="RESIZE_BILINEAR",
    quantization=SAME_SCALE,
)
define(
    "upsample_nearest2d",
    (aten.upsample_nearest2d.vec,),
    _nearest,
    (rank("input", 4), *_RULES),
    images=True,
    keep=True,
    also="RESIZE_NEAREST_NEIGHBOR",
    quantization=SAME_SCALE,
)
