"""When each token of a text is said, and the words that tokens make.

The scores of some heads of a Whisper's decoder, from its tokens to the sound, tell which part of
the sound a token is about. Dynamic time warping makes of them a path through the sound, token by
token. Source: "Robust Speech Recognition via Large-Scale Weak Supervision" and the word timestamps
of its code, as `transformers` has them, which tests compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.llm.text import TextStream, Tokenizer

__all__ = ["Word", "align", "spaced_words", "words_of"]

_WITHOUT_SPACES = {"zh", "ja", "th", "lo", "my", "yue"}
_OPENING = "\"'“¡¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001  (those of full width are meant)
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True)
class Word:
    """text: with the space before it and the punctuation at it. start, end: seconds."""

    text: str
    start: float
    end: float


def align(scores: Any, first: int, count: int, width: int) -> list[int]:
    """The steps of sound at which tokens begin, and behind them where the last one ends.

    scores: float32 [heads, rows, steps], of the tokens of a text and what stands before it, before
    a softmax. Row `first` is that behind which the first of `count` tokens is written. width: of a
    median over neighbouring steps, odd.
    """
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    spread = weights.std(-2, keepdims=True)
    # A step that all tokens look at alike tells nothing.
    weights = (weights - weights.mean(-2, keepdims=True)) / np.where(spread == 0, 1, spread)
    matrix = _smooth(weights, width).mean(0)[first : first + count + 1]
    return _path(-matrix)


def _smooth(values: Any, width: int) -> Any:
    """The median of each and its neighbours along the last dimension, reflected at its ends."""
    beside = width // 2
    if values.shape[-1] <= beside:
        return values
    padded = np.pad(values, ((0, 0), (0, 0), (beside, beside)), mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, -1), -1)


def _path(cost: Any) -> list[int]:
    """The column at which the cheapest monotonic path from the first to the last element of cost
    [rows, columns] enters each row."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, dtype=np.float32)
    total[0, 0] = 0
    came = np.empty((rows + 1, columns + 1), dtype=np.int8)
    came[0, :], came[:, 0] = 2, 1
    # Elements of one antidiagonal depend on the two before it alone.
    for both in range(2, rows + columns + 1):
        i = np.arange(max(1, both - columns), min(rows, both - 1) + 1)
        j = both - i
        aslant, above, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_aslant = (aslant < above) & (aslant < left)
        is_above = (above < aslant) & (above < left)
        came[i, j] = np.where(is_aslant, 0, np.where(is_above, 1, 2))
        least = np.where(is_aslant, aslant, np.where(is_above, above, left))
        total[i, j] = cost[i - 1, j - 1] + least
    entered = [0] * rows
    i, j = rows, columns
    while i > 0:
        entered[i - 1] = max(j - 1, 0)
        step = came[i, j]
        i, j = i - (step != 2), j - (step != 1)
    return entered


def words_of(
    tokens: Sequence[int],
    times: Sequence[float],
    tokenizer: Tokenizer,
    language: str | None,
) -> list[Word]:
    """The words of a text. times: when each token begins, and when the last ends. language: its
    code, such as en; in some each character is a word."""
    parts = _characters(tokens, tokenizer)
    if language not in _WITHOUT_SPACES:
        parts = _between_spaces(parts)
    words, at = [], 0
    for text, count in _with_punctuation(parts):
        words.append(Word(text, times[at], times[at + count]))
        at += count
    return [word for word in words if word.text.strip()]


def spaced_words(tokens: Sequence[int], times: Sequence[float], tokenizer: Tokenizer) -> list[Word]:
    """The same of a text whose words are what is between spaces."""
    words: list[Word] = []
    at = 0
    for text, count in _characters(tokens, tokenizer):
        if words and not text.startswith(" "):
            words[-1] = Word(words[-1].text + text, words[-1].start, times[at + count])
        else:
            words.append(Word(text, times[at], times[at + count]))
        at += count
    return [word for word in words if word.text.strip()]


_Parts = list[tuple[str, int]]
"""Texts, and of how many tokens."""


def _characters(tokens: Sequence[int], tokenizer: Tokenizer) -> _Parts:
    """The fewest tokens at a time that are whole characters."""
    stream, parts = TextStream(tokenizer), list[tuple[str, int]]()
    begin = 0
    for end, token in enumerate(tokens, 1):
        text = stream.add(token)
        if end == len(tokens):
            text += stream.rest()
        if text or end == len(tokens):
            parts.append((text, end - begin))
            begin = end
    return parts


def _between_spaces(parts: _Parts) -> _Parts:
    words: _Parts = []
    for text, count in parts:
        if words and not text.startswith(" ") and text.strip() not in _PUNCTUATION:
            words[-1] = (words[-1][0] + text, words[-1][1] + count)
        else:
            words.append((text, count))
    return words


def _with_punctuation(parts: _Parts) -> _Parts:
    """What opens goes to the word behind it, what closes to the one before."""
    words: _Parts = []
    for text, count in reversed(parts):
        if words and text.startswith(" ") and text.strip() in _OPENING:
            words[-1] = (text + words[-1][0], count + words[-1][1])
        else:
            words.append((text, count))
    words.reverse()
    joined: _Parts = []
    for text, count in words:
        if joined and not joined[-1][0].endswith(" ") and text in _CLOSING:
            joined[-1] = (joined[-1][0] + text, joined[-1][1] + count)
        else:
            joined.append((text, count))
    return joined
