"""The observers of the static schemes, which give every range a scale of its own.

torchao's raise small scales to a floor (2**-12 in the schemes of others), below which constants and
activations silently become zero. These raise none that float32 has. A tensor or channel of nothing
but zeros, which has no range, has the scale ZEROS.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
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
    infinite for large ones. The search makes torchao's steps, but no more of them than change
    something: it takes 100,000 of Python's where the elements are few.
    """

    min_val: Tensor
    max_val: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Counts the elements of `x`, which it returns as it is. ValueError if one is NaN."""
        try:
            super().forward(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x)
        except RuntimeError as error:
            if bool(x.isfinite().all()):
                raise
            raise ValueError(
                "[quantize] calibration must show finite values; got NaN or infinity; try other "
                "calibration data (edgewise.compile names the node)"
            ) from error
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
            first, last = self._bins_to_keep()
            width = (self.max_val - self.min_val) / self.bins
            least, most = self.min_val + width * first, self.min_val + width * (last + 1)
        finally:
            self.min_val, self.max_val = low, high
        return least / factor, most / factor

    def _bins_to_keep(self) -> tuple[int, int]:
        """The first and the last. Steps by quantiles of 1e-5, at the end where one leaves out more
        bins, as long as the error falls."""
        sums = torch.cumsum(self.histogram, dim=0).cpu().numpy()
        total = torch.sum(self.histogram).item()
        rising, falling = _quantiles()
        lower = (rising * total).astype(sums.dtype)
        upper = (falling * total).astype(sums.dtype)
        rising_upper = -upper
        first, last = 0, self.bins - 1
        from_below, from_above = 0, 0  # steps so far
        least_error = math.inf
        while rising[from_below] < falling[from_above]:
            left = int(np.searchsorted(sums, lower[from_below + 1], "left"))
            right = int(np.searchsorted(sums, upper[from_above + 1], "right")) - 1
            left, right = min(max(left, first), last), max(min(right, last), first)
            if (left, right) == (first, last):  # until the upper quantile leaves the last bin
                changing = int(np.searchsorted(rising_upper, -sums[last], "right"))
                from_above = max(changing - 1, from_above + 1)
                continue
            if left - first > last - right:
                next_first, next_last = left, last
                from_below += 1
            else:
                next_first, next_last = first, right
                from_above += 1
            if (next_first, next_last) == (first, last):
                continue
            error = self._compute_quantization_error(next_first, next_last)
            if error > least_error:
                break
            least_error, first, last = error, next_first, next_last
        return first, last


@cache
def _quantiles() -> tuple[Any, Any]:
    """0, 1e-5, 2e-5, ... and 1 less these, with the rounding of their addition one by one. Float64,
    as long as they can be reached, and one more."""
    steps = np.full(100_003, 1e-5)
    rising, falling = steps.copy(), steps.copy()
    rising[0], falling[0] = 0.0, 1.0
    return np.add.accumulate(rising), np.subtract.accumulate(falling)


__all__ = [
    "LEAST",
    "ZEROS",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "PerChannelMinMaxObserver",
]
