"""`executorch.extension.llm.runner`: text by a language model, through `edgewise.llm`.

`edgewise llm run` and `edgewise.llm.Generator` do more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

from edgewise.llm.generator import Generator
from edgewise.llm.sampling import Sampling
from edgewise.llm.text import TextStream, check_fit, load_tokenizer
from edgewise.runtime import Runtime


@dataclass(kw_only=True)
class GenerationConfig:
    """How much text, and how it is chosen. -1: as many tokens as there is room for."""

    echo: bool = True
    """Whether the prompt is told, too."""
    max_new_tokens: int = -1
    warming: bool = False
    """Whether statistics are not asked for."""
    seq_len: int = -1
    """Of all tokens together."""
    temperature: float = 0.8
    num_bos: int = 0
    num_eos: int = 0
    """Tokens that are put before and behind the prompt."""

    def resolve_max_new_tokens(self, max_context_len: int, num_tokens_occupied: int) -> int:
        """How many there can be behind so many tokens; 0 if there is no room."""
        room = max_context_len if self.seq_len < 0 else min(self.seq_len, max_context_len)
        room = max(0, room - num_tokens_occupied)
        return room if self.max_new_tokens < 0 else min(room, self.max_new_tokens)


@dataclass
class Stats:
    """Of one call of `generate`. Times are milliseconds of one clock."""

    SCALING_FACTOR_UNITS_PER_SECOND: ClassVar[int] = 1000

    model_load_start_ms: int = 0
    model_load_end_ms: int = 0
    inference_start_ms: int = 0
    token_encode_end_ms: int = 0
    prompt_eval_end_ms: int = 0
    first_token_ms: int = 0
    inference_end_ms: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0

    def reset(self, all_stats: bool = False) -> None:
        """To zeros; loading's times only with `all_stats`."""
        for one in fields(self):
            if all_stats or not one.name.startswith("model_load"):
                setattr(self, one.name, 0)

    def to_json_string(self) -> str:
        """The figures as JSON."""
        return json.dumps(asdict(self))


class TextLLMRunner:
    """A model with its tokenizer, and one text, which goes on with each call until `reset`.

    RuntimeError for files that cannot be read, or that do not go together.
    """

    def __init__(
        self,
        model_path: str | Path,
        tokenizer_path: str | Path,
        data_path: str | Path | None = None,
    ) -> None:
        self._stats = Stats(model_load_start_ms=_now())
        with _runtime_errors():
            program = Runtime.get().load_program(model_path, data_path=data_path)
            self._generator = Generator(program)
            self._tokenizer = load_tokenizer(tokenizer_path)
            check_fit(self._tokenizer, self._generator.vocab_size)
        self._stats.model_load_end_ms = _now()
        self._text: list[int] = []
        self._is_stopped = False

    def generate(
        self,
        prompt: str,
        config: GenerationConfig,
        token_callback: Callable[[str], None] | None = None,
        stats_callback: Callable[[Stats], None] | None = None,
    ) -> None:
        """Writes on behind what there is and the prompt. token_callback: gets the text, piece by
        piece. RuntimeError if the prompt is empty, or leaves no room."""
        self._is_stopped = False
        stats = self._stats
        stats.reset()
        stats.inference_start_ms = _now()
        with _runtime_errors():
            added = self._encoded(prompt, config)
            stats.token_encode_end_ms = _now()
            stats.num_prompt_tokens = len(added)
            tell = token_callback or (lambda piece: None)
            if config.echo:
                tell(prompt)
            text = [*self._text, *added]
            most = config.resolve_max_new_tokens(self._generator.max_context_len, len(text))
            if most == 0:
                raise ValueError(
                    f"[generate] the text must leave room for tokens; got {len(text)} tokens with "
                    f"max_new_tokens={config.max_new_tokens}, seq_len={config.seq_len} and a "
                    f"context of {self._generator.max_context_len}; try reset(), or other limits"
                )
            tokens = self._generator.generate(
                text,
                max_new_tokens=most,
                sampling=Sampling(config.temperature),
                reuse_prefix=True,
            )
            stream = TextStream(self._tokenizer, text)
            self._text = text
            for token in tokens:
                if not stats.first_token_ms:
                    stats.prompt_eval_end_ms = stats.first_token_ms = _now()
                self._text.append(token)
                stats.num_generated_tokens += 1
                tell(stream.add(token))
                if self._is_stopped:
                    break
            tell(stream.rest())
        stats.inference_end_ms = _now()
        if stats_callback is not None and not config.warming:
            stats_callback(stats)

    def prefill(self, prompt: str, config: GenerationConfig) -> None:
        """Takes text for written, as of a conversation before. RuntimeError as `generate`."""
        with _runtime_errors():
            text = [*self._text, *self._encoded(prompt, config)]
            self._generator.load(text)
            self._text = text

    def stop(self) -> None:
        """Ends `generate` behind the next token."""
        self._is_stopped = True

    def reset(self) -> None:
        """Begins a new text."""
        self._text = []
        self._is_stopped = False
        self._stats.reset()

    def get_vocab_size(self) -> int:
        """Tokens that the model knows."""
        return self._generator.vocab_size

    def __repr__(self) -> str:
        return f"<TextLLMRunner vocab_size={self.get_vocab_size()}>"

    def _encoded(self, prompt: str, config: GenerationConfig) -> list[int]:
        """ExecuTorch's tokenizers put no other tokens before the text than what is asked for."""
        begin, ends = self._generator.bos_id, self._generator.eos_ids
        if (config.num_bos and begin is None) or (config.num_eos and not ends):
            raise ValueError(
                f"[generate] the model's file must name the tokens that num_bos and num_eos ask "
                f"for (get_bos_id, get_eos_ids); got num_bos={config.num_bos}, "
                f"num_eos={config.num_eos}; try 0"
            )
        before = [begin] * config.num_bos if begin is not None else []
        after = [min(ends)] * config.num_eos if ends else []
        return [*before, *self._tokenizer.encode(prompt, special=False), *after]


def _now() -> int:
    return int(time.time() * Stats.SCALING_FACTOR_UNITS_PER_SECOND)


@contextmanager
def _runtime_errors() -> Iterator[None]:
    """What callers of ExecuTorch's runner catch."""
    try:
        yield
    except (ValueError, OSError) as failure:
        if isinstance(failure, RuntimeError):
            raise
        raise RuntimeError(str(failure)) from failure
