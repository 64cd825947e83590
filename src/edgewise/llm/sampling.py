"""The next token from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 takes the most likely token; what follows is then not used. top_k: only the
    k most likely tokens. top_p: only the most likely ones that together have this probability.
    seed: for the same tokens every time. ValueError if a value is out of its range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(
                f"[sampling] temperature must be 0 or more, and finite; got {self.temperature}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"[sampling] top_k must be 1 or more; got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"[sampling] top_p must be above 0 and at most 1; got {self.top_p}")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"[sampling] seed must be 0 or more; got {self.seed}")


class Sampler:
    """Draws tokens, one after the other."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def __call__(self, logits: Any) -> int:
        """logits: float [vocabulary]. ValueError if one of them is NaN, or all are -infinity."""
        largest = int(np.argmax(logits))
        if not np.isfinite(logits[largest]):
            raise ValueError(
                f"[sampling] logits must be numbers; got {logits[largest]} for token {largest}"
            )
        if self._sampling.temperature == 0:
            return largest
        candidates, probabilities = self._distribution(logits)
        return int(self._random.choice(candidates, p=probabilities))

    def _distribution(self, logits: Any) -> tuple[Any, Any]:
        """Tokens, most likely first where that matters, and their probabilities."""
        sampling = self._sampling
        candidates = np.arange(len(logits))
        if sampling.top_k is not None and sampling.top_k < len(logits):
            candidates = np.argpartition(logits, -sampling.top_k)[-sampling.top_k :]
        scores = logits[candidates].astype(np.float64) / sampling.temperature
        powers = np.exp(scores - scores.max())
        probabilities = powers / powers.sum()
        if sampling.top_p is not None and sampling.top_p < 1:
            order = np.argsort(-probabilities, kind="stable")
            before = np.cumsum(probabilities[order]) - probabilities[order]
            order = order[: max(1, int(np.count_nonzero(before < sampling.top_p)))]
            candidates, probabilities = candidates[order], probabilities[order]
            probabilities = probabilities / probabilities.sum()
        return candidates, probabilities
