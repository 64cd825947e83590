"""Layer normalisation, for which XNNPACK has no node.

The mean over the last dimension is a fully connected node with weights 1/N; everything
else is elementwise with broadcasting.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import NORMS, SQUARES
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.static_sizes import number
from edgewise.backends.xnnpack.lowering.table import Constraint, Lowering, Query, constant, define

aten = torch.ops.aten


def mean_of_last(to: Lowering, x: Ref) -> Ref:
    """[..., n] -> [..., 1]. Of float16, too, the sum is taken in float32: in float16 it loses
    digits with every term, and 1/n itself has few where n is large."""
    n = number(x.shape[-1])
    wide = to.b.convert(x, torch.float32)
    mean = to.b.fully_connected(wide, torch.full((1, n), 1 / n), None)
    return to.b.convert(mean, x.dtype)


def _layer_norm(to: Lowering, node: Node, args: dict[str, Any]) -> Operand:
    x = to.ref(args["input"])
    shape = x.shape
    normalized = args["normalized_shape"]
    if len(normalized) > 1:
        x = to.b.view(x, (*shape[: -len(normalized)], math.prod(normalized)))
    # In float32: squares of float16 numbers above 256 overflow, and eps may be nothing.
    dtype, x = x.dtype, to.b.convert(x, torch.float32)
    centred = to.b.binary("Subtract", x, mean_of_last(to, x))
    variance = mean_of_last(to, to.b.unary("Square", centred))
    inverse = to.b.unary("ReciprocalSquareRoot", to.b.shift(variance, float(args["eps"])))
    weight, bias = to.optional(args["weight"]), to.optional(args["bias"])
    # Parameters of float32 beside float16: multiplied and added in float32, as in PyTorch.
    mixed = any(p is not None and p.dtype != dtype for p in (weight, bias))
    kept = torch.float32 if mixed else dtype
    result: Ref = to.b.convert(to.b.binary("Multiply", centred, inverse), kept)
    if weight is not None:
        result = to.b.binary("Multiply", result, weight.reshape(-1).to(kept))
    if bias is not None:
        result = to.b.binary("Add", result, bias.reshape(-1).to(kept))
    return to.b.view(to.b.convert(result, dtype), shape)


def _native_layer_norm(to: Lowering, node: Node, args: dict[str, Any]) -> tuple[Operand, ...]:
    return (_layer_norm(to, node, args),)


def _only_normalised_is_used(q: Query) -> str | None:
    others = [u.name for u in q.node.users if u.args[1] != 0]
    return None if not others else f"mean or rstd used by {', '.join(others)}"


define(
    "layer_norm",
    (aten.layer_norm.default,),
    _layer_norm,
    (constant("weight", "bias"),),
    keep=True,
    also="two means (fully connected, 1/N), subtract, square, rsqrt, multiply, add",
    accuracy=NORMS,
    deviations=(SQUARES,),
)
define(
    "native_layer_norm",
    (aten.native_layer_norm.default,),
    _native_layer_norm,
    (
        constant("weight", "bias"),
        Constraint("only the normalised tensor is used", _only_normalised_is_used),
    ),
    also="as layer_norm",
    accuracy=NORMS,
    deviations=(SQUARES,),
)
