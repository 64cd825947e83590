"""Calls with the special values of every type (tests/special_values.py), for make_cases.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from case_tables import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, Case, Maker, each, table

from special_values import FLOATING, pairs, special, spread

INF, NAN = math.inf, math.nan
SHORT = {F32: "f32", F64: "f64", F16: "f16", BF16: "bf16", I8: "i8", I16: "i16", I32: "i32",
         I64: "i64", U8: "u8", BOOL: "bool"}  # fmt: skip
WHOLE = (I8, I16, I32, I64, U8)

NAMED: dict[str, torch.Tensor] = {}
"""Operands that many calls share, by the name that their lines call them."""
for _type, _name in SHORT.items():
    _values = special(_type)
    if _type in FLOATING:  # and ordinary ones
        _values = torch.cat([_values, spread(_type, 81, 1e-3, 100.0)])
    NAMED[_name] = _values
    _left, _right = pairs(_type)
    if _type in WHOLE:  # what PyTorch itself stops at, and the CPU
        _kept = (_right != 0) & ~((_right == -1) & (_left == torch.iinfo(_type).min))
        NAMED[_name + "n"], NAMED[_name + "d"] = _left[_kept], _right[_kept]
    NAMED[_name + "l"], NAMED[_name + "r"] = _left, _right


def one(*types: torch.dtype, more: tuple[Any, ...] = ()) -> list[Maker]:
    """All special values of each type, before further arguments."""
    return each(types, lambda type_: (NAMED[SHORT[type_]], *more))


def two(*types: torch.dtype, more: tuple[Any, ...] = ()) -> list[Maker]:
    """Every pair of each type's corners."""
    return each(types, lambda type_: (NAMED[SHORT[type_] + "l"], NAMED[SHORT[type_] + "r"], *more))


def quotients(*types: torch.dtype, more: tuple[Any, ...] = ()) -> list[Maker]:
    """The same without what no integer is divided by."""
    return each(types, lambda type_: (NAMED[SHORT[type_] + "n"], NAMED[SHORT[type_] + "d"], *more))


def scalars(
    types: tuple[torch.dtype, ...], *numbers: float, more: tuple[Any, ...] = ()
) -> list[Maker]:
    """All special values with each number."""
    return [lambda p=p, t=t: (NAMED[SHORT[t]], p, *more) for t in types for p in numbers]


def ranges() -> list[tuple[str, Maker]]:
    """Casts to integers of what they hold: what they do not depends on the CPU in eager."""
    made = []
    for source in FLOATING:
        for target in (*WHOLE, BOOL):

            def maker(
                source: torch.dtype = source, target: torch.dtype = target
            ) -> tuple[Any, ...]:
                x = NAMED[SHORT[source]]
                if target != BOOL:
                    info, wide = torch.iinfo(target), x.double()
                    x = x[(wide > info.min - (target != I64)) & (wide < info.max)]
                return (torch.zeros(x.shape, dtype=target), x)

            made.append(("aten::copy.out", maker))
    return made


def rows(type_: torch.dtype) -> torch.Tensor:
    """Rows with infinities, NaN, both zeros, huge and tiny numbers, and equal ones."""
    most, least = torch.finfo(type_).max, torch.finfo(type_).smallest_normal
    return torch.tensor(
        [[1.0, NAN, 2.0, -1.0], [INF, 1.0, -INF, 0.0], [-INF] * 4, [INF, 1.0, 2.0, INF],
         [-0.0, 0.0, -0.0, 0.0], [-0.0] * 4, [3.0] * 4, [most, -most, 0.5, 1.0],
         [least, -least, 0.0, least], [NAN] * 4, [1.0, -INF, -INF, 2.0],
         [100.0, -100.0, 99.0, 0.0]],
        dtype=type_,
    )  # fmt: skip


def over_rows(*more: Any, types: tuple[torch.dtype, ...] = FLOATING) -> list[Maker]:
    """Those rows of each type, before further arguments."""
    return each(types, lambda type_: (rows(type_), *more))


ALL = (*FLOATING, *WHOLE)
SPECIAL: list[Case] = [
    *table("abs.out neg.out sign.out ceil.out floor.out trunc.out round.out", one(*ALL)),
    *table("relu.out", one(*ALL)),
    *table("isnan.out isinf.out logical_not.out", one(*ALL, BOOL)),
    *table("bitwise_not.out", one(*WHOLE, BOOL)),
    *table("acos.out acosh.out asin.out asinh.out atan.out atanh.out cos.out cosh.out erf.out "
           "erfc.out exp.out exp2.out expm1.out lgamma.out log.out log10.out log1p.out log2.out "
           "reciprocal.out rsqrt.out sigmoid.out sin.out sinh.out sqrt.out tan.out tanh.out",
           one(*FLOATING, I32, BOOL)),
    *table("silu.out hardswish.out hardsigmoid.out", one(*FLOATING)),
    *table("gelu.out", one(*FLOATING, more=("none",)), one(*FLOATING, more=("tanh",))),
    *table("elu.out", one(*FLOATING)),
    *table("leaky_relu.out", scalars(FLOATING, 0.01, -0.5)),
    *table("hardtanh.out", one(*FLOATING)),
    *table("logit.out", one(*FLOATING), scalars((F32, F64), 0.01)),
    *table("round.decimals_out", scalars((F32, F64), 2, -1)),
    *table("clamp.out", one(*FLOATING, more=(-0.5, 2.5)), one(*FLOATING, more=(0.0, None)),
           one(F32, F64, more=(None, -0.0)), one(F32, more=(NAN, None)), one(F32, more=(2.0, 1.0)),
           one(*WHOLE, more=(1, 5))),
    *table("add.out sub.out mul.out maximum.out minimum.out", two(*ALL)),
    # Which of two zeros fmax and fmin take is the C library's choice, in bfloat16 the second.
    *table("fmax.out fmin.out", two(F32, F64, F16, *WHOLE)),
    *table("div.out atan2.out", two(*FLOATING, I32)),
    *table("div.out_mode", *(m for mode in ("floor", "trunc") for m in (
        two(*FLOATING, more=(mode,)), quotients(*WHOLE, more=(mode,))))),
    *table("floor_divide.out remainder.Tensor_out fmod.Tensor_out", two(*FLOATING),
           quotients(*WHOLE)),
    *table("pow.Tensor_Tensor_out", two(*ALL)),
    *table("pow.Tensor_Scalar_out", scalars(FLOATING, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0,
                                            -2.0, 2.5, INF, -INF, NAN),
           scalars((I32,), 0, 1, 2, 3)),
    *table("pow.Scalar_out", [lambda p=p, t=t: (p, NAMED[SHORT[t]]) for t in FLOATING
                              for p in (0.0, -0.0, 1.0, -1.0, 2.0, -1.5, INF, NAN)]),
    *table("remainder.Scalar_out fmod.Scalar_out", scalars(FLOATING, 3.0, -2.5, INF)),
    *table("remainder.Scalar_out fmod.Scalar_out", scalars(WHOLE, 3, 7)),
    # Numbers that 16 bits do not hold.
    *table("pow.Tensor_Scalar_out remainder.Scalar_out fmod.Scalar_out", scalars((F16, BF16), 2.3)),
    *table("pow.Scalar_out", [lambda t=t: (1.001, NAMED[SHORT[t]]) for t in (F16, BF16)]),
    *table("add.Scalar_out sub.Scalar_out rsub.Scalar_out",
           scalars((F16, BF16), 0.37, more=(0.3,))),
    *table("div.Scalar_mode_out", scalars((F32, F64), 3.0, -2.5, more=("floor",))),
    *table("add.Scalar_out sub.Scalar_out rsub.Scalar_out mul.Scalar_out div.Scalar_out",
           scalars(FLOATING, -0.0, 0.1, INF)),
    *table("add.Scalar_out sub.Scalar_out rsub.Scalar_out mul.Scalar_out", scalars(WHOLE, 3)),
    *table("eq.Tensor_out ne.Tensor_out lt.Tensor_out le.Tensor_out gt.Tensor_out ge.Tensor_out "
           "logical_and.out logical_or.out logical_xor.out", two(F32, F16, I8, U8, I64)),
    *table("eq.Scalar_out ne.Scalar_out lt.Scalar_out le.Scalar_out gt.Scalar_out ge.Scalar_out",
           scalars((F32, F64), -0.0, 0.5, INF, NAN), scalars((F16, BF16), 0.37)),
    *table("bitwise_and.Tensor_out bitwise_or.Tensor_out bitwise_xor.Tensor_out",
           two(*WHOLE, BOOL)),
    *table("bitwise_left_shift.Tensor_out bitwise_right_shift.Tensor_out", two(*WHOLE)),
    *ranges(),
    *table("copy.out", [lambda s=s, t=t: (torch.zeros(NAMED[SHORT[s]].shape, dtype=t),
                                          NAMED[SHORT[s]])
                        for s in ALL for t in FLOATING if s != t]),
    *table("where.self_out", [lambda t=t: (NAMED[SHORT[t] + "l"] > 0, NAMED[SHORT[t] + "l"],
                                           NAMED[SHORT[t] + "r"]) for t in FLOATING]),
    *table("_softmax.out _log_softmax.out", over_rows(1, False), over_rows(0, False)),
    *table("sum.IntList_out mean.out", over_rows([1])),
    *table("prod.int_out cumsum.out cumprod.out", over_rows(1)),
    *table("amax.out amin.out", over_rows([1]), over_rows([0])),
    *table("max.dim_max min.dim_min", over_rows(1)),
    *table("argmax.out argmin.out", over_rows(1), over_rows(0), over_rows(None)),
    *table("sort.values_stable", over_rows(True, 1, False), over_rows(True, 1, True)),
    # Of equal elements eager's topk takes any; kernels the first.
    *table("topk.values", [lambda k=k: (rows(F32)[[0, 1, 7, 11]], k, 1) for k in (1, 2, 4)]),
    *table("any.out all.out", over_rows(1)),
    *table("max.unary_out min.unary_out", over_rows()),
    # Of infinite and huge rows eager's updates of the mean make NaN, by its order of additions.
    *table("var.correction_out std.correction_out", over_rows([1], types=(F32, F16, BF16))),
    *table("var.correction_out std.correction_out var_mean.correction_out",
           [lambda c=c: (rows(F64)[[0, 4, 5, 6, 8, 9, 11]], [1], c) for c in (0, 1, 4, 5)]),
    *table("linalg_vector_norm.out", *(over_rows(p, [1], types=(F32, F64)) for p in
                                       (0, 1, 2, 3, INF, -INF))),
    *table("nonzero.out", over_rows()),
]  # fmt: skip
