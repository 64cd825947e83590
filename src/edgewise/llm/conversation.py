"""A conversation with a model: what was said before stays in its cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgewise.llm.chat import Chat
from edgewise.llm.generator import Generator
from edgewise.llm.sampling import Sampling
from edgewise.llm.text import StopStrings, TextStream, check_fit, load_tokenizer

__all__ = ["Conversation"]


class Conversation:
    """Raises what `Generator`, `load_tokenizer` and `Chat` do. options: more for
    `Generator.generate`."""

    def __init__(
        self,
        model: str | Path,
        tokenizer: str | Path | None,
        *,
        system: str | None = None,
        sampling: Sampling | None = None,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        threads: int | None = None,
        **options: Any,
    ) -> None:
        if tokenizer is None:
            raise ValueError(
                f"[chat] needs a tokenizer with a chat template; got none beside {model}; "
                f"try --tokenizer"
            )
        self._generator = Generator(model, threads=threads)
        self._tokenizer = load_tokenizer(tokenizer)
        check_fit(self._tokenizer, self._generator.vocab_size)
        self._chat = Chat(self._tokenizer, tokenizer, self._generator.media)
        self._options = {"sampling": sampling, "max_new_tokens": max_new_tokens, **options}
        self._stop = list(stop)
        self.messages: list[dict[str, Any]] = []
        """What was said."""
        if system is not None:
            self.messages.append({"role": "system", "content": system})

    def say(
        self, text: str, images: Sequence[Any] = (), audio: Sequence[Any] = ()
    ) -> Iterator[str]:
        """The answer, piece by piece.

        images: what the text is about, each a path, a file's bytes, Pillow's image or uint8
        [height, width, 3]. audio: sounds, each a path, a file's bytes, or samples float [N] at
        16 kHz. ValueError if the model takes none, one cannot be read, or the conversation leaves
        no room in the context; it is then as it was.
        """
        content: Any = text
        if images or audio:
            parts = [{"type": "image", "image": image} for image in images]
            parts += [{"type": "audio", "audio": sound} for sound in audio]
            content = [*parts, *([{"type": "text", "text": text}] if text else [])]
        asked = [*self.messages, {"role": "user", "content": content}]
        prompt = self._chat.prompt(asked)
        tokens = self._generator.generate(prompt, reuse_prefix=True, **self._options)
        self.messages = asked
        stream, stops = TextStream(self._tokenizer, prompt), StopStrings(self._stop)
        pieces: list[str] = []
        try:
            for token in tokens:
                if token in self._chat.eos_ids:
                    break
                pieces.append(stops.feed(stream.add(token)))
                yield pieces[-1]
                if stops.has_stopped:
                    break
            pieces.append(stops.feed(stream.rest()) + stops.rest())
            yield pieces[-1]
        finally:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def summary(self) -> str:
        """The figures of the last answer."""
        found = self._generator.statistics
        rate = f", {found.decode_rate:.1f} tokens/s" if found.new_tokens > 1 else ""
        return (
            f"[{found.prompt_tokens} tokens read, {found.reused_tokens} of them before; "
            f"{found.new_tokens} written{rate}]"
        )
