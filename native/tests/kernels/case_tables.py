"""The calls that make_cases.py records, by family: (kernel, maker of its arguments)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

Maker = Callable[[], tuple[Any, ...]]
Maker1 = Callable[[Any], tuple[Any, ...]]
Case = tuple[str, Maker]

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I8, I32, I64, U8, BOOL = torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool
I16 = torch.int16


@dataclass(frozen=True)
class Strided:
    """A tensor in channels-last memory."""

    tensor: torch.Tensor


def t(*shape: int, type_: torch.dtype = F32, low: float = -4, high: float = 4) -> torch.Tensor:
    """Numbers between `low` and `high`; integers for integer types."""
    if type_ == BOOL:
        return torch.rand(shape) < 0.5
    if type_.is_floating_point:
        # Few digits keep the lines short.
        return ((torch.rand(shape) * (high - low) + low) * 64).round().div(64).to(type_)
    low = max(low, 0) if type_ == U8 else low
    return torch.randint(int(low), int(high) + 1, shape, dtype=type_)


def last(*shape: int) -> Strided:
    """Numbers in channels-last memory."""
    return Strided(t(*shape).to(memory_format=torch.channels_last))


def index(*shape: int, size: int, type_: torch.dtype = I64) -> torch.Tensor:
    """Indices into a dimension."""
    return torch.randint(0, size, shape, dtype=type_)


def nan() -> torch.Tensor:
    """The special values of floating types."""
    return torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 0.0])


# Pairs of operands: same shapes, broadcasting, promotion, no dimensions, empty, layouts.
PAIRS: list[Maker] = [
    lambda: (t(2, 3), t(2, 3, low=0.5)),
    lambda: (t(2, 3), t(3, low=0.5)),
    lambda: (t(2, 1, 3), t(4, 1, low=0.5)),
    lambda: (t(3, type_=I64), t(3, low=0.5)),
    lambda: (t(3, type_=I64), t(low=0.5)),
    lambda: (t(3, type_=I8), t(3, type_=I32, low=1)),
    lambda: (t(3, type_=U8), t(3, type_=I8, low=1)),
    lambda: (t(3, type_=F16), t(3, low=0.5)),
    lambda: (t(3, type_=BF16), t(3, type_=BF16, low=0.5)),
    lambda: (t(3, type_=F16), t(low=0.5)),
    lambda: (t(3), t(type_=F64, low=0.5)),
    lambda: (t(3, type_=F64), t(3, low=0.5)),
    lambda: (t(0, 3), t(3, low=0.5)),
    lambda: (last(1, 2, 2, 3), t(1, 2, 2, 3, low=0.5)),
    lambda: (last(1, 2, 2, 3), t(2, 1, 1, low=0.5)),
]
WHOLE: list[Maker] = [
    lambda: (t(5, type_=I64, low=-9, high=9), t(5, type_=I64, low=1)),
    lambda: (t(5, type_=I64, low=-9, high=9), -t(5, type_=I64, low=1)),
    lambda: (t(5, type_=I32, low=-9, high=9), -t(2, 1, type_=I8, low=1)),
]
BOOLS: list[Maker] = [
    lambda: (t(4, type_=BOOL), t(4, type_=BOOL)),
    lambda: (t(4, type_=BOOL), t(2, 1, type_=I64)),
]


def each(values: Iterable[Any], make: Maker1) -> list[Maker]:
    """A maker for each of the values."""
    return [partial(make, value) for value in values]


def with_scalar(*scalars: float) -> list[Maker]:
    """Tensors of several types with each scalar."""
    pairs = product(scalars, (F32, F16, I64, U8))
    return each(pairs, lambda p: (t(2, 3, type_=p[1], high=9), p[0]))


def table(names: str, *makers: list[Maker]) -> list[Case]:
    """Each kernel with all arguments."""
    return [
        (f"aten::{name}", maker) for name in names.split() for group in makers for maker in group
    ]


ARITHMETIC: list[Case] = [
    *table("add.out mul.out maximum.out minimum.out", PAIRS, WHOLE, BOOLS),
    *table("sub.out div.out atan2.out", PAIRS, WHOLE),
    *table("fmod.Tensor_out remainder.Tensor_out floor_divide.out", PAIRS, WHOLE),
    *table("add.Scalar_out sub.Scalar_out rsub.Scalar_out", with_scalar(2, 1.5)),
    *table("mul.Scalar_out div.Scalar_out fmod.Scalar_out", with_scalar(2, -1.5)),
    *table("remainder.Scalar_out", with_scalar(2, -3, 1.5)),
    *table("pow.Tensor_Scalar_out", with_scalar(2, 3, 2.5)),
    *table("pow.Tensor_Tensor_out", [lambda: (t(4, low=0), t(4)), lambda: (t(4), t(4, type_=I32))]),
    *table("pow.Scalar_out", [lambda: (2, t(4)), lambda: (2, t(4, type_=I64, low=0)),
                              lambda: (1.5, t(4, type_=I64))]),
    *table("add.out sub.out", [lambda: (t(2, 3), t(3), 2), lambda: (t(2, 3), t(3), 0.5),
                               lambda: (t(3, type_=I32), t(3, type_=I32), -3)]),
    *table("div.out_mode", each(product(("floor", "trunc", None), (F32, I64, I16)), lambda p: (
        t(7, type_=p[1], low=-9, high=9), -t(7, type_=p[1], low=1), p[0]))),
    *table("div.Scalar_mode_out", each(("floor", "trunc", None),
                                       lambda m: (t(7, low=-9, high=9), 2.5, m))),
    *table("add.out", [lambda: (t(530), t(530))]),  # more than one block
    *table("maximum.out minimum.out add.out div.out", [lambda: (nan(), nan().flip(0))]),
]  # fmt: skip

LOGIC: list[Case] = [
    *table("eq.Tensor_out ne.Tensor_out lt.Tensor_out le.Tensor_out gt.Tensor_out ge.Tensor_out",
           PAIRS[:8], BOOLS, [lambda: (nan(), nan())]),
    *table("eq.Scalar_out ne.Scalar_out lt.Scalar_out le.Scalar_out gt.Scalar_out ge.Scalar_out",
           with_scalar(1, 0.5)),
    *table("logical_and.out logical_or.out logical_xor.out", PAIRS[:5], BOOLS),
    *table("bitwise_and.Tensor_out bitwise_or.Tensor_out bitwise_xor.Tensor_out", WHOLE, BOOLS),
    *table("bitwise_and.Scalar_out bitwise_or.Scalar_out bitwise_xor.Scalar_out",
           [lambda: (t(4, type_=I32), 3), lambda: (t(4, type_=BOOL), True)]),
    *table("where.self_out", [lambda: (t(2, 3, type_=BOOL), t(2, 3), t(3)),
                              lambda: (t(2, 1, type_=BOOL), t(3, type_=I64), t()),
                              lambda: (t(2, 3, type_=BOOL), t(1, type_=F16), t(3, type_=F16)),
                              lambda: (t(type_=BOOL), t(3, type_=I32), t(3, type_=I64))]),
    *table("masked_fill.Scalar_out", [lambda: (t(2, 3), t(3, type_=BOOL), float("-inf")),
                                      lambda: (t(2, 3, type_=I64), t(2, 1, type_=BOOL), 7)]),
    *table("masked_fill.Tensor_out", [lambda: (t(2, 3), t(3, type_=BOOL), t())]),
]  # fmt: skip

ANY: list[Maker] = [
    lambda: (t(2, 5),), lambda: (t(3, type_=F16),), lambda: (t(3, type_=BF16),),
    lambda: (t(3, type_=F64),), lambda: (nan(),), lambda: (last(1, 2, 2, 2),), lambda: (t(),),
]  # fmt: skip
POSITIVE: list[Maker] = [lambda: (t(2, 5, low=1),), lambda: (t(3, type_=F16, low=1),)]
UNIT: list[Maker] = [lambda: (t(2, 5, low=-0.9, high=0.9),)]
INTEGERS: list[Maker] = [lambda: (t(4, type_=I32),), lambda: (t(4, type_=U8),)]
FLAGS: list[Maker] = [lambda: (t(4, type_=BOOL),)]

UNARY: list[Case] = [
    *table("abs.out neg.out ceil.out floor.out trunc.out round.out sign.out", ANY, INTEGERS),
    *table("isnan.out isinf.out", ANY, INTEGERS, FLAGS),
    *table("logical_not.out", ANY, INTEGERS, FLAGS),
    *table("bitwise_not.out", INTEGERS, FLAGS),
    *table("exp.out expm1.out sigmoid.out tanh.out sin.out cos.out erf.out atan.out asinh.out "
           "sinh.out cosh.out tan.out reciprocal.out", ANY[:5], INTEGERS),
    *table("log.out log10.out log2.out log1p.out sqrt.out rsqrt.out acosh.out", POSITIVE),
    *table("acos.out asin.out atanh.out", UNIT),
    *table("logit.out", [lambda: (t(5, low=0.1, high=0.9),), lambda: (t(5), 0.1)]),
    *table("round.decimals_out", [lambda: (t(5), 1), lambda: (t(5, low=-99, high=99), -1)]),
    *table("relu.out", ANY, INTEGERS),
    *table("silu.out gelu.out elu.out leaky_relu.out", ANY[:4]),
    *table("hardtanh.out", ANY, INTEGERS[:1]),
    *table("hardswish.out hardsigmoid.out", ANY[:4]),
    *table("gelu.out", [lambda: (t(9), "tanh"), lambda: (t(3, type_=F16), "tanh")]),
    *table("elu.out", [lambda: (t(9), 2.0, 0.5, 1.5)]),
    *table("leaky_relu.out", [lambda: (t(9), 0.2)]),
    *table("hardtanh.out", [lambda: (t(9), 0, 6)]),
    *table("clamp.out", [lambda: (t(9), -1, 2), lambda: (t(9), None, 0.5), lambda: (t(9), 1, None),
                         lambda: (t(9, type_=I32), -1, 2), lambda: (t(9, type_=I32), 0.5, None),
                         lambda: (nan(), -1, 1)]),
    *table("clamp.Tensor_out", [lambda: (t(2, 3), t(3), t(3, high=6)), lambda: (t(3), None, t()),
                                lambda: (t(3, type_=I64), t(3), None)]),
]  # fmt: skip

COPIES: list[Case] = [
    *table("view_copy.out", [lambda: (t(2, 6), [3, 4]), lambda: (t(2, 6), [-1, 2]),
                             lambda: (last(1, 2, 2, 3), [2, 6]), lambda: (t(1), []),
                             lambda: (t(0, 3), [3, 0]), lambda: (t(2, 3, type_=BOOL), [6])]),
    *table("permute_copy.out", [lambda: (t(2, 3, 4), [2, 0, 1]), lambda: (t(2, 3), [-1, 0]),
                                lambda: (last(1, 2, 2, 3), [0, 2, 3, 1]), lambda: (t(), [])]),
    *table("transpose_copy.int_out", [lambda: (t(2, 3, 4), 1, 2), lambda: (t(2, 3, 4), -1, 0)]),
    *table("t_copy.out", [lambda: (t(2, 3),), lambda: (t(3),)]),
    *table("unsqueeze_copy.out", each((0, 1, 2, -1), lambda d: (t(2, 3), d))),
    *table("squeeze_copy.dim_out", [lambda: (t(2, 1, 3), 1), lambda: (t(2, 1, 3), 0)]),
    *table("squeeze_copy.dims_out", [lambda: (t(1, 2, 1), [0, -1]), lambda: (t(1, 2, 1), [1])]),
    *table("expand_copy.out", [lambda: (t(3, 1), [2, 3, 4]), lambda: (t(3), [2, -1]),
                               lambda: (t(), [2, 2]), lambda: (t(1, 3), [0, 3])]),
    *table("slice_copy.Tensor_out", [lambda: (t(5, 3), 0, 1, 4),
                                     lambda: (t(5, 3), 0, None, None, 2),
                                     lambda: (t(5, 3), -1, -2, 9223372036854775807),
                                     lambda: (t(5, 3), 0, 4, 2), lambda: (t(7), 0, -3, -1),
                                     lambda: (t(2, 9, type_=I64), 1, 1, 9, 3)]),
    *table("select_copy.int_out", [lambda: (t(2, 3), 0, 1), lambda: (t(2, 3), 1, -1),
                                   lambda: (t(3), 0, 2)]),
    *table("narrow_copy.out", [lambda: (t(2, 5), 1, 1, 3), lambda: (t(2, 5), 1, -2, 2)]),
    *table("clone.out", [lambda: (t(2, 3),), lambda: (last(1, 2, 2, 3),), lambda: (t(0),)]),
    *table("alias_copy.out detach_copy.out lift_fresh_copy.out", [lambda: (t(2, 3, type_=I8),)]),
    *table("copy.out", [lambda: (t(2, 3), t(3, type_=I64)), lambda: (t(2, 3, type_=I32), t(3)),
                        lambda: (t(2, 3, type_=BOOL), t(3, type_=I64)),
                        lambda: (t(2, type_=F16), t(2, type_=F64))]),
    *table("cat.out", [lambda: ([t(2, 3), t(1, 3)],), lambda: ([t(2, 3), t(2, 1), t(2, 2)], 1),
                       lambda: ([t(0), t(2, 3)], 0), lambda: ([t(2), t(2, type_=I64)],),
                       lambda: ([t(1, 2, 2, 3), t(1, 1, 2, 3)], 1)]),
    *table("stack.out", [lambda: ([t(2, 3), t(2, 3)],), lambda: ([t(2, 3), t(2, 3)], -1)]),
    *table("split_copy.Tensor_out", [lambda: (t(5, 2), 2), lambda: (t(2, 4), 2, 1)]),
    *table("split_with_sizes_copy.out", [lambda: (t(5, 2), [1, 4]), lambda: (t(2, 4), [0, 4], 1)]),
    *table("unbind_copy.int_out", [lambda: (t(3, 2),), lambda: (t(2, 3), -1)]),
    *table("repeat.out", [lambda: (t(2, 3), [2, 1]), lambda: (t(2), [2, 3]), lambda: (t(), [3]),
                          lambda: (t(2, 3), [0, 1])]),
    *table("constant_pad_nd.out", [lambda: (t(2, 3), [1, 2], 0.5), lambda: (t(2, 3), [0, 1, 2, 0]),
                                   lambda: (t(2, 5), [-1, -2], 1),
                                   lambda: (t(2, 2), [2, -1, -1, 0])]),
    *table("flip.out", [lambda: (t(2, 3), [0]), lambda: (t(2, 3), [0, -1]),
                        lambda: (t(2, 0), [0])]),
    *table("roll.out", [lambda: (t(5), [2], [0]), lambda: (t(3, 4), [1, -1], [0, 1]),
                        lambda: (t(3, 4), [-7], [-1])]),
    *table("as_strided_copy.out", [lambda: (t(3, 4), [2, 2], [4, 1], 1),
                                   lambda: (t(6), [3, 2], [1, 1])]),
    *table("slice_scatter.out", [lambda: (t(5, 2), t(2, 2), 0, 1, 3),
                                 lambda: (t(2, 5), t(2, 2), 1, 0, 4, 2)]),
    *table("select_scatter.out", [lambda: (t(3, 2), t(2), 0, 1), lambda: (t(3, 2), t(3), 1, -1)]),
    *table("tril.out triu.out", each((0, 1, -2, 9), lambda d: (t(2, 3, 4), d))),
    *table("diagonal_copy.out", [lambda: (t(3, 4), 1), lambda: (t(2, 3, 4), -1, 0, 2)]),
    *table("unfold_copy.out", [lambda: (t(2, 7), 1, 3, 2)]),
    *table("pixel_shuffle.out", [lambda: (t(1, 8, 2, 3), 2)]),
    *table("pixel_unshuffle.out", [lambda: (t(2, 4, 6), 2)]),
    *table("full_like.out", [lambda: (t(2, 3), 1.5)]),
    *table("zeros_like.out ones_like.out", [lambda: (t(2, 3),), lambda: (t(2, type_=I64),)]),
    *table("fill.Scalar_out", [lambda: (t(2, 3), 2), lambda: (t(2, type_=U8), 3)]),
    *table("fill.Tensor_out", [lambda: (t(2, 3), t())]),
]  # fmt: skip

INDEXING: list[Case] = [
    *table("embedding.out", [lambda: (t(5, 3), index(2, 2, size=5)),
                             lambda: (t(5, 3), index(size=5)),
                             lambda: (t(5, 3, type_=F16), index(4, size=5, type_=I32)),
                             lambda: (t(5, 3), index(0, size=5))]),
    *table("index_select.out", [lambda: (t(4, 3), 0, index(5, size=4)),
                                lambda: (t(2, 4, 3), -2, index(2, size=4, type_=I32))]),
    *table("gather.out", [lambda: (t(3, 4), 1, index(3, 2, size=4)),
                          lambda: (t(3, 4), 0, index(2, 4, size=3)),
                          lambda: (t(3, 4, type_=I8), -1, index(2, 5, size=4)),
                          lambda: (t(), 0, torch.tensor(0))]),
    *table("scatter.src_out", [lambda: (t(3, 4), 1, torch.tensor([[0, 2], [3, 1]]), t(2, 2)),
                               lambda: (t(), -1, torch.tensor(0), t())]),
    *table("scatter.value_out", [lambda: (t(3, 4), 0, index(2, 4, size=3), 7)]),
    *table("scatter_add.out", [lambda: (t(3, 4), 1, index(3, 6, size=4), t(3, 6))]),
    *table("index.Tensor_out", [
        lambda: (t(4, 3), [index(5, size=4)]),
        lambda: (t(4, 3), [None, index(2, size=3)]),
        lambda: (t(4, 3), [index(2, 2, size=4), index(2, size=3)]),
        lambda: (t(2, 3, 4), [index(2, size=2), None, index(2, size=4)]),
        lambda: (t(2, 3, 4), [None, index(3, 1, size=3), index(2, size=4)]),
        lambda: (t(4, 3), [torch.tensor([True, False, True, True])]),
        lambda: (t(4, 3), [t(4, 3, type_=BOOL)]),
        lambda: (t(2, 4, 3), [None, torch.tensor([True, False, False, True])]),
        lambda: (t(4, 3), [torch.tensor([-1, -4]), torch.tensor([0, -1], dtype=I64)]),
    ]),
    *table("index_put.out", [
        lambda: (t(4, 3), [torch.tensor([0, 2])], t(2, 3)),
        lambda: (t(4, 3), [torch.tensor([0, 2])], t(3)),
        lambda: (t(4, 3), [torch.tensor([0, 0, 2])], t(3, 3), True),
        lambda: (t(4, 3), [None, torch.tensor([2])], t(4, 1)),
        lambda: (t(4, 3), [torch.tensor([True, False, True, False])], t(1)),
        lambda: (t(2, 3, 4), [torch.tensor([1]), None, torch.tensor([0, 3])], t(2, 3)),
    ]),
    *table("nonzero.out", [lambda: (t(3, 4, type_=BOOL),), lambda: (t(5, type_=I32),)]),
    *table("argmax.out argmin.out", [lambda: (t(3, 4),), lambda: (t(3, 4), 1),
                                     lambda: (t(3, 4), 0, True),
                                     lambda: (last(1, 2, 2, 3),), lambda: (last(1, 2, 2, 3), 1),
                                     lambda: (t(5, type_=I64), -1), lambda: (nan(),)]),
    *table("max.dim_max min.dim_min", [lambda: (torch.randperm(12).reshape(3, 4).float(), 1),
                                       lambda: (torch.randperm(12).reshape(3, 4), 0, True),
                                       lambda: (nan(), 0)]),
    *table("cumsum.out", [lambda: (t(3, 4), 1), lambda: (t(3, 4, type_=I32), 0),
                          lambda: (t(3, type_=BOOL), 0)]),
    *table("topk.values", [lambda: (torch.randperm(12).reshape(3, 4).float(), 2),
                           lambda: (torch.randperm(12).reshape(3, 4), 2, 0, False)]),
    *table("sort.values", [lambda: (torch.randperm(12).reshape(3, 4).float(),),
                           lambda: (torch.randperm(12).reshape(3, 4).float(), 0, True)]),
    *table("glu.out", [lambda: (t(3, 4),)]),
]  # fmt: skip

REDUCE: list[Maker] = [
    lambda: (t(2, 3, 4), [1]), lambda: (t(2, 3, 4), [0, 2], True), lambda: (t(2, 3, 4), [-1]),
    lambda: (last(1, 3, 2, 2), [2, 3]), lambda: (last(1, 3, 2, 2), [1], True),
    lambda: (last(1, 2, 3, 4), [2, 3]), lambda: (t(3, type_=F16), [0]),
]  # fmt: skip
IMAGES: list[Maker] = [
    lambda: (t(1, 2, 5, 5), [2, 2]), lambda: (last(1, 2, 5, 5), [3, 3], [2, 2], [1, 1]),
    lambda: (t(2, 5, 6), [2, 3], [1, 2]),
]  # fmt: skip
NO_ARGS = [False, [0, 0]]


def conv(x: Any, weight: torch.Tensor, bias: Any, **options: Any) -> tuple[Any, ...]:
    """Arguments of convolution.out, with the defaults of torch.nn."""
    n = weight.dim() - 2
    return (x, weight, bias, options.get("stride", [1] * n), options.get("padding", [0] * n),
            options.get("dilation", [1] * n), options.get("transposed", False),
            options.get("extra", [0] * n), options.get("groups", 1))  # fmt: skip


NN: list[Case] = [
    *table("sum.IntList_out mean.out amax.out amin.out", REDUCE),
    *table("sum.IntList_out", [lambda: (t(2, 3), None), lambda: (t(2, 3, type_=I32), [0]),
                               lambda: (t(4, type_=BOOL), [0]), lambda: (t(2, 0), [1])]),
    *table("mean.dtype_out", [lambda: (t(2, 3),)]),
    *table("amax.out amin.out", [lambda: (t(2, 3), []), lambda: (t(5, type_=U8), [0]),
                                 lambda: (nan(), [0])]),
    *table("max.unary_out min.unary_out", [lambda: (t(2, 3),), lambda: (t(3, type_=I64),)]),
    *table("prod.out", [lambda: (t(2, 3),), lambda: (t(3, type_=I32),)]),
    *table("prod.int_out", [lambda: (t(2, 3), 1)]),
    *table("any.out all.out", [lambda: (t(2, 3, type_=BOOL), 1),
                               lambda: (t(2, 3, type_=I64), 0, True)]),
    *table("any.dims_out all.dims_out", [lambda: (t(2, 3, 2, type_=BOOL), [0, 2]),
                                         lambda: (t(2, 3), None)]),
    *table("any.all_out all.all_out", [lambda: (t(2, 3),), lambda: (t(0, type_=BOOL),)]),
    *table("var.correction_out std.correction_out", [lambda: (t(2, 5), [1])]),
    *table("var.out", [lambda: (t(2, 5), [1], False, True), lambda: (t(2, 5), [0, 1])]),
    *table("_softmax.out _log_softmax.out", [lambda: (t(2, 3, 4), -1, False),
                                             lambda: (t(2, 3, 4), 1, False),
                                             lambda: (last(1, 3, 2, 2), 1, False),
                                             lambda: (t(2, 3, type_=F16), 1, False),
                                             lambda: (t(), 0, False),
                                             lambda: (t(3, type_=F64), 0, False)]),
    *table("mm.out", [lambda: (t(5, 3), t(3, 9)), lambda: (t(1, 3), t(3, 1)),
                      lambda: (t(2, 0), t(0, 3)),
                      lambda: (t(2, 3, type_=I64), t(3, 2, type_=I64)),
                      lambda: (t(2, 3, type_=F64), t(3, 2, type_=F64))]),
    *table("bmm.out", [lambda: (t(2, 3, 4), t(2, 4, 5)), lambda: (t(1, 70, 3), t(1, 3, 2))]),
    *table("addmm.out", [lambda: (t(5), t(2, 3), t(3, 5)), lambda: (t(2, 1), t(2, 3), t(3, 5)),
                         lambda: (t(5), t(2, 3), t(3, 5), 0.5, 2)]),
    *table("baddbmm.out", [lambda: (t(5), t(2, 3, 4), t(2, 4, 5))]),
    *table("linear.out", [lambda: (t(2, 3, 4), t(5, 4), t(5)), lambda: (t(4), t(5, 4))]),
    *table("mv.out", [lambda: (t(3, 4), t(4))]),
    *table("dot.out", [lambda: (t(4), t(4))]),
    *table("native_layer_norm.out", [lambda: (t(2, 3, 4), [4], t(4), t(4), 1e-5),
                                     lambda: (t(2, 3, 4), [3, 4], None, None, 1e-3),
                                     lambda: (t(3, 8), [8], t(8), None, 1e-12)]),
    *table("native_group_norm.out", [lambda: (t(2, 4, 3), t(4), t(4), 2, 4, 3, 2, 1e-5)]),
    *table("_native_batch_norm_legit_no_training.out", [
        lambda: (t(2, 3, 2, 2), t(3), t(3), t(3), t(3, low=0.5), 0.1, 1e-5),
        lambda: (last(2, 3, 2, 2), None, None, t(3), t(3, low=0.5), 0.1, 1e-5)]),
    *table("convolution.out", [
        lambda: conv(t(1, 2, 5, 5), t(3, 2, 3, 3), t(3)),
        lambda: conv(t(2, 4, 5, 6), t(6, 2, 3, 2), None, stride=[2, 1], padding=[1, 0], groups=2),
        lambda: conv(t(1, 2, 7), t(3, 2, 3), t(3), dilation=[2], padding=[1]),
        lambda: conv(last(1, 3, 5, 5), t(3, 1, 3, 3), t(3), groups=3, padding=[1, 1]),
        lambda: conv(t(1, 2, 3, 3), t(2, 3, 3, 3), t(3), transposed=True, stride=[2, 2],
                       padding=[1, 1], extra=[1, 1]),
        lambda: conv(t(1, 4, 4), t(4, 1, 3), None, transposed=True, groups=2, stride=[2]),
        lambda: conv(t(1, 1, 3, 3, 3), t(2, 1, 2, 2, 2), t(2)),
    ]),
    *table("avg_pool2d.out max_pool2d_with_indices.out", IMAGES),
    *table("avg_pool2d.out", [lambda: (t(1, 1, 5, 5), [3, 3], [2, 2], [1, 1], True, False),
                              lambda: (t(1, 1, 5, 5), [2, 2], [2, 2], [0, 0], True, True, 3)]),
    *table("max_pool2d_with_indices.out", [lambda: (t(1, 1, 6, 6), [2, 2], [2, 2], [1, 1], [2, 2],
                                           True)]),
    *table("_adaptive_avg_pool2d.out", [lambda: (t(1, 2, 5, 7), [1, 1]),
                                        lambda: (last(1, 2, 5, 7), [3, 2]),
                                        lambda: (t(2, 3, 3), [5, 5])]),
    *table("upsample_nearest2d.vec_out", [lambda: (t(1, 2, 3, 3), None, [2.0, 2.0]),
                                          lambda: (t(1, 1, 3, 5), [4, 7], None)]),
    *table("upsample_nearest2d.out", [lambda: (t(1, 1, 3, 5), [5, 4])]),
    *table("upsample_bilinear2d.vec_out", [lambda: (t(1, 2, 3, 3), None, False, [2.0, 1.5]),
                                           lambda: (t(1, 1, 3, 5), [4, 7], True, None)]),
    *table("upsample_bilinear2d.out", [lambda: (last(1, 2, 3, 5), [2, 3], False)]),
]  # fmt: skip

QD, AO = "quantized_decomposed::", "torchao::"


def integers(*shape: int, low: int = -128, high: int = 127) -> torch.Tensor:
    """Numbers as quantization makes them."""
    return t(*shape, type_=I8, low=low, high=high)


def scales(*shape: int, type_: torch.dtype = F32) -> torch.Tensor:
    """Scales of steps between 1/32 and 1/8."""
    return t(*shape, low=1, high=4).div(32).to(type_)


ROW = [1, 4]  # blocks of a row
QUANTIZATION: list[Case] = [
    (QD + "quantize_per_tensor.out", lambda: (t(2, 3), 0.05, 3, -128, 127, I8)),
    (QD + "quantize_per_tensor.out", lambda: (t(2, 3, type_=F16), 0.05, 128, 0, 255, U8)),
    (QD + "quantize_per_tensor.out", lambda: (t(300), 0.001, 0, -100, 100, I8)),
    (QD + "quantize_per_tensor.out", lambda: (last(1, 2, 3, 2), 0.05, 3, -128, 127, I8)),
    (QD + "quantize_per_tensor.out", lambda: (t(), 0.05, 3, -32768, 32767, I16)),
    (QD + "quantize_per_tensor.out", lambda: (t(0, 2), 0.05, 3, -128, 127, I8)),
    (
        QD + "quantize_per_tensor.Tensor_out",
        lambda: (t(2, 3), scales(1, type_=F64), torch.tensor([5]), -128, 127, I8),
    ),
    (
        QD + "quantize_per_channel.out",
        lambda: (t(2, 3, 2), scales(3), t(3, type_=I64), 1, -128, 127, I8),
    ),
    (
        QD + "quantize_per_channel.out",
        lambda: (t(2, 3), scales(3, type_=F64), t(3, type_=I32), -1, -127, 127, I8),
    ),
    (
        QD + "quantize_per_token.out",
        lambda: (t(2, 2, 3), scales(2, 2, 1, type_=F64), t(2, 2, 1, type_=I64), -128, 127, I8),
    ),
    (QD + "dequantize_per_tensor.out", lambda: (integers(2, 3), 0.05, 3, -128, 127, I8)),
    (
        QD + "dequantize_per_tensor.out",
        lambda: (integers(2, 3), 0.05, 3, -128, 127, I8, F16),
    ),
    (
        QD + "dequantize_per_tensor.Tensor_out",
        lambda: (integers(3), scales(1), torch.tensor([5]), -128, 127, I8),
    ),
    (
        QD + "dequantize_per_channel.out",
        lambda: (integers(3, 2), scales(3), t(3, type_=I64), 0, -128, 127, I8),
    ),
    (
        QD + "dequantize_per_channel.out",
        lambda: (integers(2, 3), scales(3), None, 1, -128, 127, I8),
    ),
    (
        QD + "dequantize_per_token.out",
        lambda: (
            *(integers(2, 3), scales(2, 1, type_=F64), t(2, 1, type_=I64)),
            *(-128, 127, I8, F32),
        ),
    ),
    (
        QD + "dequantize_per_channel_group.out",
        lambda: (
            *(integers(2, 8, low=-8, high=7), scales(2, 2), t(2, 2, type_=I64)),
            *(-8, 7, I8, 4, F32),
        ),
    ),
    (QD + "choose_qparams.Tensor_out", lambda: (t(2, 3), -128, 127, 1e-5, I8)),
    (QD + "choose_qparams.Tensor_out", lambda: (t(300, low=1), -128, 127, 1e-5, I8)),
    (QD + "choose_qparams.Tensor_out", lambda: (torch.zeros(3), -128, 127, 1e-5, I8)),
    (QD + "choose_qparams_symmetric.Tensor_out", lambda: (t(2, 3), -127, 127, 1e-5, I8)),
    (QD + "choose_qparams_per_token.out", lambda: (t(2, 2, 3), I8)),
    (QD + "choose_qparams_per_token_asymmetric.out", lambda: (t(2, 2, 3), I8)),
    (
        AO + "choose_qparams_affine.out",
        lambda: (t(3, 4), "ASYMMETRIC", ROW, I8, -128, 127, None, F32, I8),
    ),
    (
        AO + "choose_qparams_affine.out",
        lambda: (t(2, 8), "SYMMETRIC", ROW, I8, -8, 7, 1e-6, F32, I32, True),
    ),
    (
        AO + "quantize_affine.out",
        lambda: (t(3, 4), ROW, scales(3), t(3, type_=I8), I8, -128, 127),
    ),
    (
        AO + "quantize_affine.out",
        lambda: (t(2, 8), ROW, scales(2, 2), t(2, 2, type_=I8), I8, -8, 7),
    ),
    (
        AO + "dequantize_affine.out",
        lambda: (integers(2, 8), ROW, scales(2, 2), t(2, 2, type_=I8), I8, -128, 127, F32),
    ),
    (
        AO + "dequantize_affine.out",
        lambda: (integers(2, 4), [2, 4], scales(1), None, I8, None, None, F16),
    ),
]

TABLES: dict[str, list[Case]] = {
    "arithmetic": ARITHMETIC,
    "logic": LOGIC,
    "unary": UNARY,
    "copies": COPIES,
    "indexing": INDEXING,
    "nn": NN,
    "quantization": QUANTIZATION,
}
