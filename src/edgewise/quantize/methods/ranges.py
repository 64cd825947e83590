"""Ranges of activations that leave out what is rare: by percentile, squared error or entropy.

The smallest and the largest value that calibration shows need not be worth a step of every other
value. All observers but the first keep a histogram of what they see (torchao's).

- "minmax": everything that was seen.
- "mse": the range whose rounding and clipping has the least squared error: torchao's
  `HistogramObserver`, what the schemes use unless told otherwise.
- "percentile": all but a share of the values, half of it at each end.
- "entropy": the range whose clipped and rounded histogram diverges least from the histogram
  (Kullback-Leibler); it clips tails of few values, so calibration must show many. Source: "8-bit
  Inference with TensorRT", S. Migacz, GTC 2017.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from edgewise.quantize._torchao import QuantizationSpec
from edgewise.quantize.config import QuantizationConfig
from edgewise.quantize.observers import HistogramObserver, MinMaxObserver

Tensor = torch.Tensor

OUTSIDE = 1e-4
"""Share of the values that a percentile leaves out."""


class PercentileObserver(HistogramObserver):
    """outside: the share of values that the range leaves out, half of it at each end."""

    def __init__(self, outside: float = OUTSIDE, **options: Any) -> None:
        super().__init__(**options)
        self.outside = outside

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        first, last = percentile_bins(self.histogram, self.outside)
        return _edges(self, first, last)


class EntropyObserver(HistogramObserver):
    """The range of least divergence."""

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        first, last = entropy_bins(self.histogram, self.quant_max - self.quant_min + 1)
        return _edges(self, first, last)


OBSERVERS: dict[str, Any] = {
    "minmax": MinMaxObserver,
    "mse": HistogramObserver,
    "percentile": PercentileObserver,
    "entropy": EntropyObserver,
}


def with_ranges(config: QuantizationConfig, ranges: str) -> QuantizationConfig:
    """The configuration with another observer for activations whose scales are fixed.

    ValueError if `ranges` is none of OBSERVERS.
    """
    if ranges not in OBSERVERS:
        raise ValueError(f"[ranges] must be one of {', '.join(OBSERVERS)}; got {ranges!r}")
    if config.is_qat:
        raise ValueError("[ranges] fake quantizers of training have ranges of their own; got qat")
    made = OBSERVERS[ranges]

    def replaced(spec: QuantizationSpec | None) -> QuantizationSpec | None:
        if spec is None or spec.is_dynamic:
            return spec
        return dataclasses.replace(spec, observer_or_fake_quant_ctr=made)

    given, computed = config.input_activation, config.output_activation
    changed = replaced(given)
    # Readers of one value share a scale if they have one specification.
    return dataclasses.replace(
        config,
        input_activation=changed,
        output_activation=changed if computed is given else replaced(computed),
    )


def percentile_bins(histogram: Tensor, outside: float) -> tuple[int, int]:
    """The first and the last bin with no more than half of `outside` beyond each."""
    total = histogram.double().sum()
    allowed = total * outside / 2
    below = histogram.double().cumsum(0)
    above = histogram.double().flip(0).cumsum(0)
    first = int((below <= allowed).sum())
    last = len(histogram) - 1 - int((above <= allowed).sum())
    return min(first, last), max(first, last)


def entropy_bins(histogram: Tensor, steps: int, candidates: int = 64) -> tuple[int, int]:
    """Of the ranges of bins within a distance of the fullest one, that of least divergence. steps:
    of the integers' type."""
    counts = histogram.double()
    bins = len(counts)
    seen = counts.nonzero().flatten()
    if len(seen) == 0:
        return 0, bins - 1
    low, high = int(seen[0]), int(seen[-1])
    mode = int(counts.argmax())
    best = (float("inf"), low, high)
    farthest = max(mode - low, high - mode)
    for index in range(candidates):
        reach = round(farthest * (1 - index / candidates))
        first, last = max(low, mode - reach), min(high, mode + reach)
        if last - first + 1 < min(steps, high - low + 1):
            break
        best = min(best, (_divergence(counts, first, last, steps), first, last))
    return best[1], best[2]


def _divergence(counts: Tensor, first: int, last: int, steps: int) -> float:
    """Of the histogram clipped to the range from what is left of it in `steps` steps, in nats."""
    inside = counts[first : last + 1]
    wanted = inside.clone()
    wanted[0] += counts[:first].sum()
    wanted[-1] += counts[last + 1 :].sum()
    step = torch.div(torch.arange(len(inside)) * steps, len(inside), rounding_mode="floor")
    sums = torch.zeros(steps, dtype=torch.float64).index_add_(0, step, inside)
    filled = torch.zeros(steps, dtype=torch.float64)
    filled.index_add_(0, step, (inside > 0).double())
    got = torch.where(inside > 0, (sums / filled.clamp(min=1))[step], 0.0)
    p, q = wanted / wanted.sum(), got / got.sum().clamp(min=1e-30)
    some = p > 0
    return float((p[some] * (p[some] / q[some].clamp(min=1e-12)).log()).sum())


def _edges(observer: Any, first: int, last: int) -> tuple[Tensor, Tensor]:
    width = (observer.max_val - observer.min_val) / observer.bins
    return observer.min_val + first * width, observer.min_val + (last + 1) * width


__all__ = [
    "OBSERVERS",
    "EntropyObserver",
    "PercentileObserver",
    "entropy_bins",
    "percentile_bins",
    "with_ranges",
]
