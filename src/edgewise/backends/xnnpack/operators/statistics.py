"""Norms by statistics of channels: RMS, group, instance and batch normalisation.

All keep the layout at hand. Group normalisation of an image whose channels lie last
takes the means over height and width first (pooling), then over a group's channels,
which are few numbers; where the image lies in planes a group is one contiguous run.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import NORMS, SQUARES, floating
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    Constraint,
    Lowering,
    Query,
    constant,
    define,
    only_first,
)
from edgewise.backends.xnnpack.operators.normalization import mean_of_last
from edgewise.backends.xnnpack.operators.pieces import repeat_each
from edgewise.backends.xnnpack.operators.reduce import mean_over
from edgewise.edge.graph import fake, shape_of

aten = torch.ops.aten
Args = dict[str, Any]

AFFINE = constant("weight", "bias")


ONLY_RESULT = only_first("only the normalised tensor is used", "statistics")


def _rms_norm(to: Lowering, node: Node, args: Args) -> Operand:
    x, normalized = to.ref(args["input"]), args["normalized_shape"]
    shape, dtype, weight = x.shape, x.dtype, to.optional(args["weight"])
    # PyTorch's own is that of the type in which it computes, of float16, too.
    eps = torch.finfo(torch.float32).eps if args["eps"] is None else float(args["eps"])
    if len(normalized) > 1:
        x = to.b.view(x, (*shape[: -len(normalized)], math.prod(normalized)))
    wide = to.b.convert(x, torch.float32)
    mean = mean_of_last(to, to.b.unary("Square", wide))
    scale = to.b.unary("ReciprocalSquareRoot", to.b.shift(mean, eps))
    # With weights of another type, multiplied in float32.
    kept = dtype if weight is None or weight.dtype == dtype else torch.float32
    result = to.b.convert(to.b.binary("Multiply", wide, scale), kept)
    if weight is not None:
        result = to.b.binary("Multiply", result, weight.reshape(-1).to(kept))
    return to.b.view(to.b.convert(result, fake(node).dtype), shape)


define(
    "rms_norm",
    (aten.rms_norm.default,),
    _rms_norm,
    (constant("weight"),),
    keep=True,
    also="square, mean (fully connected, 1/N), rsqrt, multiply; in float32",
    accuracy=NORMS,
    deviations=(SQUARES,),
)


def _channels(x: Ref, vector: torch.Tensor) -> torch.Tensor:
    """A number for each channel, ready for broadcasting."""
    return vector.reshape(-1, *(1,) * (x.rank - 2))


def _grouped(
    to: Lowering,
    x: Ref,
    groups: int,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> Ref:
    """Normalises over each group's channels and all that follows them."""
    dtype, x = x.dtype, to.b.convert(x, torch.float32)
    centred = to.b.binary("Subtract", x, _mean_of_groups(to, x, groups))
    variance = _mean_of_groups(to, to.b.unary("Square", centred), groups)
    scale: Ref = to.b.unary("ReciprocalSquareRoot", to.b.shift(variance, eps))
    if weight is not None:
        # Few numbers are multiplied first, if there is a scale for each channel.
        scale = to.b.binary("Multiply", scale, _channels(x, weight.float()))
    result = to.b.binary("Multiply", centred, scale)
    if bias is not None:
        result = to.b.binary("Add", result, _channels(x, bias.float()))
    return to.b.convert(result, dtype)


def _mean_of_groups(to: Lowering, x: Ref, groups: int) -> Ref:
    """[n, c, ...] -> [n, c, 1, ...], or [n, 1, 1, ...] if there is one group."""
    n, channels = x.shape[:2]
    if groups == 1:
        return mean_over(to, x, range(1, x.rank))
    assert isinstance(channels, int)
    means = mean_over(to, x, range(2, x.rank))
    size = channels // groups
    if size > 1:
        means = mean_of_last(to, to.b.view(means, (n, groups, size)))
        means = repeat_each(to, means, {2: size})
    return to.b.view(means, (n, channels, *(1,) * (x.rank - 2)))


def _group_norm(to: Lowering, node: Node, args: Args) -> Operand:
    return _grouped(
        to,
        to.ref(args["input"]),
        args["num_groups"],
        to.optional(args["weight"]),
        to.optional(args["bias"]),
        float(args["eps"]),
    )


def _native_group_norm(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    weight, bias = to.optional(args["weight"]), to.optional(args["bias"])
    x, eps = to.ref(args["input"]), float(args["eps"])
    return (_grouped(to, x, args["group"], weight, bias, eps),)


def _static_channels(q: Query) -> str | None:
    shape = shape_of(q.args["input"])
    good = len(shape) > 1 and isinstance(shape[1], int)
    return None if good else f"{list(map(str, shape))}"


CHANNELS = Constraint(
    "a static number of channels", _static_channels, "an export with this dimension static"
)
_HOW = "means (pooling, fully connected), subtract, square, rsqrt, multiply, add; in float32"

define(
    "group_norm",
    (aten.group_norm.default,),
    _group_norm,
    (AFFINE, CHANNELS),
    keep=True,
    also=_HOW,
    accuracy=NORMS,
    deviations=(SQUARES,),
)
define(
    "native_group_norm",
    (aten.native_group_norm.default,),
    _native_group_norm,
    (AFFINE, CHANNELS, ONLY_RESULT),
    also="as group_norm",
    accuracy=NORMS,
    deviations=(SQUARES,),
)


def _instance_norm(to: Lowering, node: Node, args: Args) -> Operand:
    weight, bias = to.optional(args["weight"]), to.optional(args["bias"])
    x, eps = to.ref(args["input"]), float(args["eps"])
    if args["use_input_stats"]:
        channels = x.shape[1]
        assert isinstance(channels, int)
        return _grouped(to, x, channels, weight, bias, eps)
    return _affine(to, x, args)


def _affine(to: Lowering, x: Ref, args: Args) -> Ref:
    """One factor and one offset for each channel, computed in float64."""
    mean, var = (to.tensor(args[k]).double() for k in ("running_mean", "running_var"))
    weight, bias = to.optional(args["weight"]), to.optional(args["bias"])
    factor = (var + float(args["eps"])).rsqrt()
    if weight is not None:
        factor = factor * weight.double()
    offset = -mean * factor
    if bias is not None:
        offset = offset + bias.double()
    scaled = to.b.binary("Multiply", x, _channels(x, factor.to(x.dtype)))
    return to.b.binary("Add", scaled, _channels(x, offset.to(x.dtype)))


define(
    "instance_norm",
    (aten.instance_norm.default,),
    _instance_norm,
    (AFFINE, CHANNELS, constant("running_mean", "running_var")),
    keep=True,
    also="as group_norm, each channel a group; with running statistics as batch_norm",
    accuracy=NORMS,
    deviations=(SQUARES,),
)


def _batch_norm(to: Lowering, node: Node, args: Args) -> tuple[Operand, ...]:
    return (_affine(to, to.ref(args["input"]), args),)


define(
    "batch_norm",
    (aten._native_batch_norm_legit_no_training.default,),
    _batch_norm,
    (constant("weight", "bias", "running_mean", "running_var"), ONLY_RESULT),
    also="multiply and add; after a convolution or linear layer it is part of that",
    accuracy=floating(1, 1),
)
