"""The next token from logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Sampler", "Sampling"]

_INFINITE = float("inf")


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 takes the most likely token; what follows up to `seed` is then not used.
    top_k: only the k most likely tokens. top_p: only the most likely ones that together have this
    probability. min_p: only tokens of at least this share of the most likely one's probability.
    seed: for the same tokens every time.

    repetition_penalty: logits of tokens that the prompt or the text has are divided by it, or
    multiplied where they are negative. presence_penalty, frequency_penalty: taken from the logits
    of tokens that the text has, once or as often as it has them. logit_bias: added to the logits of
    tokens. All four before the temperature, and where that is 0, too.

    ValueError if a value is out of its range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < _INFINITE:
            raise ValueError(
                f"[sampling] temperature must be 0 or more, and finite; got {self.temperature}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"[sampling] top_k must be 1 or more; got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"[sampling] top_p must be above 0 and at most 1; got {self.top_p}")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"[sampling] seed must be 0 or more; got {self.seed}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"[sampling] min_p must be from 0 to 1; got {self.min_p}")
        if not 0 < self.repetition_penalty < _INFINITE:
            raise ValueError(
                f"[sampling] repetition_penalty must be above 0, and finite; "
                f"got {self.repetition_penalty}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            if not -_INFINITE < getattr(self, name) < _INFINITE:
                raise ValueError(f"[sampling] {name} must be finite; got {getattr(self, name)}")
        for token, bias in self.logit_bias.items():
            if token < 0 or not -_INFINITE < bias < _INFINITE:
                raise ValueError(
                    f"[sampling] logit_bias must be finite, of tokens from 0 on; got {bias} of "
                    f"{token}"
                )


class Sampler:
    """Draws tokens, one after the other. `note` tells it what became of the text."""

    def __init__(self, sampling: Sampling, prompt: Iterable[int] = ()) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._prompt = set(prompt) if sampling.repetition_penalty != 1 else set()
        self._counts: dict[int, int] = {}
        penalties = sampling.presence_penalty, sampling.frequency_penalty
        self._counted = sampling.repetition_penalty != 1 or any(penalties)

    def note(self, token: int) -> None:
        """That the token is part of the text."""
        if self._counted:
            self._counts[token] = self._counts.get(token, 0) + 1

    def __call__(self, logits: Any, allowed: Any = None) -> int:
        """logits: float [vocabulary]. allowed: bool [vocabulary], tokens that can be drawn; None
        for all. ValueError if the best is NaN, or none has a probability."""
        if self._counted:
            logits = self._penalized(logits)
        if self._sampling.logit_bias:
            logits = np.array(logits, dtype=np.float32)
            for token, bias in self._sampling.logit_bias.items():
                logits[token] += bias
        if allowed is not None:
            logits = np.where(allowed, logits, -np.inf)
        largest = int(np.argmax(logits))
        if not np.isfinite(logits[largest]):
            raise ValueError(
                f"[sampling] logits must be numbers; got {logits[largest]} for token {largest}"
            )
        if self._sampling.temperature == 0:
            return largest
        candidates, probabilities = self._distribution(logits)
        return int(self._random.choice(candidates, p=probabilities))

    def _penalized(self, logits: Any) -> Any:
        sampling = self._sampling
        logits = np.array(logits, dtype=np.float32)
        if sampling.repetition_penalty != 1:
            seen = np.fromiter(self._prompt | self._counts.keys(), dtype=np.int64)
            seen = seen[seen < len(logits)]
            found = logits[seen]
            penalty = sampling.repetition_penalty
            logits[seen] = np.where(found < 0, found * penalty, found / penalty)
        for token, count in self._counts.items():
            logits[token] -= sampling.presence_penalty + count * sampling.frequency_penalty
        return logits

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
        if sampling.min_p is not None:
            likely = probabilities >= sampling.min_p * probabilities.max()
            candidates, probabilities = candidates[likely], probabilities[likely]
            probabilities = probabilities / probabilities.sum()
        return candidates, probabilities
