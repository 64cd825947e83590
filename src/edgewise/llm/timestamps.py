"""Times in what a Whisper writes: which tokens may follow, and the segments that they mark.

Source: "Robust Speech Recognition via Large-Scale Weak Supervision", and `generate` of
`transformers`, which tests compare with. A token for a time stands before and behind each segment,
in steps of 20 ms from the beginning of the sound that the encoder heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FRAMES_PER_STEP", "STEP", "Segment", "Timestamps"]

STEP = 0.02
"""Seconds between two times."""
FRAMES_PER_STEP = 2
"""Of features, for each step."""


@dataclass(frozen=True)
class Segment:
    """start, end: seconds from the beginning. tokens: of the text in between, without times.
    token_times: when each of them begins, and when the last ends, in seconds; empty if unknown."""

    start: float
    end: float
    tokens: list[int]
    token_times: Sequence[float] = ()


@dataclass(frozen=True)
class Timestamps:
    """Of a model. none: the token that says that a text has no times; behind it that of 0.00 s and
    all others follow. end: the token that ends a text; those of words are below it. most_first: the
    latest time that a text may begin with, in steps; None for any."""

    none: int
    end: int
    most_first: int | None = None

    @property
    def first(self) -> int:
        """The token of 0.00 s."""
        return self.none + 1

    def restrict(self, logits: Any, written: Sequence[int]) -> None:
        """Forbids in logits float32 [vocabulary] what may not follow a text: times come in pairs,
        do not go back, and one comes first; and words, where a time is likelier than any of them.
        """
        first = self.first
        logits[self.none] = -np.inf
        is_last_time = bool(written) and written[-1] >= first
        is_pair = is_last_time and (len(written) < 2 or written[-2] >= first)
        if is_pair:
            logits[first:] = -np.inf
        elif is_last_time:
            logits[: self.end] = -np.inf
        times = [token for token in written if token >= first]
        if times:
            least = times[-1] if is_last_time and not is_pair else times[-1] + 1
            logits[first:least] = -np.inf
        if not written:
            logits[:first] = -np.inf
            if self.most_first is not None:
                logits[first + self.most_first + 1 :] = -np.inf
        largest = logits[first:].max()
        if largest > -np.inf:
            together = largest + np.log(np.exp(logits[first:] - largest).sum(dtype=np.float64))
            if together > logits[:first].max():
                logits[:first] = -np.inf

    def segments(self, written: Sequence[int], frames: int) -> tuple[list[Segment], int]:
        """Of a text about so many frames of features (10 ms): what is whole in it, with times from
        the beginning of these, and how many frames on the next text begins."""
        is_time = [token >= self.first for token in written]
        cuts = [at + 1 for at in range(len(written) - 1) if is_time[at] and is_time[at + 1]]
        if not cuts:
            times = [token - self.first for token in written if token > self.first]
            ends_with = times[-1] if times else frames // FRAMES_PER_STEP
            return [self._segment(written, 0, ends_with)], frames
        is_whole = is_time[-2:] == [False, True]  # nothing is said behind the last time
        if is_whole:
            cuts.append(len(written))
        found = []
        for begin, end in zip([0, *cuts], cuts, strict=False):
            part = written[begin:end]
            found.append(self._segment(part, part[0] - self.first, part[-1] - self.first))
        if is_whole:
            return found, frames
        # What begins with the last time is cut off: it is heard again from there.
        moved = (written[cuts[-1] - 1] - self.first) * FRAMES_PER_STEP
        return found, moved if moved > 0 else frames

    def _segment(self, part: Sequence[int], start: int, end: int) -> Segment:
        words = [token for token in part if token < self.first]
        return Segment(start * STEP, end * STEP, words)
