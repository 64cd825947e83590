"""Discrete Fourier transforms in real arithmetic: products with matrices, constant ones where the
length is.

A length with factors takes several small products (Cooley and Tukey 1965): of n numbers, about
`n * sum(factors)` multiplications.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["LARGEST_FACTOR", "LongFactor", "from_half_spectrum", "transform"]

_AT_ONCE = 512
"""Up to this length one product is faster than two small ones and the transposes around them."""
LARGEST_FACTOR = 4096
"""Of a length: a matrix has as many rows and twice as many columns."""

Parts = tuple[torch.Tensor, torch.Tensor | None]
"""Real and imaginary part; None for zeros."""


class LongFactor(ValueError):
    """A length has a prime factor above `LARGEST_FACTOR`."""


def transform(
    parts: Parts, sign: int, scale: Any = 1.0, kept: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of `x[j] * exp(sign * 2 pi i * j * k / n)` over the last dimension, times the scale, of
    the first `kept` k; None for all n. LongFactor for lengths that no matrix is made for; that of
    an open one is computed when the program runs."""
    length: Any = parts[0].shape[-1]
    kept = length if kept is None else kept
    if not isinstance(length, int):
        first, second = _of_open_length(parts, sign, kept)
        return first * scale, second * scale
    if _is_one_product(length):
        made = _times(parts, _matrix(length, sign, scale, kept))
        return made[..., :kept], made[..., kept:]
    outer = _divisor(length)
    inner = length // outer
    # x[inner * a + b], its sums over a, turned by b * k, their sums over b.
    columns = _both(parts, lambda t: t.unflatten(-1, (outer, inner)).transpose(-1, -2))
    first, second = transform(columns, sign)
    cosines, sines = _turns(inner, outer, sign, parts[0].dtype)
    turned = (first * cosines - second * sines, first * sines + second * cosines)
    sums = transform(_both(turned, lambda t: t.transpose(-1, -2)), sign, scale)
    first, second = _both(sums, lambda t: t.transpose(-1, -2).flatten(-2))
    return first[..., :kept], second[..., :kept]


def from_half_spectrum(
    real: torch.Tensor, imaginary: torch.Tensor, length: int, scale: float
) -> torch.Tensor:
    """The real numbers whose spectrum's first half is given: [..., length // 2 + 1] to
    [..., length]."""
    if _is_one_product(length):
        return _times((real, imaginary), _half_matrix(length, scale))
    # The other half is the first one's conjugate, backwards; what is real by nature counts as it.
    last = (length + 1) // 2
    inside = torch.ones(real.shape[-1], dtype=real.dtype)
    inside[0] = 0
    if length % 2 == 0:
        inside[-1] = 0
    imaginary = imaginary * inside
    back = [t[..., 1:last].flip(-1) for t in (real, imaginary)]
    whole = torch.cat([real, back[0]], -1), torch.cat([imaginary, -back[1]], -1)
    return transform(whole, 1, scale)[0]


def _of_open_length(parts: Parts, sign: int, kept: int) -> tuple[torch.Tensor, torch.Tensor]:
    real, imaginary = parts
    length = real.shape[-1]
    # Whole turns are taken off in integers, exactly.
    products = torch.arange(length).unsqueeze(1) * torch.arange(kept) % length
    angles = products.to(real.dtype) * (2 * math.pi) / length
    cosines, sines = angles.cos(), angles.sin() * sign
    if imaginary is None:
        return real @ cosines, real @ sines
    return real @ cosines - imaginary @ sines, real @ sines + imaginary @ cosines


def _is_one_product(length: int) -> bool:
    """Else it is several. LongFactor for lengths that no matrix is made for."""
    if length > _AT_ONCE and _divisor(length) > 1:
        return False
    if length > LARGEST_FACTOR:
        raise LongFactor(str(length))
    return True


def _both(parts: Parts, function: Any) -> Any:
    real, imaginary = parts
    return function(real), None if imaginary is None else function(imaginary)


def _times(parts: Parts, matrix: torch.Tensor) -> torch.Tensor:
    """[..., n] parts, side by side, by the rows of the matrix that are theirs."""
    real, imaginary = parts
    if imaginary is None:
        return real @ matrix[: real.shape[-1]].to(real.dtype)
    return torch.cat([real, imaginary], -1) @ matrix.to(real.dtype)


def _divisor(length: int) -> int:
    """The largest up to the square root."""
    return next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)


def _angles(rows: int, columns: int, length: int) -> torch.Tensor:
    """`2 pi * row * column / length`, float64, from whole turns taken off exactly."""
    products = torch.arange(rows).unsqueeze(1) * torch.arange(columns) % length
    return products.double() * (2 * math.pi / length)


def _matrix(length: int, sign: int, scale: float, kept: int) -> torch.Tensor:
    """float64 [2 * length, 2 * kept]: rows of real parts, then of imaginary ones."""
    with _disable_current_modes():
        angles = _angles(length, kept, length)
        cosines, sines = angles.cos() * scale, angles.sin() * (sign * scale)
        return torch.cat([torch.cat([cosines, sines], 1), torch.cat([-sines, cosines], 1)])


def _half_matrix(length: int, scale: float) -> torch.Tensor:
    """float64 [2 * (length // 2 + 1), length]."""
    with _disable_current_modes():
        half = length // 2 + 1
        angles = _angles(half, length, length)
        # What stands for itself and for its conjugate counts twice.
        times = torch.full((half, 1), 2.0, dtype=torch.float64)
        times[0] = 1
        if length % 2 == 0:
            times[-1] = 1
        return torch.cat([angles.cos() * times, -angles.sin() * times]) * scale


def _turns(rows: int, columns: int, sign: int, dtype: torch.dtype) -> tuple[torch.Tensor, Any]:
    with _disable_current_modes():
        angles = _angles(rows, columns, rows * columns)
        return angles.cos().to(dtype), (angles.sin() * sign).to(dtype)
