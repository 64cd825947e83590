"""How far values are from those they should be, summed over batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class ErrorMetrics:
    """Sums over all elements seen, in float64."""

    signal: float = 0.0
    noise: float = 0.0
    energy: float = 0.0
    product: float = 0.0
    worst: float = 0.0
    count: int = 0

    def add(self, wanted: Any, got: Any) -> None:
        """ValueError if the shapes differ. Equal infinities and NaNs in both are no error."""
        wanted, got = torch.as_tensor(wanted), torch.as_tensor(got)
        if wanted.shape != got.shape:
            raise ValueError(
                f"[compare] the program's values must have the model's shape; got "
                f"{list(got.shape)} for {list(wanted.shape)}"
            )
        wanted, got = wanted.detach().double(), got.detach().double()
        same = (wanted == got) | (wanted.isnan() & got.isnan())
        difference = torch.where(same, 0.0, wanted - got)
        wanted = torch.where(wanted.isfinite(), wanted, 0.0)
        got = torch.where(got.isfinite(), got, 0.0)
        self.signal += float(wanted.square().sum())
        self.energy += float(got.square().sum())
        self.product += float((wanted * got).sum())
        self.count += wanted.numel()
        if difference.numel():
            # A value that is finite on one side only is infinite noise, not NaN.
            noise = _infinite(difference.square().sum())
            self.noise += float(noise)
            self.worst = max(self.worst, float(_infinite(difference.abs()).max()))

    @property
    def noise_to_signal(self) -> float:
        """Power of the error by power of the signal."""
        if self.noise == 0:
            return 0.0
        return self.noise / self.signal if self.signal else math.inf

    @property
    def rms(self) -> float:
        """Root mean square of what the values should be."""
        return math.sqrt(self.signal / self.count) if self.count else 0.0

    @property
    def sqnr_db(self) -> float:
        """Signal-to-quantization-noise ratio; infinite without noise."""
        return decibels(self.noise_to_signal)

    @property
    def cosine(self) -> float:
        """Of the angle between both, all elements in one vector; 1 if both are zero."""
        if self.signal == 0 and self.energy == 0:
            return 1.0
        norms = math.sqrt(self.signal) * math.sqrt(self.energy)
        return max(-1.0, min(1.0, self.product / norms)) if norms else 0.0


def _infinite(error: torch.Tensor) -> torch.Tensor:
    return error.nan_to_num(math.inf, math.inf)


def decibels(noise_to_signal: float) -> float:
    """Of the inverse: 20 for a hundredth. Infinite for 0."""
    if noise_to_signal == 0:
        return math.inf
    return -10 * math.log10(noise_to_signal) if math.isfinite(noise_to_signal) else -math.inf
