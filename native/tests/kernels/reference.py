"""Results that kernels are held to: eager PyTorch's, in float64 where the type's own rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import torch

from edgewise.emit.kernel_accuracy import accuracy

HALVES = (torch.float16, torch.bfloat16)

# The result depends on where the type itself rounds: float64 would go to another side of a tie.
OWN_ROUNDING = ("aten::div.out_mode", "aten::div.Scalar_mode_out", "aten::round.decimals_out")


def _gelu(x: Any, approximate: str) -> Any:
    """Without the difference of equals that eager's formula has for negative numbers."""
    if approximate == "none":
        return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2
    y = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
    return x / (1 + mpmath.exp(-2 * y))


EXACT: dict[str, Callable[..., Any]] = {
    "aten::gelu.out": _gelu,
    "aten::erfc.out": mpmath.erfc,
    "aten::sinh.out": mpmath.sinh,
    "aten::cosh.out": mpmath.cosh,
    "aten::silu.out": lambda x: x / (1 + mpmath.exp(-x)),
    "aten::sigmoid.out": lambda x: 1 / (1 + mpmath.exp(-x)),
    "aten::lgamma.out": lambda x: mpmath.loggamma(x).real,
    "aten::hardswish.out": lambda x: x * min(max(x + 3, 0), 6) / 6,
}
"""Functions that eager computes with errors which a kernel need not have."""


# Sleef's remainders, in loops over vectors, are NaN of large quotients; the C library's are exact.
SCALAR_LOOP = (
    "aten::fmod.Tensor_out",
    "aten::fmod.Scalar_out",
    "aten::remainder.Tensor_out",
    "aten::remainder.Scalar_out",
)


def _strided(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, which eager does not take for a vector loop."""
    return torch.stack([x, x], -1)[..., 0]


def _exactly(
    function: Callable[..., Any], x: torch.Tensor, other: torch.Tensor, *args: Any
) -> torch.Tensor:
    """Element by element with many digits; `other` where that does not go."""

    def value(v: float, instead: float) -> float:
        try:
            return float(function(mpmath.mpf(v), *args)) if np.isfinite(v) else instead
        except (OverflowError, ValueError):
            return instead

    with mpmath.workprec(400):
        pairs = zip(x.flatten().tolist(), other.double().flatten().tolist(), strict=True)
        return torch.tensor([value(*p) for p in pairs], dtype=torch.float64).reshape(x.shape)


def _sensitivity(function: Callable[..., Any], *args: Any) -> Callable[[Any], Any]:
    """x f'(x), by a difference that is small and has digits left; at least the value."""
    step = mpmath.mpf(2) ** -150

    def size(x: Any) -> Any:
        y = function(x, *args)
        return max(abs(function(x * (1 + step), *args) - y) / step, abs(y))

    return size


# Eager rounds numbers beside float16 and bfloat16 to that type first, on CPUs; not those of mul
# and div.
ROUNDS_NUMBERS = [
    *(f"aten::{name}.Scalar_out" for name in ("add", "sub", "rsub", "remainder", "fmod", "pow")),
    *(f"aten::{name}" for name in ("add.out", "sub.out", "pow.Tensor_Scalar_out")),
]


def _rounded(value: Any, type_: torch.dtype) -> Any:
    """A number as the type holds it."""
    return torch.tensor(value, dtype=type_).item() if isinstance(value, float) else value


def _map(function: Callable[[torch.Tensor], Any], values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        return [_map(function, v) for v in values]
    return function(values) if isinstance(values, torch.Tensor) else values


def _to(type_: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.to(type_) if x.dtype.is_floating_point else x


def _merge(own: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """What is wider is right where it is finite: an intermediate result of the type's own may
    have overflowed (cosh, hardswish), or Sleef's fmod given up. Zeros keep eager's sign."""
    rounded = wide.to(own.dtype)
    keep = (own == 0) & (rounded == 0) | ~rounded.isfinite() & ~(own.isnan() & ~rounded.isnan())
    return torch.where(keep, own, rounded)


def references(
    name: str,
    call: Callable[..., Any],
    schema_types: Sequence[str],
    args: Sequence[Any],
    keywords: dict[str, Any],
    own: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """The results to hold a kernel to, given eager's own for these arguments."""
    if not name.startswith("aten::") or not any(y.dtype.is_floating_point for y in own):
        return list(own)
    types = {y.dtype for y in own if y.dtype.is_floating_point}
    if name in EXACT and args[0].dtype.is_floating_point:
        other = call(_to(torch.float64)(args[0]), *args[1:], **keywords)
        exact = _exactly(EXACT[name], args[0].double(), other, *args[1:], *keywords.values())
        return [_merge(own[0], exact)]
    if name in SCALAR_LOOP:
        return [call(*_map(_strided, list(args)), **keywords)]
    wide = torch.float64
    if name in OWN_ROUNDING:
        wide = torch.float32 if types & {*HALVES, torch.float32} else torch.float64
    if torch.float64 not in types:
        # Numbers are float32 where float32 is computed with them.
        (half,) = types if name in ROUNDS_NUMBERS and types <= {*HALVES} else (torch.float32,)
        args = [
            _rounded(v, half) if kind == "number" else v
            for v, kind in zip(args, schema_types, strict=False)
        ]
        keywords = {k: _rounded(v, half) if k == "alpha" else v for k, v in keywords.items()}
    try:
        results = call(*_map(_to(wide), list(args)), **_map(_to(wide), keywords))
    except RuntimeError:
        return list(own)
    results = [results] if isinstance(results, torch.Tensor) else results
    return [
        _merge(o, w) if o.dtype.is_floating_point and o.shape == w.shape else o
        for o, w in zip(own, results, strict=True)
    ]


def magnitudes(
    name: str, call: Callable[..., Any], args: Sequence[Any], keywords: dict[str, Any]
) -> list[torch.Tensor] | None:
    """For kernels whose bound counts the terms' magnitudes: of each element y of each result, the
    sum of |dy/dx x| over all operands' elements x, at least |y|. Of a sum that is the sum of its
    terms' magnitudes; of others it says how much of the operands' own rounding comes through."""
    row = accuracy(name)
    if row is None or not (row.single.terms or row.double.terms):
        return None
    if name in EXACT:
        x, more = args[0].double(), (*args[1:], *keywords.values())
        with mpmath.workprec(400):
            return [_exactly(_sensitivity(EXACT[name], *more), x, torch.zeros_like(x))]
    leaves: list[torch.Tensor] = []

    def collect(x: torch.Tensor) -> Any:
        if not x.dtype.is_floating_point:
            return x
        leaves.append(x.double().clone())
        return len(leaves) - 1, "leaf"

    def fill(values: Any, given: Sequence[torch.Tensor]) -> Any:
        if isinstance(values, tuple) and len(values) == 2 and values[1] == "leaf":
            return given[values[0]]
        return [fill(v, given) for v in values] if isinstance(values, list) else values

    held, kept = _map(collect, list(args)), {k: _map(collect, v) for k, v in keywords.items()}

    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        options = {k: fill(v, given) for k, v in kept.items()}
        results = call(*fill(held, given), **options)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        return tuple(y.double() for y in results)

    if not leaves:
        return None
    if "upsample" in name:
        # Positions between pixels are rounded as numbers up to the longest side.
        size = float(leaves[0].abs().max()) * max(leaves[0].shape[2:])
        return [torch.full(y.shape, size) for y in function(*leaves)]
    # A logarithm of about 1 and a position between pixels are rounded as numbers of about 1.
    floor = 1.0 if "_log_softmax" in name else 0.0
    least = 1.0 if "grid_sampler" in name else 0.0
    values = function(*leaves)
    totals = [torch.full(y.shape, floor, dtype=torch.float64) for y in values]
    for leaf in leaves:
        flat = leaf.flatten()
        for i, held_value in enumerate(flat.tolist()):
            size = max(abs(held_value), least)
            if size == 0 or not np.isfinite(size):
                continue
            sides = []
            for step in (2.0**-20, -(2.0**-20)):
                flat[i] = held_value + size * step
                leaf.copy_(flat.reshape(leaf.shape))
                sides.append(function(*leaves))
            flat[i] = held_value
            for total, above, below in zip(totals, *sides, strict=True):
                total += ((above - below) * 2.0**19).nan_to_num(np.inf, np.inf, np.inf).abs()
        leaf.copy_(flat.reshape(leaf.shape))
    return [torch.maximum(t, y.abs()) for t, y in zip(totals, values, strict=True)]
