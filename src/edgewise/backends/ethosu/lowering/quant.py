"""How integers stand for real numbers, and the integer arithmetic that changes the scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, INT32
from edgewise.edge.quantized_decomposed import Quantized

TYPES = {torch.int8: INT8, torch.int16: INT16, torch.int32: INT32, torch.bool: "BOOL"}

MAX_SHIFT = 62
"""Of RESCALE, which multiplies by `multiplier / 2**shift`."""
MIN_SHIFT = 2


@dataclass(frozen=True)
class Quant(Quantized):
    """As the NPU's programs store them."""

    @property
    def type(self) -> str:
        """TOSA's name of the stored type."""
        return TYPES[self.dtype]

    @property
    def bits(self) -> int:
        """Of the stored type."""
        return torch.iinfo(self.dtype).bits

    @property
    def full(self) -> bool:
        """Whether the type itself has no more numbers than `low..high`."""
        info = torch.iinfo(self.dtype)
        return self.low <= info.min and self.high >= info.max

    def quantize(self, real: torch.Tensor) -> torch.Tensor:
        """As the program itself quantizes; NaN becomes the number for zero."""
        real = torch.where(real.isnan(), torch.zeros_like(real), real)
        stored: torch.Tensor = torch.ops.quantized_decomposed.quantize_per_tensor.default(
            real.float(), self.scale, self.zero_point, self.low, self.high, self.dtype
        )
        return stored

    def dequantize(self, stored: torch.Tensor) -> torch.Tensor:
        """As the program itself dequantizes: float32."""
        real: torch.Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor.default(
            stored.to(self.dtype), self.scale, self.zero_point, self.low, self.high, self.dtype
        )
        return real

    def number(self, real: float) -> int:
        """What a real number is stored as."""
        return int(self.quantize(torch.tensor([min(max(real, -3e38), 3e38)]))[0])

    def same_numbers(self, other: Quant) -> bool:
        """Whether stored numbers mean the same, and none of this has to be cut for the other."""
        return (
            (self.scale, self.zero_point, self.dtype)
            == (other.scale, other.zero_point, other.dtype)
        ) and ((other.low <= self.low and self.high <= other.high) or other.full)


class ScaleOutOfReach(ValueError):
    """A scale that a rescale has no shift for."""


def multipliers(scales: Sequence[float]) -> tuple[list[int], list[int]]:
    """For each positive scale: `multiplier / 2**shift` next to it, the multiplier of 31 bits.

    ScaleOutOfReach where a scale is so large that no shift is left.
    """
    found = [_multiplier(float(scale)) for scale in scales]
    return [m for m, _ in found], [s for _, s in found]


def _multiplier(scale: float) -> tuple[int, int]:
    mantissa, exponent = math.frexp(scale)
    multiplier, shift = round(mantissa * 2**31), 31 - exponent
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift - 1
    if shift > MAX_SHIFT:
        multiplier, shift = multiplier >> min(shift - MAX_SHIFT, 31), MAX_SHIFT
    if shift < MIN_SHIFT:
        raise ScaleOutOfReach(f"[rescale] scales must be below 2**29; got {scale}")
    return multiplier, shift


def at_borders(function: Any, real: torch.Tensor, step: float) -> torch.Tensor:
    """The function of each number. A number where it has no value stands for the border of the
    function's domain if that is less than half a step away: -1.0039 of acos for -1."""
    with torch.no_grad():
        values: torch.Tensor = function(real)
        for way in (-0.5, 0.5):
            missing = values.isnan()
            outside, inside = real[missing], real[missing] + way * step
            within = ~function(inside).isnan() if bool(missing.any()) else missing[:0]
            if not bool(within.any()):
                continue
            for _ in range(40):
                middle = (outside + inside) / 2
                known = ~function(middle).isnan()
                inside = torch.where(known, middle, inside)
                outside = torch.where(known, outside, middle)
            values[missing] = torch.where(within, function(inside), torch.nan)
    return values


def table_int8(source: Quant, result: Quant, function: Any) -> np.ndarray[Any, Any]:
    """The function of each stored number, from -128 to 127: exactly what the program computes."""
    stored = torch.arange(-128, 128, dtype=torch.int8)
    values = at_borders(function, source.dequantize(stored), source.scale)
    return result.quantize(values).numpy().astype(np.int8)


def table_int16(source: Quant, result: Quant, function: Any) -> np.ndarray[Any, Any]:
    """The function at every 128th stored number, from -32768 to 32768, in steps of the result from
    its zero point: TOSA interpolates."""
    stored = torch.arange(-256, 257, dtype=torch.float64) * 128
    real = (stored - source.zero_point) * source.scale
    found = at_borders(function, real.float(), 256 * source.scale).double()
    values = torch.nan_to_num(found / result.scale, nan=0.0)
    return values.round().clamp(-(2**15), 2**15 - 1).numpy().astype(np.int16)


def is_mask(values: torch.Tensor) -> bool:
    """Whether it leaves numbers as they are, or makes them minus infinity."""
    infinite = values == -math.inf
    return bool(infinite.any()) and bool(((values == 0) | infinite).all())


__all__ = ["TYPES", "Quant", "is_mask", "multipliers", "table_int8", "table_int16"]
