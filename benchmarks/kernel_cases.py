"""One call, or a few, for every kernel of the runtime that eager PyTorch has too.

A case is a function of tensors and the recipes of these: `cases(256)` has inputs of about
64 k elements, `cases(8)` the same calls on a few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten


@dataclass(frozen=True)
class Input:
    """Shape, and what is in it: values of the type at hand, or indices or bools of their own.

    `kind`: "values" (0.1 to 1.1, integers 1 to 100), "index" (below `limit`), "mask",
    "float" (float32 whatever the type), "grid" (-0.9 to 0.9), "sorted", "small" (integers 0 to 6).
    """

    shape: tuple[int, ...]
    kind: str = "values"
    limit: int = 0

    def make(self, dtype: torch.dtype) -> torch.Tensor:
        if self.kind == "index":
            return torch.randint(0, self.limit, self.shape)
        if self.kind == "mask":
            return torch.rand(self.shape) < 0.5
        if self.kind == "float":
            return torch.rand(self.shape) + 0.1
        if dtype == torch.bool:
            return torch.rand(self.shape) < 0.5
        if not dtype.is_floating_point:
            high = 7 if self.kind == "small" else 101
            values = torch.randint(0 if self.kind == "small" else 1, high, self.shape)
        elif self.kind == "grid":
            values = torch.rand(self.shape) * 1.8 - 0.9
        else:
            values = torch.rand(self.shape) + 0.1
        if self.kind == "sorted":
            values = values.flatten().sort().values.reshape(self.shape)
        return values.to(dtype)


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., Any]
    inputs: tuple[Input, ...]


def _with_three(function: Callable[..., Any], x: torch.Tensor) -> Any:
    return function(x, 3)


def _along(function: Callable[..., Any], dim: int, x: torch.Tensor) -> Any:
    return function(x, dim)


def _unary(n: int) -> list[Case]:
    x = Input((n, n))
    names = [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bitwise_not",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "isinf",
        "isnan",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "logical_not",
        "logit",
        "neg",
        "reciprocal",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "relu",
    ]
    made = [Case(name, getattr(torch, name), (x,)) for name in names]
    activations = ["gelu", "silu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu"]
    made += [Case(name, getattr(F, name), (x,)) for name in activations]
    return [
        *made,
        Case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), (x,)),
        Case("round decimals", lambda x: torch.round(x, decimals=2), (x,)),
        Case("glu", lambda x: F.glu(x, -1), (Input((n, 2 * n)),)),
        Case("clamp", lambda x: torch.clamp(x, 0.2, 0.8), (x,)),
        Case("clamp integers", lambda x: torch.clamp(x, 2, 50), (x,)),
        Case("clamp tensors", torch.clamp, (x, x, x)),
    ]


def _binary(n: int) -> list[Case]:
    x, small = Input((n, n)), Input((n, n), "small")
    names = [
        "add",
        "sub",
        "mul",
        "div",
        "floor_divide",
        "remainder",
        "fmod",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "atan2",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
    made = [Case(name, getattr(torch, name), (x, x)) for name in names]
    scalars = ["add", "sub", "mul", "div", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge"]
    made += [
        Case(f"{name} scalar", partial(_with_three, getattr(torch, name)), (x,))
        for name in [*scalars, "bitwise_and", "bitwise_or", "bitwise_xor"]
    ]
    return [
        *made,
        Case("pow", torch.pow, (x, small)),
        Case("pow scalar", lambda x: torch.pow(x, 3), (x,)),
        Case("pow fraction", lambda x: torch.pow(x, 1.7), (x,)),
        Case("pow of scalar", lambda x: torch.pow(2, x), (small,)),
        Case("rsub", lambda x: torch.rsub(x, 3), (x,)),
        Case("div trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (x, x)),
        Case("div floor scalar", lambda x: torch.div(x, 3, rounding_mode="floor"), (x,)),
        Case("add broadcast row", torch.add, (x, Input((n,)))),
        Case("add broadcast column", torch.add, (x, Input((n, 1)))),
        Case("shift left", torch.bitwise_left_shift, (x, small)),
        Case("shift right", torch.bitwise_right_shift, (x, small)),
        Case("shift left scalar", lambda x: torch.bitwise_left_shift(x, 2), (x,)),
        Case("shift right scalar", lambda x: torch.bitwise_right_shift(x, 2), (x,)),
        Case("where", torch.where, (Input((n, n), "mask"), x, x)),
        Case("masked_fill", lambda x, m: x.masked_fill(m, 1), (x, Input((n, n), "mask"))),
        Case(
            "masked_fill tensor",
            lambda x, m, v: x.masked_fill(m, v),
            (x, Input((n, n), "mask"), Input(())),
        ),
    ]


def _reductions(n: int) -> list[Case]:
    x, cube = Input((n, n)), Input((n // 4, n // 4, 16))
    made = []
    for where, dim in (("rows", -1), ("columns", 0)):
        for name in [
            "sum",
            "mean",
            "amax",
            "amin",
            "prod",
            "argmax",
            "argmin",
            "any",
            "all",
            "max",
            "min",
            "var",
            "std",
        ]:
            function = partial(_along, getattr(torch, name), dim)
            made.append(Case(f"{name} of {where}", function, (x,)))
        for name in ["cumsum", "cumprod", "softmax", "log_softmax"]:
            function = partial(_along, getattr(torch, name), dim)
            made.append(Case(f"{name} of {where}", function, (x,)))
        made.append(Case(f"sort of {where}", lambda x, d=dim: x.sort(d), (x,)))
        made.append(Case(f"topk of {where}", lambda x, d=dim: x.topk(min(8, n), d), (x,)))
        made.append(
            Case(f"norm of {where}", lambda x, d=dim: torch.linalg.vector_norm(x, 2, d), (x,))
        )
    made += [
        Case(f"{name} of all", getattr(torch, name), (x,))
        for name in ["sum", "mean", "prod", "argmax", "argmin", "any", "all", "max", "min"]
    ]
    return [
        *made,
        Case("sum of the middle", lambda x: x.sum(1), (cube,)),
        Case("any of dims", lambda x: torch.any(x, (0, 1)), (cube,)),
        Case("all of dims", lambda x: torch.all(x, (0, 1)), (cube,)),
        Case("var_mean", lambda x: torch.var_mean(x, -1), (x,)),
        Case("var unbiased", lambda x: aten.var.dim(x, [-1], True), (x,)),
        Case("sort of one row", lambda x: x.sort(-1), (Input((n * n,)),)),
        Case("sort stable", lambda x: torch.sort(x, stable=True, dim=-1), (x,)),
        Case("cdist", torch.cdist, (Input((n, 16)), Input((n, 16)))),
        Case("cdist 1", lambda x, y: torch.cdist(x, y, p=1), (Input((n, 16)), Input((n, 16)))),
        Case("pdist", torch.pdist, (Input((n, 16)),)),
        Case("bucketize", torch.bucketize, (x, Input((64,), "sorted"))),
        Case("bucketize scalar", lambda b: torch.bucketize(3, b), (Input((n * n,), "sorted"),)),
        Case("searchsorted", torch.searchsorted, (Input((n, n), "sorted"), x)),
        Case("searchsorted 1", lambda b: torch.searchsorted(b, 3), (Input((n * n,), "sorted"),)),
    ]


def _products(n: int) -> list[Case]:
    x, image = Input((n, n)), Input((1, 16, n // 4, n // 4))
    batch = Input((4, n // 2, n // 2))
    taps = Input((16, 16, 3, 3))

    def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=1)

    def conv_backward(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return aten.convolution_backward(
            g, x, w, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        )

    return [
        Case("mm", torch.mm, (x, x)),
        Case("mm transposed", lambda x, y: torch.mm(x, y.t()), (x, x)),
        Case("bmm", torch.bmm, (batch, batch)),
        Case("addmm", torch.addmm, (Input((n,)), x, x)),
        Case("baddbmm", torch.baddbmm, (batch, batch, batch)),
        Case("linear", F.linear, (x, x, Input((n,)))),
        Case("linear of one row", F.linear, (Input((1, n)), x)),
        Case("mv", torch.mv, (x, Input((n,)))),
        Case("dot", torch.dot, (Input((n * n,)), Input((n * n,)))),
        Case("conv2d", conv, (image, taps)),
        Case("conv2d 1x1", F.conv2d, (image, Input((16, 16, 1, 1)))),
        Case("conv2d strided", lambda x, w: F.conv2d(x, w, stride=2, padding=1), (image, taps)),
        Case(
            "conv2d depthwise",
            lambda x, w: F.conv2d(x, w, padding=1, groups=16),
            (image, Input((16, 1, 3, 3))),
        ),
        Case("conv1d", F.conv1d, (Input((1, 16, n * n // 16)), Input((16, 16, 3)))),
        Case(
            "conv_transpose2d",
            lambda x, w: F.conv_transpose2d(x, w, stride=2),
            (Input((1, 16, n // 8, n // 8)), taps),
        ),
        Case("convolution_backward", conv_backward, (image, image, taps)),
    ]


def _normalizations(n: int) -> list[Case]:
    x, image, channels = Input((n, n)), Input((1, 16, n // 4, n // 4)), Input((16,))
    row = Input((n,))
    spatial = (n // 4) ** 2

    def legit_no_training(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor) -> Any:
        return aten._native_batch_norm_legit_no_training(x, w, w, m, w, 0.1, 1e-5)

    def layer_norm_backward(g: torch.Tensor, x: torch.Tensor, s: torch.Tensor) -> Any:
        return aten.native_layer_norm_backward(g, x, [n], s, s, None, None, [True, True, True])

    def group_norm_backward(
        g: torch.Tensor, x: torch.Tensor, m: torch.Tensor, w: torch.Tensor
    ) -> Any:
        return aten.native_group_norm_backward(g, x, m, m, w, 1, 16, spatial, 4, [True, True, True])

    return [
        Case("layer_norm", lambda x, w: F.layer_norm(x, (n,), w, w), (x, row)),
        Case("group_norm", lambda x, w: F.group_norm(x, 4, w, w), (image, channels)),
        Case("batch_norm", legit_no_training, (image, channels, channels)),
        Case(
            "batch_norm training",
            lambda x, w: aten._native_batch_norm_legit.no_stats(x, w, w, True, 0.1, 1e-5),
            (image, channels),
        ),
        Case(
            "batch_norm functional",
            lambda x, w: aten._native_batch_norm_legit_functional(x, w, w, w, w, True, 0.1, 1e-5),
            (image, channels),
        ),
        Case("layer_norm_backward", layer_norm_backward, (x, x, Input((n, 1)))),
        Case("group_norm_backward", group_norm_backward, (image, image, Input((1, 4)), channels)),
    ]


def _short_runs(n: int) -> list[Case]:
    """Operands that repeat, and results of few elements each: what costs time there is the walk."""
    threes, row = Input((n * n // 4, 3)), Input((3,))
    fours, column = Input((n * n // 4, 4)), Input((n * n // 4, 1))
    few = {"sum": (-1,), "mean": (-1,), "amax": (-1,), "amin": (-1,), "argmax": (-1,), "var": (-1,)}
    return [
        Case("mul by three", torch.mul, (threes, row)),
        Case("add a column of threes", torch.add, (threes, column)),
        Case("add to the middle", torch.add, (Input((n, 8, n // 8)), Input((8, 1)))),
        Case("where of fours", torch.where, (Input((4,), "mask"), fours, column)),
        Case("gt of fours", torch.gt, (fours, Input((4,)))),
        *(
            Case(f"{name} of fours", partial(_of, getattr(torch, name), dims), (fours,))
            for name, dims in few.items()
        ),
        Case("softmax of fours", partial(_of, torch.softmax, (-1,)), (fours,)),
        Case("cumsum of fours", partial(_of, torch.cumsum, (-1,)), (fours,)),
        Case("layer_norm of eights", _layer_norm_of_eights, (Input((n * n // 8, 8)),)),
    ]


def _of(function: Callable[..., Any], rest: tuple[Any, ...], x: torch.Tensor) -> Any:
    return function(x, *rest)


def _layer_norm_of_eights(x: torch.Tensor) -> Any:
    return F.layer_norm(x, (8,))


def cases(n: int = 256) -> list[Case]:
    """Calls on `n` * `n` elements; `n` is a multiple of 8."""
    from kernel_cases_shapes import images, indexing, shapes

    return [
        *_unary(n),
        *_binary(n),
        *_reductions(n),
        *_products(n),
        *_normalizations(n),
        *_short_runs(n),
        *images(n),
        *shapes(n),
        *indexing(n),
    ]
