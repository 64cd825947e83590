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
}
"""Functions that eager computes with errors which a kernel need not have."""


def _exactly(
    function: Callable[..., Any], x: torch.Tensor, other: torch.Tensor, *args: Any
) -> torch.Tensor:
    """Element by element with many digits; `other` where x is huge, infinite or NaN."""
    with mpmath.workprec(400):
        values = [
            float(function(mpmath.mpf(v), *args)) if abs(v) < 1e4 else y
            for v, y in zip(x.flatten().tolist(), other.double().flatten().tolist(), strict=True)
        ]
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape)


def _single(value: Any) -> Any:
    """Numbers are float32 where float32 is computed with them."""
    return float(np.float32(value)) if isinstance(value, float) else value


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
    wide = torch.float64
    if name in OWN_ROUNDING:
        wide = torch.float32 if types & {*HALVES, torch.float32} else torch.float64
    if torch.float64 not in types:
        args = [
            _single(v) if kind == "number" else v
            for v, kind in zip(args, schema_types, strict=False)
        ]
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
    sum of |dy/dx x| over all operands' elements x. Of a sum that is the sum of its terms'
    magnitudes; of others it says how much of the operands' own rounding comes through."""
    row = accuracy(name)
    if row is None or not (row.single.terms or row.double.terms):
        return None
    leaves: list[torch.Tensor] = []

    def collect(x: torch.Tensor) -> Any:
        if not x.dtype.is_floating_point:
            return x
        leaves.append(x.double())
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

    shapes = [y.shape for y in function(*leaves)]
    totals = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    jacobians = torch.autograd.functional.jacobian(function, tuple(leaves))
    for k, total in enumerate(totals):
        for leaf, part in zip(leaves, jacobians[k], strict=True):
            total += (part * leaf).nan_to_num(0, 0, 0).abs().sum(list(range(total.dim(), part.dim())))
    return totals
