"""A prompt, in text or tokens, and what a model writes behind it, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgewise.llm.constraint import GrammarTokens
from edgewise.llm.generator import Generator
from edgewise.llm.sampling import Sampling
from edgewise.llm.text import StopStrings, TextStream, Tokenizer, check_fit, load_tokenizer

_ENDS = {
    "end": "the model ended the text",
    "length": "as many tokens as wanted",
    "context": "the context of {context} tokens is full",
    "stopped": "stopped",
}


class Continuation:
    """Of one prompt. Raises what `Generator` and `load_tokenizer` do.

    prompt: text, for which a tokenizer is needed, or tokens. After `pieces` came to an end, or was
    left, `tokens` has what was generated. options: more for `Generator.generate`. prefix: a file
    with what the prompt begins with; it is made if it is not there.
    """

    def __init__(
        self,
        model: str | Path,
        prompt: str | Sequence[int],
        tokenizer: str | Path | None = None,
        *,
        sampling: Sampling,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        threads: int | None = None,
        prefix: str | Path | None = None,
        json_schema: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(prompt, str) and tokenizer is None:
            raise ValueError("[run] --prompt needs --tokenizer; try that, or --prompt-tokens")
        if not isinstance(prompt, str) and (tokenizer or stop or json_schema):
            raise ValueError("[run] --tokenizer, --stop and --json-schema are for --prompt")
        self._generator = Generator(model, threads=threads)
        self._tokenizer: Tokenizer | None = None
        if isinstance(prompt, str):
            assert tokenizer is not None
            self._tokenizer = load_tokenizer(tokenizer)
            check_fit(self._tokenizer, self._generator.vocab_size)
            prompt = self._encode(self._tokenizer, prompt)
        if json_schema is not None:
            assert tokenizer is not None
            generator = self._generator
            known = GrammarTokens(tokenizer, generator.vocab_size, generator.eos_ids)
            options["constraint"] = known.json_schema(json_schema)
        self._prompt = list(prompt)
        if prefix is not None:
            self._use_prefix(Path(prefix))
            options["reuse_prefix"] = True
        self._stops = StopStrings(list(stop))
        self._generate: Callable[[list[int]], Iterator[int]] = partial(
            self._generator.generate,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            ignore_eos=ignore_eos,
            **options,
        )
        self.tokens: list[int] = []

    def pieces(self) -> Iterator[str]:
        """Text as it comes; without a tokenizer the numbers of tokens, with spaces between."""
        tokens = self._kept(self._generate(self._prompt))
        if self._tokenizer is None:
            for token in tokens:
                yield f" {token}" if len(self.tokens) > 1 else str(token)
            return
        stream = TextStream(self._tokenizer, self._prompt)
        for token in tokens:
            yield self._stops.feed(stream.add(token))
            if self._stops.has_stopped:
                return
        yield self._stops.feed(stream.rest()) + self._stops.rest()

    def figures(self) -> dict[str, Any]:
        """How many tokens, seconds, tokens per second, and why it ended."""
        found = self._generator.statistics
        return {
            "prompt_tokens": found.prompt_tokens,
            "prompt_seconds": found.prompt_seconds,
            "prompt_tokens_per_second": found.prompt_rate,
            "reused_tokens": found.reused_tokens,
            "new_tokens": found.new_tokens,
            "drafted_tokens": found.drafted_tokens,
            "accepted_tokens": found.accepted_tokens,
            "shifts": found.shifts,
            "seconds": found.prompt_seconds + found.decode_seconds,
            "new_tokens_per_second": found.decode_rate if found.new_tokens > 1 else None,
            "ended": "stop string" if self._stops.has_stopped else found.ended or "stopped",
        }

    def summary(self) -> str:
        """The figures as lines for people."""
        f = self.figures()
        rate = f["new_tokens_per_second"]
        per_second = "" if rate is None else f", {rate:.1f} tokens/s"
        reason = _ENDS.get(f["ended"], "a {ended}")
        context = self._generator.max_context_len
        return (
            f"prompt: {f['prompt_tokens']} tokens in {f['prompt_seconds']:.3f} s, "
            f"{f['prompt_tokens_per_second']:.1f} tokens/s\n"
            f"new:    {f['new_tokens']} tokens in {f['seconds']:.3f} s{per_second}\n"
            f"ended:  {reason.format(context=context, ended=f['ended'])}"
        )

    def _use_prefix(self, path: Path) -> None:
        """The file's, or the whole prompt but its last token for the next time."""
        if path.exists():
            self._generator.load_prefix(path)
            return
        self._generator.load(self._prompt[:-1])
        self._generator.save_prefix(path)

    def _kept(self, tokens: Iterator[int]) -> Iterator[int]:
        for token in tokens:
            self.tokens.append(token)
            yield token

    def _encode(self, tokenizer: Tokenizer, text: str) -> list[int]:
        tokens = tokenizer.encode(text)
        begin = self._generator.bos_id
        return tokens if begin is None or tokens[:1] == [begin] else [begin, *tokens]
