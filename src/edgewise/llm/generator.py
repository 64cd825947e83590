"""Tokens from a program with a cache."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.sampling import Sampler, Sampling
from edgewise.runtime import Program, Runtime

__all__ = ["Generator", "Statistics"]


@dataclass
class Statistics:
    """Of one call of `generate`. The first new token comes with the prompt's time.

    ended: "" while it goes on; then "end" (a token that ends the text), "length" (as many tokens
    as wanted), "context" (the context is full) or "stopped" (by the caller).
    """

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    new_tokens: int = 0
    decode_seconds: float = 0.0
    ended: str = ""

    @property
    def prompt_rate(self) -> float:
        """Tokens of the prompt per second; 0 before any."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """New tokens after the first, per second; 0 without any."""
        return (self.new_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


class Generator:
    """A language model in a file, with one cache: calls of `generate` one after the other.

    The file's method is `forward(tokens int64 [1, S], input_pos int64 [1]) -> logits`, the
    interface of ExecuTorch's runner for language models; what the model can take comes from
    constant methods of the names that it uses (`get_max_context_len`, `get_vocab_size`,
    `get_bos_id`, `get_eos_ids`). The file is mapped, its weights are read when first used.

    Raises ValueError if the program is no such model, and as `Runtime.load_program`.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        program = Runtime.get().load_program(path, threads=threads)
        self._path = str(path)
        if "forward" not in program.method_names:
            raise self._no_model(f"no method forward, but {sorted(program.method_names)}")
        meta = program.metadata("forward")
        if meta.num_inputs() != 2 or meta.num_outputs() != 1:
            raise self._no_model(f"{meta.num_inputs()} inputs and {meta.num_outputs()} outputs")
        tokens = list(meta.input_tensor_meta(0).sizes())
        logits = list(meta.output_tensor_meta(0).sizes())
        if len(tokens) != 2 or tokens[0] != 1 or len(logits) not in (2, 3):
            raise self._no_model(f"tokens {tokens} and logits {logits}")
        if _constants(program, "use_kv_cache") in ([False], [0]):
            raise self._no_model("one without a cache (use_kv_cache)")
        self._chunk = int(tokens[1])
        self.vocab_size = int(logits[-1])
        """Tokens are from 0 to below this."""
        limits = _constants(program, "get_max_context_len") or _constants(
            program, "get_max_seq_len"
        )
        if not limits:
            raise self._no_model("no constant method get_max_context_len")
        self.max_context_len = int(limits[0])
        """Most tokens of a prompt and what follows it."""
        self.bos_id = next((int(t) for t in _constants(program, "get_bos_id")), None)
        """The token that begins a text, or None."""
        self.eos_ids = frozenset(int(t) for t in _constants(program, "get_eos_ids"))
        """Tokens that end a text."""
        self.statistics = Statistics()
        """Of the last call of `generate`."""
        self._method = program.load_method("forward")

    def generate(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
    ) -> Iterator[int]:
        """The tokens that follow the prompt, one by one, without a token that ends the text.

        max_new_tokens: None for as many as the context holds. sampling: None for the most likely
        token every time. ignore_eos: go on after a token that ends the text.

        Raises ValueError at once if the prompt is empty, leaves no room in the context or has a
        token that the model does not know.
        """
        tokens = self._checked(prompt)
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"[generate] max_new_tokens must be 1 or more; got {max_new_tokens}")
        self.statistics = Statistics(prompt_tokens=len(tokens))
        return self._generate(
            tokens, max_new_tokens, Sampler(sampling or Sampling()), ignore_eos, self.statistics
        )

    def _generate(
        self,
        prompt: Any,
        most: int | None,
        sample: Sampler,
        ignore_eos: bool,
        statistics: Statistics,
    ) -> Iterator[int]:
        statistics.ended = "stopped"
        start = time.perf_counter()
        position = 0
        for first in range(0, len(prompt), self._chunk):
            part = prompt[first : first + self._chunk]
            logits = self._run(part, position)
            position += len(part)
        token = sample(logits)
        statistics.prompt_seconds = time.perf_counter() - start
        while True:
            if token in self.eos_ids and not ignore_eos:
                statistics.ended = "end"
                return
            statistics.new_tokens += 1
            yield token
            if most is not None and statistics.new_tokens >= most:
                statistics.ended = "length"
                return
            if position >= self.max_context_len:
                statistics.ended = "context"
                return
            start = time.perf_counter()
            token = sample(self._run(np.array([token]), position))
            position += 1
            statistics.decode_seconds += time.perf_counter() - start

    def _run(self, tokens: Any, position: int) -> Any:
        """The logits [vocabulary] after the last of the tokens."""
        inputs = [tokens.reshape(1, -1), np.array([position], dtype=np.int64)]
        return self._method.execute(inputs)[0].reshape(-1, self.vocab_size)[-1]

    def _checked(self, prompt: Sequence[int]) -> Any:
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
        if wrong.size:
            raise ValueError(
                f"[generate] tokens must be from 0 to {self.vocab_size - 1}; got {wrong[0]}; "
                f"try the tokenizer that the model was trained with"
            )
        return tokens.astype(np.int64)

    def _no_model(self, got: str) -> ValueError:
        return ValueError(
            f"[llm] a language model must have a method forward(tokens [1, S], input_pos [1]) that "
            f"returns logits, and a cache; got {got} in {self._path}; "
            f"try edgewise llm export"
        )


def _constants(program: Program, name: str) -> list[Any]:
    """What the constant method of that name returns; nothing if there is none."""
    if name not in program.method_names:
        return []
    return [
        item
        for value in program.load_method(name).execute([])
        for item in (value.reshape(-1).tolist() if isinstance(value, np.ndarray) else [value])
    ]
