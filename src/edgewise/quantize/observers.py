"""The observers of the static schemes, which give every range a scale of its own.

torchao's raise small scales to a floor (2**-12 in the schemes of others), below which constants and
activations silently become zero. These raise none that float32 has. A tensor or channel of nothing
but zeros, which has no range, has the scale ZEROS.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from edgewise.quantize import _torchao

Tensor = torch.Tensor

ZEROS = 2.0**-12
"""The scale of what is nothing but zeros."""
LEAST = torch.finfo(torch.float32).tiny
"""The smallest scale of anything else: the smallest normal number of float32."""


class _OwnScale:
    """In front of an observer of torchao's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"eps": LEAST, **options})

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        scale, zero_point = super()._calculate_qparams(min_val, max_val)  # type: ignore[misc]
        zeros = ((min_val == 0) & (max_val == 0)).reshape(-1)
        if zeros.numel() == scale.numel():  # not before anything was seen
            scale = torch.where(zeros, ZEROS, scale)
        return scale, zero_point


class MinMaxObserver(_OwnScale, _torchao.MinMaxObserver):  # type: ignore[misc]
    """Of one scale."""


class PerChannelMinMaxObserver(_OwnScale, _torchao.PerChannelMinMaxObserver):  # type: ignore[misc]
    """Of one scale for each index of a dimension."""


class MovingAverageMinMaxObserver(
    _OwnScale,
    _torchao.MovingAverageMinMaxObserver,  # type: ignore[misc]
):
    """Of one scale, in training."""


class MovingAveragePerChannelMinMaxObserver(
    _OwnScale,
    _torchao.MovingAveragePerChannelMinMaxObserver,  # type: ignore[misc]
):
    """Of one scale for each index of a dimension, in training."""


class HistogramObserver(_OwnScale, _torchao.HistogramObserver):  # type: ignore[misc]
    """The range whose rounding and clipping has the least squared error.

    The histogram is counted in float32: `torch.histc` of a float16 tensor counts in float16, where
    above 2,048 counts are skipped and above 65,504 they are infinite. Errors are compared for a
    range of about 1: their sums have the cubes of widths, which are nothing for small ranges and
    infinite for large ones.
    """

    min_val: Tensor
    max_val: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Counts the elements of `x`, which it returns as it is."""
        super().forward(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x)
        return x

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        low, high = self.min_val, self.max_val
        reach = float(torch.maximum(low.abs(), high.abs()))
        if reach == 0 or not math.isfinite(reach):
            return super()._non_linear_param_search()  # type: ignore[no-any-return]
        exponent = min(max(math.frexp(reach)[1], -126), 126)
        factor = 2.0**-exponent  # exact in float32, as is 1 / factor
        self.min_val, self.max_val = low * factor, high * factor
        try:
            least, most = super()._non_linear_param_search()
        finally:
            self.min_val, self.max_val = low, high
        return least / factor, most / factor


__all__ = [
    "LEAST",
    "ZEROS",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "PerChannelMinMaxObserver",
]
