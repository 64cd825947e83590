"""Pooling of images."""

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
    equals,
    rank,
)
from edgewise.backends.neutron.operators.windows import image, limited, pair, same_padding
from edgewise.backends.neutron.targets import KERNEL_LIMIT
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    Padding,
    Pool2DOptions,
)
from edgewise.edge.graph import tensors_of
from edgewise.edge.orders import NHWC
from edgewise.operators.arguments import beyond_padding
from edgewise.partition.constraints import only_first
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten
_LOWEST = -128


def _pool(
    to: Lowering,
    node: Node,
    x: Tensor,
    code: BuiltinOperator,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    how: Padding | None,
) -> Tensor:
    x = image(to, x)
    shape = tuple(int(n) for n in tensors_of(node)[0].shape)
    beyond = beyond_padding(x.shape[2:], shape[2:], kernel, stride, padding)
    if how is None or any(beyond):
        how = Padding.VALID
        number = _LOWEST if code == BuiltinOperator.MAX_POOL_2D else x.quant.zero_point
        edges = {dim: (p, p + more) for dim, p, more in zip((2, 3), padding, beyond, strict=True)}
        x = to.padded(x, edges, number)
    options = Pool2DOptions(how, stride[1], stride[0], kernel[1], kernel[0], Activation.NONE)
    return to.add(code, [x], to.result(node, shape, NHWC, x.quant), options)


def _whole_windows(q: Query) -> str | None:
    kernel, stride, padding = _window(q.args)
    beyond = beyond_padding(q.shape_of("self")[-2:], q.shape[-2:], kernel, stride, padding)
    return "ceil_mode=True" if any(beyond) else None


def _window(args: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    kernel = pair(args["kernel_size"])
    stride = pair(args["stride"]) if args["stride"] else kernel
    return kernel, stride, pair(args["padding"], 0)


def _max(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    kernel, stride, padding = _window(args)

    def pool(x: Tensor) -> Tensor:
        how = same_padding(x.shape[2:], kernel, stride, padding, (1, 1))
        return _pool(to, node, x, BuiltinOperator.MAX_POOL_2D, kernel, stride, padding, how)

    return moved(to.real(args["self"]), pool)


def _average(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    kernel, stride, padding = _window(args)

    def pool(x: Tensor) -> Tensor:
        how = same_padding(x.shape[2:], kernel, stride, padding, (1, 1))
        if any(padding) and args["count_include_pad"]:
            how = None  # TFLite's own padding is not counted
        return _pool(to, node, x, BuiltinOperator.AVERAGE_POOL_2D, kernel, stride, padding, how)

    return moved(to.real(args["self"]), pool)


def _adaptive(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def pool(x: Tensor) -> Tensor:
        kernel = _derived(x.shape[2:], pair(args["output_size"]))
        code = BuiltinOperator.AVERAGE_POOL_2D
        return _pool(to, node, x, code, kernel, kernel, (0, 0), Padding.VALID)

    return moved(to.real(args["self"]), pool)


def _derived(sizes: Any, results: tuple[int, int]) -> tuple[int, int]:
    return sizes[0] // results[0], sizes[1] // results[1]


_MAX_RULES = (
    rank("self", 4),
    equals("dilation", 1, [1], [1, 1], (1, 1)),
    limited("kernel_size", "stride"),
    SAME_QUANTIZATION,
)

define(
    "max_pool2d",
    (aten.max_pool2d.default,),
    _max,
    _MAX_RULES,
    images=True,
    keep=True,
    also="MAX_POOL_2D",
    quantization=SAME_SCALE,
)
define(
    "max_pool2d_with_indices",
    (aten.max_pool2d_with_indices.default,),
    _max,
    (*_MAX_RULES, only_first("the indices are not used", "indices")),
    images=True,
    also="MAX_POOL_2D",
)


def _counts(q: Query) -> str | None:
    kernel, stride, padding = _window(q.args)
    if not any(padding) or q.args["count_include_pad"]:
        return None
    if same_padding(q.shape_of("self")[-2:], kernel, stride, padding, (1, 1)) == Padding.SAME:
        return None  # what TFLite does not count either
    return f"padding={list(padding)}"


define(
    "avg_pool2d",
    (aten.avg_pool2d.default,),
    _average,
    (
        rank("self", 4),
        Constraint("ceil_mode=False, or sizes that it does not change", _whole_windows),
        equals("divisor_override", None),
        Constraint(
            "padding that is counted, or TFLite's SAME padding",
            _counts,
            "count_include_pad=True, or F.pad before it",
        ),
        limited("kernel_size", "stride"),
        SAME_QUANTIZATION,
    ),
    images=True,
    also="AVERAGE_POOL_2D, after PAD if padding is counted",
    quantization=SAME_SCALE,
)


def _divides(q: Query) -> str | None:
    sizes, results = q.shape_of("self")[-2:], pair(q.args["output_size"])
    if any(size % result for size, result in zip(sizes, results, strict=True)):
        return f"{list(sizes)} to {list(results)}"
    return None


def _derived_limit(q: Query) -> str | None:
    found = _derived(q.shape_of("self")[-2:], pair(q.args["output_size"]))
    return f"{list(found)}" if max(found) > KERNEL_LIMIT else None


define(
    "adaptive_avg_pool2d",
    (aten._adaptive_avg_pool2d.default,),
    _adaptive,
    (
        rank("self", 4),
        Constraint("sizes that are multiples of the result's", _divides),
        Constraint(f"windows of at most {KERNEL_LIMIT}", _derived_limit),
        SAME_QUANTIZATION,
    ),
    images=True,
    also="AVERAGE_POOL_2D",
    quantization=SAME_SCALE,
)
