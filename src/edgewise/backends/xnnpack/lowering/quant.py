"""How 8-bit and 4-bit values of the subgraph stand for real numbers.

A value's `quant` is one of these, or None for floating point. A real number is
`scale * (stored - zero_point)`; all but `PerTensor` have zero points of 0. Contents of 4-bit
constants are int8 until they are written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

INTEGERS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int32: (-(2**31), 2**31 - 1)}
"""Least and greatest number of each type of a quantized tensor."""

BLOCK_MULTIPLE = 32
"""XNNPACK's blocks have a multiple of this many weights."""

SMALLEST_BLOCK = 8
"""Of blocks that are padded to that multiple."""

MAX_RANK = 6
"""XNNPACK's limit on dimensions."""


@dataclass(frozen=True)
class PerTensor:
    """One scale and zero point; activations, weights, biases (int32)."""

    scale: float
    zero_point: int
    dtype: torch.dtype = torch.int8

    @property
    def low(self) -> float:
        """The least real number that can be stored."""
        return self.scale * (INTEGERS[self.dtype][0] - self.zero_point)

    @property
    def high(self) -> float:
        return self.scale * (INTEGERS[self.dtype][1] - self.zero_point)

    def holds(self, number: float) -> bool:
        """Whether the real number is stored without rounding, or is past what can be stored."""
        if number <= self.low or number >= self.high:
            return True
        steps = number / self.scale
        return abs(steps - round(steps)) < 1e-4

    def quantize(self, real: torch.Tensor) -> torch.Tensor:
        low, high = INTEGERS[self.dtype]
        steps = torch.round(real.float() * (1.0 / self.scale)) + self.zero_point
        return steps.clamp(low, high).to(self.dtype)


@dataclass(frozen=True, eq=False)
class PerChannel:
    """A scale for each index of a dimension; weights (8 or 4 bits) and biases (32)."""

    scales: torch.Tensor
    """float32, as many as dimension `axis` is large."""
    axis: int
    bits: int = 8


@dataclass(frozen=True, eq=False)
class PerBlock:
    """Weights [outputs, inputs] of 4 or 8 bits, a scale for every `size` inputs of an output.
    XNNPACK has kernels for 4 bits only."""

    scales: torch.Tensor
    """float32, [outputs, inputs / size]."""
    size: int
    bits: int = 4


@dataclass(frozen=True)
class PerToken:
    """8 bits with a scale and zero point that the runtime finds for each index of all but the
    last `dims` dimensions."""

    dims: int


Quant = PerTensor | PerChannel | PerBlock | PerToken


def is_scale(scale: float) -> bool:
    """Whether XNNPACK takes the number for a scale: normal (in float32) and positive."""
    return math.isfinite(scale) and scale >= 2.0**-126


def dequantize(stored: torch.Tensor, quant: Quant, dtype: torch.dtype) -> torch.Tensor:
    """The real numbers that a constant stands for."""
    if isinstance(quant, PerTensor):
        return ((stored.float() - quant.zero_point) * quant.scale).to(dtype)
    if isinstance(quant, PerChannel):
        shape = [1] * stored.dim()
        shape[quant.axis] = -1
        return (stored.float() * quant.scales.reshape(shape)).to(dtype)
    assert isinstance(quant, PerBlock)
    scales = quant.scales.repeat_interleave(quant.size, 1)
    return (stored.float() * scales).to(dtype)


def scaled(quant: Quant, factor: float) -> Quant:
    """What the same integers mean if all numbers are multiplied by a positive factor."""
    if isinstance(quant, PerTensor):
        return replace(quant, scale=quant.scale * factor)
    assert not isinstance(quant, PerToken)
    return replace(quant, scales=(quant.scales.double() * factor).float())


def rows_of(quant: Quant | None, rows: slice) -> Quant | None:
    """What some rows (indices of the first dimension) of weights or a bias mean."""
    if isinstance(quant, PerChannel) and quant.axis == 0:
        return PerChannel(quant.scales[rows], 0, quant.bits)
    if isinstance(quant, PerBlock):
        return replace(quant, scales=quant.scales[rows].contiguous())
    return quant


def pack_nibbles(stored: torch.Tensor) -> torch.Tensor:
    """Two numbers from -8 to 7 to a byte, the first in the low bits, 8 added to each."""
    flat = (stored.reshape(-1, 2) + 8).to(torch.uint8)
    return flat[:, 0] | (flat[:, 1] << 4)
