"""How likely the tokens of a text were, as OpenAI's interface tells it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.llm.text import Tokenizer

__all__ = ["Logprob", "LogprobRecorder", "of_chat", "of_completion"]


@dataclass(frozen=True)
class Logprob:
    """text: of a token. logprob: None for a prompt's first. top: texts and logarithms of the
    likeliest tokens there, the likeliest first."""

    text: str
    logprob: float | None
    top: list[tuple[str, float]]


class LogprobRecorder:
    """For `Generator.generate(watch=...)`. most: likeliest tokens that are told with each."""

    def __init__(self, tokenizer: Tokenizer, most: int) -> None:
        self._tokenizer, self._most = tokenizer, most
        self._found: list[Logprob] = []

    def __call__(self, token: int, logits: Any) -> None:
        """logits: float [vocabulary], as the model gives them, without temperature or penalties;
        None for a token before which there is nothing."""
        if logits is None:
            self._found.append(Logprob(self._text(token), None, []))
            return
        numbers = np.asarray(logits, dtype=np.float64)
        largest = float(numbers.max())
        whole = largest + math.log(np.exp(numbers - largest).sum())
        top: list[int] = []
        if self._most:
            some = np.argpartition(-numbers, min(self._most, len(numbers)) - 1)[: self._most]
            top = sorted(some.tolist(), key=lambda one: (-numbers[one], one))
        self._found.append(
            Logprob(
                self._text(token),
                float(numbers[token]) - whole,
                [(self._text(one), float(numbers[one]) - whole) for one in top],
            )
        )

    def take(self) -> list[Logprob]:
        """Those since the last call."""
        found, self._found = self._found, []
        return found

    def _text(self, token: int) -> str:
        return self._tokenizer.decode([token], special=True)


def of_chat(found: Sequence[Logprob]) -> dict[str, Any]:
    """As `/v1/chat/completions` has them."""
    told = [
        {
            **_token(one.text, one.logprob),
            "top_logprobs": [_token(text, logprob) for text, logprob in one.top],
        }
        for one in found
    ]
    return {"content": told, "refusal": None}


def _by_text(one: Logprob) -> dict[str, float] | None:
    """With the token itself. Of tokens with the same text, as of parts of a character, the
    likeliest."""
    return None if one.logprob is None else {one.text: one.logprob} | dict(reversed(one.top))


def _token(text: str, logprob: float | None) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def of_completion(found: Sequence[Logprob], offset: int) -> dict[str, Any]:
    """As `/v1/completions` has them. offset: characters of the text before."""
    offsets = []
    for one in found:
        offsets.append(offset)
        offset += len(one.text)
    return {
        "tokens": [one.text for one in found],
        "token_logprobs": [one.logprob for one in found],
        "top_logprobs": [_by_text(one) for one in found],
        "text_offset": offsets,
    }
