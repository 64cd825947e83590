"""Speculative decoding: drafts of the tokens to come, which a model verifies several at a time.

The text is the same as without: each token is chosen from the model's own logits, and a draft only
decides how many of these one call computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.llm.generator import Generator

__all__ = ["DraftModel", "PromptLookup"]


class PromptLookup:
    """What followed the last time that the text had its last few tokens.

    count: tokens of a draft. longest: tokens that are looked for, then fewer, down to `shortest`.
    """

    def __init__(self, count: int = 8, longest: int = 3, shortest: int = 2) -> None:
        if count < 1 or not 1 <= shortest <= longest:
            raise ValueError(
                f"[draft] count must be 1 or more, and shortest from 1 to longest; got "
                f"{count}, {shortest} and {longest}"
            )
        self._count, self._longest, self._shortest = count, longest, shortest

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """See `edgewise.llm.draft.Draft`."""
        text = list(tokens)
        for size in range(min(self._longest, len(text) - 1), self._shortest - 1, -1):
            end = text[-size:]
            for first in range(len(text) - size - 1, -1, -1):
                if text[first : first + size] == end:
                    return text[first + size : first + size + self._count]
        return []


class DraftModel:
    """A small model's most likely tokens.

    generator: of a model with the same tokens. count: tokens of a draft.
    """

    def __init__(self, generator: Generator, count: int = 4) -> None:
        if count < 1:
            raise ValueError(f"[draft] count must be 1 or more; got {count}")
        self._generator, self._count = generator, count

    @property
    def vocab_size(self) -> int:
        """Of the small model."""
        return self._generator.vocab_size

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """See `Draft`. Nothing once the small model's context is full."""
        if len(tokens) + self._count > self._generator.max_context_len:
            return []
        return list(
            self._generator.generate(
                tokens, max_new_tokens=self._count, ignore_eos=True, reuse_prefix=True
            )
        )
