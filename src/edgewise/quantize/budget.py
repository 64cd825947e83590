"""What quantization may cost: the user's side of `quantize="auto"`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Metric = Callable[[Callable[..., Any]], float]
"""Given what runs the model (inputs as the model's, results as tensors), says how good it is:
larger is better. Of a program, it has the file's bytes as its `buffer`."""

COSINE = 0.99
"""What a budget without any condition asks for."""


@dataclass(frozen=True)
class Budget:
    """Conditions on a quantized program; all that are given must hold.

    metric, drop: the program's figure may be below the float model's by this share of it. cosine:
    of the outputs with the float model's, the mean over samples, of the worst output. sqnr_db:
    their ratio of signal to noise. size: of the file, in bytes. latency: of the median call on
    this machine, in milliseconds. batches: inputs for cosine and ratio; None: the calibration
    data. seconds: no trial starts that would probably end later.

    With a condition on accuracy the cheapest way that keeps all is taken; without one the most
    accurate that does. ValueError for conditions that nothing can keep.
    """

    metric: Metric | None = None
    drop: float = 0.005
    cosine: float | None = None
    sqnr_db: float | None = None
    size: int | None = None
    latency: float | None = None
    batches: Iterable[Any] | None = None
    seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.metric is not None and not callable(self.metric):
            raise TypeError(
                f"[Budget] metric must be a function of what runs the model; got "
                f"{type(self.metric).__name__}; try metric=lambda run: accuracy(run, data)"
            )
        for name, low, high in (("drop", 0.0, 1.0), ("cosine", -1.0, 1.0)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"[Budget] {name} must lie in {low:g} to {high:g}; got {value}")
        for name in ("size", "latency", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"[Budget] {name} must be above 0; got {value}")

    @property
    def asks_accuracy(self) -> bool:
        """Whether a condition is on accuracy."""
        return any(one is not None for one in (self.metric, self.cosine, self.sqnr_db))


__all__ = ["COSINE", "Budget", "Metric"]
