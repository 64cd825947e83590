"""Values at which operators go wrong, by data type: one table for rows and kernels.

What PyTorch gives for them in eager mode is the right answer, element by element. Where its
vector loops and its scalar loops differ, `AMBIGUOUS` says so and both are right.
"""

from __future__ import annotations

import math
from itertools import product

import torch

_INF, _NAN = math.inf, math.nan

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
)  # fmt: skip

# Positive numbers; each stands in the table with both signs. Types round them.
_ZERO_AND_LIMITS = (0.0, _INF)
_ROUNDING = (0.5, 1.5, 2.5, 3.5, 0.25, 1.0, 2.0, 3.0)  # halfway cases go to even
_SATURATION = (4.0, 6.0, 10.0, 20.0, 50.0, 100.0)  # hardswish, relu6, tanh, softplus, mish
_TURNS = (0.785398163, math.pi / 2, math.pi, 2 * math.pi, 355.0, 11.0, 22.0, 1e5)
_TYPE_LIMITS = (127.0, 128.0, 255.0, 256.0, 32767.0, 32768.0, 65504.0)  # of int8 to float16
_LARGE = (2.0**31, 2.0**63, 1e10, 1e22, 1e30)

# Where exp leaves the type: the last argument before infinity, the first after it; the last
# before denormals, the last before zero, the first at it.
_EXP = {
    torch.float32: (88.72283, 88.722847, 87.33655, 103.9720, 103.9723, 104.0),
    torch.float64: (709.782712893384, 709.782712893385, 708.3964, 745.1332, 745.1334, 746.0),
    torch.float16: (11.0859375, 11.09375, 9.703125, 17.3125, 17.328125, 17.5),
    torch.bfloat16: (88.5, 89.0, 87.5, 92.0, 92.5, 104.0),
}


def _neighbours(type_: torch.dtype) -> tuple[float, ...]:
    """Denormals, the smallest normal, the largest finite number, those next to 1 and to 1/2, and
    the largest with a fraction, with the first odd one beyond."""
    info = torch.finfo(type_)
    whole = 1 / info.eps  # the first from which on all numbers are integers
    return (
        info.smallest_normal * info.eps,  # the smallest denormal
        info.smallest_normal * (1 - info.eps),  # the largest
        info.smallest_normal,
        info.max,
        info.max / 2,
        info.eps,
        1 + info.eps,
        1 - info.eps / 2,
        0.5 - info.eps / 4,
        0.5 + info.eps / 2,
        whole / 2 - 0.5,
        whole / 2 + 0.5 if whole < 1e5 else whole / 2 + 1.5,
        whole + 1,
    )


def _floating(type_: torch.dtype) -> list[float]:
    """The table's row of a floating type: each value once, as the type holds it."""
    positive = (
        *_ZERO_AND_LIMITS, *_ROUNDING, *_neighbours(type_), *_EXP[type_], *_SATURATION, *_TURNS,
        *_TYPE_LIMITS, *(x for x in _LARGE if x <= torch.finfo(type_).max),
    )  # fmt: skip
    held = dict.fromkeys(torch.tensor(positive, dtype=torch.float64).to(type_).tolist())
    return [*held, *(-x for x in held), _NAN]


def _integers(type_: torch.dtype) -> list[int]:
    """The table's row of an integer type: its ends, the bits of shifts, the ends of narrower
    types, and what float32 and float64 do not hold."""
    info = torch.iinfo(type_)
    ends = [info.min, info.min + 1, info.max // 2, info.max // 2 + 1, info.max - 1, info.max]
    small = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 31, 32, 63, 64]
    narrow = [127, 128, 129, 255, 256, 32767, 32768, 65535, 65536, 2**24 + 1, 2**31, 2**53 + 1]
    both = [*small, *narrow, *(-x for x in small), *(-x for x in narrow)]
    return list(dict.fromkeys([*ends, *(x for x in both if info.min <= x <= info.max)]))


SPECIAL: dict[torch.dtype, list[float] | list[int] | list[bool]] = {
    **{type_: _floating(type_) for type_ in FLOATING},
    **{type_: _integers(type_) for type_ in INTEGERS},
    torch.bool: [False, True],
}
"""Every special value of a type."""


def _corners(type_: torch.dtype) -> list[float] | list[int] | list[bool]:
    if type_ == torch.bool:
        return [False, True]
    if not type_.is_floating_point:
        info = torch.iinfo(type_)
        near = (info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max)
        return list(dict.fromkeys(x for x in near if info.min <= x))
    info = torch.finfo(type_)
    smallest = info.smallest_normal * info.eps
    positive = (0.0, smallest, info.smallest_normal, 0.5, 1.0, 2.0, 2.5, 3.0, info.max, _INF)
    return [*positive, *(-x for x in positive), _NAN]


CORNERS: dict[torch.dtype, list[float] | list[int] | list[bool]] = {
    type_: _corners(type_) for type_ in (*FLOATING, *INTEGERS, torch.bool)
}
"""The values of a type whose every pair is a case for an operator of two."""

AMBIGUOUS: dict[str, str] = {}
"""Operator -> where eager's vector loops and its scalar loops differ."""


def special(type_: torch.dtype) -> torch.Tensor:
    """All special values of a type, of one dimension."""
    return torch.tensor(SPECIAL[type_], dtype=type_)


def pairs(left: torch.dtype, right: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of corners, as two tensors of one dimension."""
    first, second = zip(*product(CORNERS[left], CORNERS[right or left]), strict=True)
    return torch.tensor(first, dtype=left), torch.tensor(second, dtype=right or left)


def spread(type_: torch.dtype, count: int = 4096, low: float = 0, high: float = 0) -> torch.Tensor:
    """Numbers of both signs whose magnitudes are spread over all exponents of a floating type, or
    over those from `low` to `high`. The same in every call."""
    info = torch.finfo(type_)
    low = low or info.smallest_normal
    high = high or info.max
    random = torch.Generator().manual_seed(0)
    exponents = torch.rand(count, generator=random, dtype=torch.float64)
    signs = torch.randint(0, 2, (count,), generator=random) * 2 - 1
    magnitudes = torch.exp2(math.log2(low) + exponents * (math.log2(high) - math.log2(low)))
    return (signs * magnitudes.clamp(low, high)).to(type_)


def every(type_: torch.dtype) -> torch.Tensor:
    """Every number of a type of 16 bits; of NaN, which has many patterns, one."""
    found = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(type_)
    return torch.where(found.isnan(), _NAN, found)


def by_bits(type_: torch.dtype, count: int) -> torch.Tensor:
    """About `count` numbers of both signs from 0 to infinity, evenly over the patterns of their
    bits: of each exponent, and of denormal numbers as of one more, equally many. The same in
    every call."""
    bits = {torch.float64: torch.int64, torch.float32: torch.int32}.get(type_, torch.int16)
    last = int(torch.tensor(math.inf, dtype=type_).view(bits))
    step = max(1, 2 * last // count)
    # A prime beside the step: the lowest bits are not all the same.
    first = torch.arange(0, last - step, step, dtype=torch.int64)
    positive = (first + torch.arange(len(first)) * 7919 % step).to(bits).view(type_)
    return torch.cat([positive, -positive])


def steps(scale: float, zero_point: int, low: int, high: int) -> torch.Tensor:
    """For a quantization: numbers on its steps, halfway between two (ties) and on either side of
    that, and beyond its range; float32, of one dimension."""
    whole = torch.arange(low - 3, high + 4, dtype=torch.float64) - zero_point
    near = torch.tensor([0, 0.25, 0.5 - 2**-12, 0.5, 0.5 + 2**-12], dtype=torch.float64)
    return ((whole[:, None] + near) * scale).flatten().float()
