"""Tokens from a program with a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.calls import calls_of, constants
from edgewise.llm.constraint import Constraint
from edgewise.llm.draft import Draft
from edgewise.llm.media import Media
from edgewise.llm.sampling import Sampler, Sampling
from edgewise.runtime import Program, Runtime

__all__ = ["Generator", "Statistics"]


@dataclass
class Statistics:
    """Of one call of `generate`. The first new token comes with the prompt's time.

    ended: "" while it goes on; then "end" (a token that ends the text, or what it must be is
    complete), "length" (as many tokens as wanted), "context" (the context is full) or "stopped"
    (by the caller). reused_tokens: of the prompt, that were in the cache. drafted_tokens and
    accepted_tokens: by speculative decoding. shifts: how often the oldest part of the
    text was left out.
    """

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    new_tokens: int = 0
    decode_seconds: float = 0.0
    ended: str = ""
    reused_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    shifts: int = 0

    @property
    def prompt_rate(self) -> float:
        """Tokens of the prompt that were computed per second; 0 before any."""
        computed = self.prompt_tokens - self.reused_tokens
        return computed / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """New tokens after the first, per second; 0 without any."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True)
class _Request:
    sampler: Sampler
    max_new_tokens: int | None
    ignore_eos: bool
    draft: Draft | None
    constraint: Constraint | None
    context_shift: int | None
    watch: Callable[[int, Any], None] | None


class Generator:
    """A language model in a file, with one cache: calls of `generate` one after the other.

    The file's method is `forward(tokens int64 [1, S], input_pos int64 [1]) -> logits`, the
    interface of ExecuTorch's runner for language models, or has all positions, int64 [S], in the
    place of the first, as optimum-executorch writes it; what the model can take comes from
    constant methods of the names that these use (`get_max_context_len`, `get_vocab_size`,
    `get_bos_id`, `get_eos_ids`). The file is mapped, its weights are read when first used.

    model: a path, or a program of `Runtime.load_program`: generators of one program have weights
    in common and caches of their own. media: of another one of them, to know the same images and
    sounds.

    A model that sees or hears has the methods of `calls.MediaCalls` instead; `media` makes tokens
    of images and sounds, which a prompt may have among those of its text.

    Raises ValueError if the program is no such model, and as `Runtime.load_program`.
    """

    def __init__(
        self,
        model: str | Path | Program,
        *,
        threads: int | None = None,
        media: Media | None = None,
    ) -> None:
        program = model
        if not isinstance(program, Program):
            program = Runtime.get().load_program(program, threads=threads)
        self._path = str(model)
        self._session = program.new_session()
        try:
            self._calls = calls_of(program, self._session, media)
        except ValueError as failure:
            raise self._no_model(str(failure)) from None
        if constants(program, "use_kv_cache") in ([False], [0]):
            raise self._no_model("one without a cache (use_kv_cache)")
        self.vocab_size = self._calls.vocab_size
        """Tokens are from 0 to below this; numbers above are those of images and sounds."""
        self.has_all_logits = self._calls.has_all_logits
        """Whether a call gives logits for each of its tokens: speculative decoding needs them."""
        self.media = self._calls.media
        """What makes tokens of images and sounds; None for a model of texts alone."""
        limits = constants(program, "get_max_context_len") or constants(program, "get_max_seq_len")
        if not limits:
            raise self._no_model("no constant method get_max_context_len")
        self.max_context_len = int(limits[0])
        """Most tokens of a prompt and what follows it."""
        self.bos_id = next((int(t) for t in constants(program, "get_bos_id")), None)
        """The token that begins a text, or None."""
        ends = constants(program, "get_eos_ids") or constants(program, "get_eos_id")
        self.eos_ids = frozenset(int(t) for t in ends)
        """Tokens that end a text."""
        self.statistics = Statistics()
        """Of the last call of `generate`."""
        self.program = program
        """What the generator runs, for another one with a cache of its own."""
        rewind = constants(program, "get_max_rewind")
        # Caches of others may be rings, and do not say how far back these hold a text.
        unknown = 0 if self._calls.takes_all_positions else self.max_context_len
        self._max_rewind = int(rewind[0]) if rewind else unknown
        self._cached: list[int] = []  # tokens whose keys and values the cache has
        self._end = 0  # positions that were written since the text's first

    def generate(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
        draft: Draft | None = None,
        constraint: Constraint | None = None,
        context_shift: int | None = None,
        watch: Callable[[int, Any], None] | None = None,
    ) -> Iterator[int]:
        """The tokens that follow the prompt, one by one, without a token that ends the text.

        max_new_tokens: None for as many as the context holds. sampling: None for the most likely
        token every time. ignore_eos: go on after a token that ends the text. reuse_prefix: what
        the prompt begins with and the cache already holds is not computed again. draft: what drafts
        tokens for speculative decoding. constraint: which texts there can be. context_shift: where
        the context is full, half of it is left out, the oldest after so many of the first tokens,
        and the rest computed again; None to end there. watch: is called with each token, before it
        is given, and the logits float [vocabulary] that the model gave for it.

        Raises ValueError at once if the prompt is empty, leaves no room in the context or has a
        token that the model does not know.
        """
        tokens = self.check_prompt(prompt)
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"[generate] max_new_tokens must be 1 or more; got {max_new_tokens}")
        if context_shift is not None and not 0 <= context_shift < self.max_context_len // 2:
            raise ValueError(
                f"[generate] context_shift must be from 0 to below half of the context of "
                f"{self.max_context_len} tokens; got {context_shift}"
            )
        sampling = sampling or Sampling()
        self.check_sampling(sampling)
        if draft is not None:
            self._check_draft(draft)
        self.statistics = Statistics(prompt_tokens=len(tokens))
        request = _Request(
            Sampler(sampling, tokens),
            max_new_tokens,
            ignore_eos,
            draft,
            constraint,
            context_shift,
            watch,
        )
        return self._generate(tokens, request, reuse_prefix, self.statistics)

    def logits(self, prompt: Sequence[int]) -> Any:
        """Those [vocabulary] that follow the prompt. Raises as `generate`."""
        return self._feed(self.check_prompt(prompt), 0)[-1]

    def prompt_logits(self, prompt: Sequence[int]) -> Iterator[Any]:
        """Those [vocabulary] that follow each of the prompt's tokens, one by one; the cache holds
        the prompt then. Raises as `generate`, and ValueError for a file without `has_all_logits`.
        """
        tokens = self.check_prompt(prompt)
        if not self.has_all_logits:
            raise ValueError(
                "[generate] a file must give logits for each token; got one that gives the last "
                "token's; try edgewise llm export --all-logits"
            )
        return self._prompt_logits(tokens)

    def _prompt_logits(self, tokens: list[int]) -> Iterator[Any]:
        self._cached, self._end = [], 0
        for part in self._calls.parts(tokens):
            rows = self._feed(part, len(self._cached))
            yield from rows[-len(part) :]

    def load(self, prompt: Sequence[int]) -> None:
        """Computes a prompt's keys and values, for `reuse_prefix`. Raises as `generate`."""
        tokens = self.check_prompt(prompt)
        first = self.common_prefix([*tokens, -1])
        if first < len(tokens):
            self._feed(tokens[first:], first)

    def save_prefix(self, path: str | Path) -> None:
        """Writes what the cache holds to a file. ValueError if the model's file has no methods for
        it (`get_cache`, `set_cache`), or an image or a sound is part of the text."""
        from edgewise.llm.prefix import save

        if any(token >= self.vocab_size for token in self._cached):
            raise ValueError(
                "[prefix] a text with an image or a sound cannot be kept in a file; try one without"
            )
        save(self.program, self._session, self._cached, self._end, path)

    def load_prefix(self, path: str | Path) -> list[int]:
        """Fills the cache from `save_prefix`'s file, and returns its tokens; a prompt that begins
        with them is continued by `reuse_prefix`. ValueError if the file is another model's."""
        from edgewise.llm.prefix import load

        self._cached = []
        self._cached, self._end = load(self.program, self._session, path)
        return list(self._cached)

    def _generate(
        self, prompt: list[int], request: _Request, reuse_prefix: bool, statistics: Statistics
    ) -> Iterator[int]:
        statistics.ended = "stopped"
        start = time.perf_counter()
        text = list(prompt)
        first = self.common_prefix(prompt) if reuse_prefix else 0
        statistics.reused_tokens = first
        rows = self._feed(prompt[first:], first)[-1:]
        drafted: list[int] = []
        while True:
            for index, row in enumerate(rows):
                token = self._choose(row, request)
                if not statistics.prompt_seconds:
                    statistics.prompt_seconds = time.perf_counter() - start
                else:
                    statistics.decode_seconds += time.perf_counter() - start
                if token is None or (token in self.eos_ids and not request.ignore_eos):
                    statistics.ended = "end"
                    return
                statistics.new_tokens += 1
                text.append(token)
                if request.watch is not None:
                    request.watch(token, row)
                yield token
                start = time.perf_counter()
                if (
                    request.max_new_tokens is not None
                    and statistics.new_tokens >= request.max_new_tokens
                ):
                    statistics.ended = "length"
                    return
                if index == len(drafted) or drafted[index] != token:
                    break
                self._cached.append(token)
                statistics.accepted_tokens += 1
            if len(self._cached) >= self.max_context_len:
                if request.context_shift is None:
                    statistics.ended = "context"
                    return
                self._shift(request.context_shift)
                statistics.shifts += 1
            drafted = self._drafted(text, request)
            statistics.drafted_tokens += len(drafted)
            position = len(self._cached)
            rows = self._feed([text[-1], *drafted], position)
            # Only what turns out to be right is the text's.
            del self._cached[position + 1 :]

    def _choose(self, logits: Any, request: _Request) -> int | None:
        """The next token; None if the text is complete."""
        constraint = request.constraint
        if constraint is None:
            token = request.sampler(logits)
        else:
            allowed = constraint.allowed(self.vocab_size)
            if allowed is None:
                return None
            token = request.sampler(logits, allowed)
            constraint.take(token)
        request.sampler.note(token)
        return token

    def _drafted(self, text: list[int], request: _Request) -> list[int]:
        room = min(self._calls.chunk, self.max_context_len - len(self._cached)) - 1
        if request.draft is None or room < 1:
            return []
        words = [token if token < self.vocab_size else 0 for token in text]
        drafted = request.draft.propose(words)[:room]
        wrong = next((i for i, t in enumerate(drafted) if not 0 <= t < self.vocab_size), None)
        return drafted[:wrong]

    def _shift(self, keep: int) -> None:
        """Leaves half of the context out, the oldest after the first `keep` tokens."""
        held = self._cached
        rest = held[keep:]
        first = len(rest) - (self.max_context_len // 2 - keep)
        if self.media is not None:  # of an image or a sound all tokens, or none
            keep = self._before_media(held, keep)
            while self.media.vectors.offset(rest[first]):
                first += 1
        self._feed(held[:keep] + rest[first:], 0)

    def _feed(self, tokens: Sequence[int], position: int) -> Any:
        """Logits [rows, vocabulary] of the last call, and the tokens in the cache from
        `position` on."""
        del self._cached[position:]
        if position == 0:
            self._end = 0
        rows: Any = None
        for part in self._calls.parts(tokens):
            rows = self._calls.logits(part, len(self._cached))
            self._cached.extend(part)
            self._end = max(self._end, len(self._cached))
        return rows

    def common_prefix(self, prompt: Sequence[int]) -> int:
        """How many of the prompt's tokens, without its last, `reuse_prefix` finds in the cache."""
        pairs = zip(self._cached, prompt[:-1], strict=False)
        same = next(
            (i for i, (a, b) in enumerate(pairs) if a != b),
            min(len(self._cached), len(prompt) - 1),
        )
        same = self._before_media(prompt, same)
        return same if self._end - same <= self._max_rewind else 0

    def _before_media(self, tokens: Sequence[int], at: int) -> int:
        """The same, or if an image or a sound would be cut in two there, where it begins."""
        if self.media is None or at >= len(tokens):
            return at
        return at - (self.media.vectors.offset(tokens[at]) or 0)

    def check_sampling(self, sampling: Sampling) -> None:
        """ValueError if it is about tokens that the model does not know."""
        wrong = [token for token in sampling.logit_bias if token >= self.vocab_size]
        if wrong:
            raise ValueError(
                f"[sampling] logit_bias must be of tokens from 0 to {self.vocab_size - 1}; got "
                f"{wrong[0]}"
            )

    def check_prompt(self, prompt: Sequence[int]) -> list[int]:
        """Its tokens. Raises as `generate`."""
        tokens = np.asarray(prompt)
        if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype.kind not in "iu":
            raise ValueError(
                f"[generate] a prompt must be a list of tokens, at least one; "
                f"got {tokens.dtype}{list(tokens.shape)}"
            )
        if tokens.size >= self.max_context_len:
            raise ValueError(
                f"[generate] a prompt must leave room in the context of {self.max_context_len} "
                f"tokens; got {tokens.size}; try a shorter prompt, or a model exported with "
                f"--max-context-len {2 * int(tokens.size)}"
            )
        wrong = tokens[(tokens < 0) | (tokens >= self.vocab_size)]
        if wrong.size and not (self.media is not None and self.media.vectors.knows(wrong)):
            raise ValueError(
                f"[generate] tokens must be from 0 to {self.vocab_size - 1}; got {wrong[0]}; "
                f"try the tokenizer that the model was trained with"
            )
        checked: list[int] = tokens.tolist()
        return checked

    def _check_draft(self, draft: Draft) -> None:
        if not self.has_all_logits:
            raise ValueError(
                "[generate] speculative decoding needs a model with logits for each token; got one "
                "with the last token's; try edgewise llm export --all-logits"
            )
        size = getattr(draft, "vocab_size", self.vocab_size)
        if size != self.vocab_size:
            raise ValueError(
                f"[generate] a draft must have the model's {self.vocab_size} tokens; got {size}"
            )

    def _no_model(self, got: str) -> ValueError:
        return ValueError(
            f"[llm] a language model must have a method forward(tokens [1, S], input_pos [1]) that "
            f"returns logits, and keep a cache; got {got} in {self._path}; "
            f"try a file of edgewise llm export"
        )
