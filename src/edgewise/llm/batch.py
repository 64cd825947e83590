"""Several sequences at a time: each step reads the weights once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.calls import constants
from edgewise.llm.sampling import Sampler, Sampling
from edgewise.runtime import Runtime

__all__ = ["BatchGenerator"]


class BatchGenerator:
    """A language model in a file that was exported for a batch of B sequences.

    Its method is `forward(tokens int64 [B, S], input_pos int64 [B]) -> logits [B, vocabulary]`.
    Raises ValueError if the program is no such model, and as `Runtime.load_program`.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        program = Runtime.get().load_program(path, threads=threads)
        found = constants(program, "get_max_context_len")
        if "forward" not in program.method_names or not found:
            raise ValueError(f"[llm] must be a file of edgewise llm export; got {path}")
        meta = program.metadata("forward")
        self.batch, self._chunk = (int(n) for n in meta.input_tensor_meta(0).sizes())
        self.vocab_size = int(meta.output_tensor_meta(0).sizes()[-1])
        """Tokens are from 0 to below this."""
        self.max_context_len = int(found[0])
        """Most tokens of a prompt and what follows it."""
        self.eos_ids = frozenset(int(t) for t in constants(program, "get_eos_ids"))
        """Tokens that end a text."""
        self._method = program.load_method("forward")

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
    ) -> list[list[int]]:
        """What follows each prompt, without a token that ends the text; as `Generator.generate`,
        whose arguments these are. With a seed, each text is the one that it would be alone.

        ValueError if there are no prompts or more than `batch`, or one is empty, leaves no room in
        the context or has a token that the model does not know.
        """
        texts = self._checked(prompts)
        count = len(texts)
        samplers = [Sampler(sampling or Sampling(), text) for text in texts]
        # All but each prompt's last token: rows that are shorter are padded. What padding leaves in
        # the cache lies behind what any query sees, until the text's own tokens take its place.
        done = [0] * count
        while any(d < len(t) - 1 for d, t in zip(done, texts, strict=True)):
            rest = [len(t) - 1 - d for d, t in zip(done, texts, strict=True)]
            length = min(self._chunk, max(rest))
            first = [min(d, self.max_context_len - length) for d in done]
            self._run([t[f : f + length] for t, f in zip(texts, first, strict=True)], first, length)
            done = [min(f + length, len(t) - 1) for f, t in zip(first, texts, strict=True)]
        new: list[list[int]] = [[] for _ in texts]
        open_ = set(range(count))
        while open_:
            logits = self._run([t[-1:] for t in texts], [len(t) - 1 for t in texts], 1)
            for row in sorted(open_):
                token = samplers[row](logits[row])
                samplers[row].note(token)
                if token in self.eos_ids and not ignore_eos:
                    open_.discard(row)
                    continue
                new[row].append(token)
                is_full = len(texts[row]) >= self.max_context_len
                if is_full or len(new[row]) == max_new_tokens:
                    open_.discard(row)
                else:
                    texts[row].append(token)
        return new

    def _run(self, rows: list[list[int]], positions: list[int], length: int) -> Any:
        """Logits [B, vocabulary] after each row's last position."""
        tokens = np.zeros((self.batch, length), dtype=np.int64)
        start = np.zeros(self.batch, dtype=np.int64)
        for number, (row, position) in enumerate(zip(rows, positions, strict=True)):
            tokens[number, : len(row)] = row
            start[number] = position
        logits = self._method.execute([tokens, start])[0]
        return logits.reshape(self.batch, -1, self.vocab_size)[:, -1]

    def _checked(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        if not 1 <= len(prompts) <= self.batch:
            raise ValueError(
                f"[generate] there must be 1 to {self.batch} prompts; got {len(prompts)}; "
                f"try a model exported with --batch {max(len(prompts), 1)}"
            )
        for number, prompt in enumerate(prompts):
            if not 1 <= len(prompt) < self.max_context_len:
                raise ValueError(
                    f"[generate] prompts must have 1 to {self.max_context_len - 1} tokens; got "
                    f"{len(prompt)} in prompt {number}"
                )
            wrong = [token for token in prompt if not 0 <= token < self.vocab_size]
            if wrong:
                raise ValueError(
                    f"[generate] tokens must be from 0 to {self.vocab_size - 1}; got {wrong[0]} in "
                    f"prompt {number}"
                )
        return [list(map(int, prompt)) for prompt in prompts]
