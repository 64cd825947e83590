"""How a tensor's values are distributed, in the float model and in the program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

BINS = 32


@dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of one width from low to high; the first and the last bin also
    have what lies outside."""

    low: float
    high: float
    wanted: tuple[int, ...]
    """The float model's."""
    got: tuple[int, ...]
    """The program's."""

    def bars(self) -> str:
        """The float model's in a line of text, two bins a letter, higher for more; by the root, to
        show rare ones."""
        pairs = [sum(self.wanted[at : at + 2]) for at in range(0, len(self.wanted), 2)]
        most = max(pairs, default=0)
        steps = "▁▂▃▄▅▆▇█"
        if not most:
            return ""
        heights = [round((len(steps) - 1) * (n / most) ** 0.5) for n in pairs]
        return "".join(steps[h] if n else " " for h, n in zip(heights, pairs, strict=True))


@dataclass
class Counting:
    """Makes a histogram, batch by batch. The first batch sets the range."""

    low: float = 0.0
    high: float = 0.0
    wanted: torch.Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.int64))
    got: torch.Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.int64))
    largest: float = 0.0
    """Magnitude of the float model's."""

    def add(self, wanted: Any, got: Any) -> None:
        """Tensors of any shapes; what is not finite is left out."""
        one, other = (_finite(value) for value in (wanted, got))
        if not one.numel():
            return
        if self.low == self.high:
            self.low, self.high = float(one.min()), float(one.max())
            if self.low == self.high:
                self.low, self.high = self.low - 0.5, self.high + 0.5
        self.largest = max(self.largest, float(one.abs().max()))
        self.wanted += self._counts(one)
        self.got += self._counts(other)

    def _counts(self, values: torch.Tensor) -> torch.Tensor:
        position = (values - self.low) * (BINS / (self.high - self.low))
        return torch.bincount(position.long().clamp(0, BINS - 1), minlength=BINS)

    def histogram(self) -> Histogram:
        """Of all that was added."""
        return Histogram(self.low, self.high, tuple(self.wanted.tolist()), tuple(self.got.tolist()))


def _finite(value: Any) -> torch.Tensor:
    flat = torch.as_tensor(value).detach().double().flatten()
    return flat[flat.isfinite()]
