"""Activations that XNNPACK has no node for, made of those it has."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.xnnpack.lowering.accuracy import (
    NEGATIVE_ZERO,
    PLAIN_ZERO,
    ROUNDED,
    floating,
)
from edgewise.backends.xnnpack.lowering.builder import Operand, Ref
from edgewise.backends.xnnpack.lowering.table import (
    STATIC_INT8,
    Constraint,
    Lowering,
    Query,
    constant,
    define,
)
from edgewise.backends.xnnpack.operators.elementary import in_float32
from edgewise.partition.accuracy import Deviation
from edgewise.quantize.patterns import UNARY

aten = torch.ops.aten
Args = dict[str, Any]


# --- logarithms of sigmoids ----------------------------------------------------------------


_ATANH = (0.28157778346500945, 0.2796515774870905, 0.4002459523043469, 0.6666632164138481, 2.0)
"""2 atanh(z) / z as a polynomial in z^2, highest power first: within 4e-9 of it up to z = 1/3."""


def _log_of_one_plus_exp(to: Lowering, x: Ref) -> Ref:
    """log(1 + e) with e = exp(-|x|), as 2 atanh(e / (e + 2)): exact to the last digits where e
    is small, too, which 1 + e is not."""
    small = to.b.unary("Exp", to.b.unary("Negate", to.b.unary("Abs", x)))
    z = to.b.binary("Div", small, to.b.shift(small, 2.0))
    square = to.b.unary("Square", z)
    series = to.b.shift(to.b.scale(square, _ATANH[0]), _ATANH[1])
    for coefficient in _ATANH[2:]:
        series = to.b.shift(to.b.binary("Multiply", series, square), coefficient)
    return to.b.binary("Multiply", z, series)


def _softplus(to: Lowering, node: Node, args: Args) -> Operand:
    x, beta = to.ref(args["self"]), float(args["beta"])
    dtype, x = x.dtype, to.b.convert(x, torch.float32)
    positive = to.b.unary("Clamp", x, clamp=(0.0, math.inf))
    rest = to.b.scale(_log_of_one_plus_exp(to, to.b.scale(x, beta)), 1 / beta)
    return to.b.convert(to.b.binary("Add", positive, rest), dtype)


def _beta(q: Query) -> str | None:
    return None if q.args["beta"] > 0 else f"beta={q.args['beta']}"


def _threshold(q: Query) -> str | None:
    """Above the threshold torch returns x: the same to 1e-7 if the threshold is 15 or more."""
    return None if q.args["threshold"] >= 15 else f"threshold={q.args['threshold']}"


def _log_sigmoid(to: Lowering, x: Ref) -> Ref:
    negative = to.b.unary("Clamp", x, clamp=(-math.inf, 0.0))
    return to.b.binary("Subtract", negative, _log_of_one_plus_exp(to, x))


def _mish(to: Lowering, x: Ref) -> Ref:
    """x tanh(log(1 + w)) = x n / (n + 2) with n = w (w + 2), w = exp(x): no logarithm."""
    w = to.b.unary("Exp", to.b.unary("Clamp", x, clamp=(-math.inf, 20.0)))
    n = to.b.binary("Multiply", w, to.b.shift(w, 2.0))
    gate = to.b.binary("Div", n, to.b.shift(n, 2.0))
    return to.b.binary("Multiply", x, gate)


define(
    "softplus",
    (aten.softplus.default,),
    _softplus,
    (Constraint("beta > 0", _beta), Constraint("threshold >= 15", _threshold)),
    keep=True,
    also="max(x, 0) + 2 atanh(e / (e + 2)) with e = exp(-|x|); of a beta below 1 the bound's "
    "last number is divided by it",
    accuracy=floating(5, 1, 4e-38),
)
define(
    "log_sigmoid",
    (aten.log_sigmoid.default,),
    in_float32(_log_sigmoid),
    keep=True,
    also="min(x, 0) - 2 atanh(e / (e + 2)) with e = exp(-|x|)",
    accuracy=floating(4, 0, 4e-38),
)
define(
    "mish",
    (aten.mish.default,),
    in_float32(_mish),
    keep=True,
    also="x n / (n + 2), n = w (w + 2), w = exp(x)",
    accuracy=floating(4, 0, 2e-36),
)


# --- exponential and linear pieces ---------------------------------------------------------


def _elu(to: Lowering, x: Ref, alpha: float, scale: float, inner: float) -> Ref:
    """scale * x above zero, scale * alpha * (exp(inner * x) - 1) below; inner > 0."""
    y = to.b.unary("ELU", to.b.scale(x, inner), alpha=alpha * inner)
    return to.b.scale(y, scale / inner)


def _general_elu(to: Lowering, node: Node, args: Args) -> Operand:
    keys = ("alpha", "scale", "input_scale")
    return _elu(to, to.ref(args["self"]), *(float(args[k]) for k in keys))


def _positive_elu(q: Query) -> str | None:
    found = {k: q.args[k] for k in ("alpha", "scale", "input_scale")}
    return None if found["alpha"] > 0 and found["input_scale"] > 0 else f"{found}"


define(
    "elu",
    (aten.elu.default,),
    _general_elu,
    (Constraint("alpha and input_scale above 0", _positive_elu),),
    deviations=(NEGATIVE_ZERO,),
    keep=True,
    accuracy=floating(6.5),
    quantization=UNARY,
    integers=STATIC_INT8,
)


def _positive_alpha(q: Query) -> str | None:
    return None if q.args["alpha"] > 0 else f"alpha={q.args['alpha']}"


def _celu(to: Lowering, node: Node, args: Args) -> Operand:
    alpha = float(args["alpha"])
    return _elu(to, to.ref(args["self"]), alpha, 1.0, 1 / alpha)


SELU = (1.6732632423543772, 1.0507009873554805)
"""alpha and scale of `torch.nn.SELU`."""

define(
    "celu",
    (aten.celu.default,),
    _celu,
    (Constraint("alpha > 0", _positive_alpha),),
    keep=True,
    also="elu between two scales",
    deviations=(
        NEGATIVE_ZERO,
        Deviation(
            "x / alpha beyond the type: infinity",
            lambda x: x > 1.6e4,
        ),
    ),
    accuracy=floating(7.5),
)
define(
    "selu",
    (aten.selu.default,),
    lambda to, node, args: _elu(to, to.ref(args["self"]), SELU[0], SELU[1], 1.0),
    keep=True,
    also="elu and a scale",
    deviations=(NEGATIVE_ZERO,),
    accuracy=floating(5),
)


def _prelu(to: Lowering, node: Node, args: Args) -> Operand:
    x, slope = to.ref(args["self"]), to.tensor(args["weight"])
    if slope.numel() == 1:
        return to.b.unary("LeakyReLU", x, negative_slope=float(slope))
    return to.b.binary("PReLU", x, slope.reshape(-1, *(1,) * (x.rank - 2)))


define(
    "prelu",
    (aten.prelu.default, aten._prelu_kernel.default),
    _prelu,
    (constant("weight"),),
    keep=True,
    also="with one slope: leaky ReLU",
    accuracy=ROUNDED,
    deviations=(PLAIN_ZERO,),
)


def _softshrink(to: Lowering, node: Node, args: Args) -> Operand:
    """x - clamp(x, -lambd, lambd)"""
    x, bound = to.ref(args["self"]), float(args["lambd"])
    return to.b.binary("Subtract", x, to.b.unary("Clamp", x, clamp=(-bound, bound)))


def _positive_lambda(q: Query) -> str | None:
    return None if q.args["lambd"] > 0 else f"lambd={q.args['lambd']}"


define(
    "softshrink",
    (aten.softshrink.default,),
    _softshrink,
    (Constraint("lambd > 0", _positive_lambda),),
    keep=True,
    also="x - clamp(x, -lambd, lambd)",
    accuracy=floating(1, 0.5),
)
