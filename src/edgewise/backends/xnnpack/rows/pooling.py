"""Pooling and means."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.builder import NHWC, Operand, Ref
from edgewise.backends.xnnpack.graph import KEEP_DIMS
from edgewise.backends.xnnpack.rows.normalization import mean_of_last
from edgewise.backends.xnnpack.table import (
    Constraint,
    Lowering,
    OpRow,
    Query,
    add_row,
    equals,
    rank,
)
from edgewise.edge.graph import fake

aten = torch.ops.aten
Args = dict[str, Any]


def _pair(value: Any, default: Any = None) -> tuple[int, int]:
    items = [value] if isinstance(value, int) else list(value or default)
    return (items[0], items[-1])


def _max_pool2d(to: Lowering, node: Node, args: Args) -> Operand:
    kernel = _pair(args["kernel_size"])
    stride, padding = _pair(args["stride"], kernel), _pair(args["padding"])
    dilation = _pair(args["dilation"])
    x = to.b.in_order(to.ref(args["self"]), NHWC)
    result = node.meta["val"]
    shape = [int(s) for s in (result[0] if isinstance(result, (tuple, list)) else result).shape]
    value = to.b.node(
        "MaxPooling2d",
        [x.value],
        [shape[d] for d in NHWC],
        x.dtype,
        padding_top=padding[0],
        padding_right=padding[1],
        padding_bottom=padding[0],
        padding_left=padding[1],
        pooling_height=kernel[0],
        pooling_width=kernel[1],
        stride_height=stride[0],
        stride_width=stride[1],
        dilation_height=dilation[0],
        dilation_width=dilation[1],
    )
    return Ref(value, NHWC)


def _stride_within_kernel(q: Query) -> str | None:
    kernel = _pair(q.args["kernel_size"])
    stride = _pair(q.args["stride"], kernel)
    within = stride[0] <= kernel[0] and stride[1] <= kernel[1]
    return None if within else f"stride {stride}, kernel_size {kernel}"


def _more_than_one(q: Query) -> str | None:
    kernel = _pair(q.args["kernel_size"])
    return None if kernel != (1, 1) else f"{kernel}"


def _only_values_are_used(q: Query) -> str | None:
    others = [u.name for u in q.node.users if u.args[1] != 0]
    return None if not others else f"indices used by {', '.join(others)}"


_POOL = (
    rank("self", 4),
    Constraint("stride <= kernel_size", _stride_within_kernel),
    Constraint("kernel_size above 1x1", _more_than_one),
    equals("ceil_mode", False),
)

add_row(OpRow("max_pool2d", (aten.max_pool2d.default,), _max_pool2d, _POOL, keep=True))
add_row(
    OpRow(
        "max_pool2d_with_indices",
        (aten.max_pool2d_with_indices.default,),
        lambda to, node, args: (_max_pool2d(to, node, args),),
        (*_POOL, Constraint("indices are not used", _only_values_are_used)),
    )
)


def _dims(args: Args) -> list[int]:
    of = fake(args["self"]).dim()
    return sorted(d % of for d in (args["dim"] or range(of)))


def _mean(to: Lowering, node: Node, args: Args) -> Operand:
    x, shape = to.ref(args["self"]), [int(s) for s in fake(node).shape]
    if _dims(args) == [x.rank - 1]:
        return to.b.view(mean_of_last(to, x), shape)
    x = to.b.in_order(x, NHWC)
    n, _, _, c = x.value.dims
    value = to.b.node("GlobalAvgPooling2d", [x.value], (n, 1, 1, c), x.dtype, flags=KEEP_DIMS)
    return to.b.view(Ref(value, NHWC), shape)


def _spatial_or_last(q: Query) -> str | None:
    of, dims = fake(q.args["self"]).dim(), _dims(q.args)
    good = dims == [of - 1] or (of == 4 and dims == [2, 3])
    return None if good else f"dim={q.args['dim']} of {of}-D"


add_row(
    OpRow(
        "mean",
        (aten.mean.dim,),
        _mean,
        (
            Constraint("dim is [-1, -2] of a 4-D tensor, or the last one", _spatial_or_last),
            equals("dtype", None),
        ),
        also="over the last dimension: fully connected with 1/N",
    )
)
