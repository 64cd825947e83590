"""Sums, means, maxima and what is made of them, over any dimensions.

XNNPACK's maxima do not carry NaN: a NaN among the operands may be passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import (
    EQUAL,
    EXACT,
    LONG,
    MEANS,
    NAN_AMONG,
    NORMS,
    SQUARES,
    floating,
)
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    define,
    equals,
    only_first,
)
from edgewise.backends.xnnpack.operators.reduce import (
    max_over,
    mean_over,
    min_over,
    size_in,
    sum_over,
    without,
)
from edgewise.edge.graph import fake, shape_of
from edgewise.operators.arguments import reduced_dims
from edgewise.partition.accuracy import Accuracies, Deviation
from edgewise.partition.constraints import HAS_DIMS
from edgewise.quantize.patterns import Pattern, SameScale

aten = torch.ops.aten
Args = dict[str, Any]


def finish(to: Lowering, result: Ref, args: Args, dims: list[int]) -> Ref:
    return result if args.get("keepdim") else without(to, result, dims)


def _of_static_size(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    dims = reduced_dims(q.args.get("dim"), len(shape))
    return None if all(isinstance(shape[d], int) for d in dims) else f"dim={dims} of {shape}"


STATIC = Constraint(
    "the reduced sizes are static", _of_static_size, "an export with these dimensions static"
)


def _reduction(
    name: str,
    over: Callable[[Lowering, Ref, list[int]], Ref],
    targets: tuple[torch._ops.OpOverload, ...],
    rules: tuple[Constraint, ...],
    also: str,
    accuracy: Accuracies = EXACT,
    deviations: tuple[Deviation, ...] = (),
    quantization: Pattern | None = None,
    integers: str = "",
) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Operand:
        x = to.b.convert(to.ref(args["self"]), fake(node).dtype)
        dims = reduced_dims(args.get("dim"), x.rank)
        return finish(to, over(to, x, dims), args, dims)

    define(
        name,
        targets,
        lower,
        rules,
        also=also,
        quantization=quantization,
        deviations=deviations,
        integers=integers,
        accuracy=accuracy,
    )


_STATIC_DIMS = (HAS_DIMS, STATIC)

_reduction(
    "mean",
    mean_over,
    (aten.mean.dim, aten.mean.default),
    (HAS_DIMS,),
    "over any dimensions: pooling, or, over the last ones, fully connected with 1/N",
    MEANS,
    deviations=(LONG,),
    quantization=SameScale(starts=True),
    integers=STATIC_INT8,
)
_reduction(
    "sum",
    sum_over,
    (aten.sum.dim_IntList, aten.sum.default),
    _STATIC_DIMS,
    "the mean times the number of terms",
    MEANS,
    deviations=(LONG,),
)
_reduction(
    "amax",
    max_over,
    (aten.amax.default, aten.max.default),
    _STATIC_DIMS,
    "max pooling",
    deviations=(NAN_AMONG,),
)
_reduction(
    "amin",
    min_over,
    (aten.amin.default, aten.min.default),
    _STATIC_DIMS,
    "max pooling of negated values",
    deviations=(NAN_AMONG,),
)


def _extreme_of_dim(name: str, over: Any, target: torch._ops.OpOverload) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
        x = to.ref(args["self"])
        dims = reduced_dims(args.get("dim"), x.rank)
        return (finish(to, over(to, x, dims), args, dims),)

    rule = only_first("indices are not used", "indices", "amax or amin, if only values matter")
    define(
        name,
        (target,),
        lower,
        (HAS_DIMS, STATIC, rule),
        also=f"as a{name[:3]}",
        deviations=(NAN_AMONG,),
    )


_extreme_of_dim("max_dim", max_over, aten.max.dim)
_extreme_of_dim("min_dim", min_over, aten.min.dim)


# --- variance and norms, in float32 as PyTorch's ------------------------------------------


def _correction(args: Args) -> float:
    if "unbiased" in args:
        return float(args["unbiased"])
    return 1.0 if args["correction"] is None else float(args["correction"])


def moments(to: Lowering, x: Ref, dims: list[int], correction: float = 0) -> tuple[Ref, Ref, Ref]:
    """x without its mean, the mean, and the variance; the dimensions stay with size one."""
    mean = mean_over(to, x, dims)
    centred = to.b.binary("Subtract", x, mean)
    variance = mean_over(to, to.b.unary("Square", centred), dims)
    if correction:
        count = math.prod(size_in(x, dims))
        variance = to.b.scale(variance, count / (count - correction))
    return centred, mean, variance


def _variance(root: bool, with_mean: bool) -> Any:
    def lower(to: Lowering, node: Node, args: Args) -> Any:
        x = to.ref(args["self"])
        dims = reduced_dims(args.get("dim"), x.rank)
        dtype, x = x.dtype, to.b.convert(x, torch.float32)
        _, mean, spread = moments(to, x, dims, _correction(args))
        if root:
            spread = to.b.unary("SquareRoot", spread)
        parts = [
            finish(to, to.b.convert(part, dtype), args, dims)
            for part in ((spread, mean) if with_mean else (spread,))
        ]
        return tuple(parts) if with_mean else parts[0]

    return lower


def _more_than_correction(q: Query) -> str | None:
    shape = shape_of(q.args["self"])
    count = math.prod(shape[d] for d in reduced_dims(q.args.get("dim"), len(shape)))
    correction = _correction(q.args)
    if isinstance(count, int) and count <= correction:
        return f"{count} elements, correction={correction:g}"
    return None


ENOUGH = Constraint("more elements than the correction", _more_than_correction)
_HOW = "mean, subtract, square, mean"

for _name, _root, _with_mean in (
    ("var", False, False),
    ("std", True, False),
    ("var_mean", False, True),
    ("std_mean", True, True),
):
    _packet = getattr(aten, _name)
    define(
        _name,
        (_packet.default, _packet.dim, _packet.correction),
        _variance(_root, _with_mean),
        (HAS_DIMS, STATIC, ENOUGH),
        keep=True,
        also=f"{_HOW}{', square root' if _root else ''}",
        accuracy=NORMS,
        deviations=(SQUARES, EQUAL),
    )


def _vector_norm(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dims = reduced_dims(args.get("dim"), x.rank)
    x = to.b.convert(x, torch.float32)
    order = float(args["ord"])
    if order == 2:
        result = to.b.unary("SquareRoot", sum_over(to, to.b.unary("Square", x), dims))
    elif order == 1:
        result = sum_over(to, to.b.unary("Abs", x), dims)
    else:
        result = max_over(to, to.b.unary("Abs", x), dims)
    return finish(to, to.b.convert(result, fake(node).dtype), args, dims)


define(
    "linalg_vector_norm",
    (aten.linalg_vector_norm.default,),
    _vector_norm,
    (HAS_DIMS, STATIC, equals("ord", 2, 1, math.inf)),
    keep=True,
    also="square, sum and square root; absolute values and their sum or maximum",
    accuracy=floating(2, 1.5),
    deviations=(SQUARES,),
)


# --- logarithms of sums of exponentials ---------------------------------------------------


def _log_sum_of_exponentials(to: Lowering, shifted: Ref, dims: list[int]) -> Ref:
    return to.b.unary("Log", sum_over(to, to.b.unary("Exp", shifted), dims))


def _logsumexp(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.ref(args["self"])
    dims = reduced_dims(args.get("dim"), x.rank)
    largest = max_over(to, x, dims)
    # What is subtracted is finite: an infinity less itself would be NaN. What is added is not:
    # some of XNNPACK's logarithms of infinity are finite.
    most = torch.finfo(x.dtype).max
    finite = to.b.unary("Clamp", largest, clamp=(-most, most))
    log = _log_sum_of_exponentials(to, to.b.binary("Subtract", x, finite), dims)
    return finish(to, to.b.binary("Add", log, largest), args, dims)


def _log_softmax(to: Lowering, node: Node, args: Args) -> Operand:
    x = to.b.convert(to.ref(args["self"]), fake(node).dtype)
    dims = reduced_dims(args.get("dim"), x.rank)
    shifted = to.b.binary("Subtract", x, max_over(to, x, dims))
    return to.b.binary("Subtract", shifted, _log_sum_of_exponentials(to, shifted, dims))


define(
    "logsumexp",
    (aten.logsumexp.default,),
    _logsumexp,
    (HAS_DIMS, STATIC),
    keep=True,
    also="less the maximum: exponential, sum and logarithm",
    accuracy=floating(2, 1, 3e-7),
    deviations=(Deviation("NaN: infinity (x86 without AVX-512)", lambda x: x.isnan()),),
)
define(
    "log_softmax",
    (aten._log_softmax.default,),
    _log_softmax,
    (HAS_DIMS, STATIC),
    also="less the maximum: x - log(sum(exp(x))). A logarithm of a softmax would be shorter, "
    "and -inf below -87",
    accuracy=floating(2, 1, 4e-7),
    deviations=(
        Deviation(
            "beside infinity or NaN: NaN, or -infinity (x86 without AVX-512)",
            lambda x: ~x.isfinite(),
        ),
    ),
)
