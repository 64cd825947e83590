"""Text of speech, by a Whisper in a file."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.calls import constants
from edgewise.llm.mel import RATE, log_mel
from edgewise.llm.text import Tokenizer
from edgewise.runtime import Runtime

__all__ = ["Transcriber", "beginning", "read_wav"]


class Transcriber:
    """A program of `lower_whisper`, with `encode` and `forward`.

    Raises ValueError if the program is another one, and as `Runtime.load_program`.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        program = Runtime.get().load_program(path, threads=threads)
        if not {"encode", "forward", "get_suppress_ids"} <= program.method_names:
            raise ValueError(
                f"[transcribe] must have the methods encode and forward; got {path}; try a file "
                f"that edgewise llm export makes of a Whisper"
            )
        _, self.bands, self.frames = (
            int(n) for n in program.metadata("encode").input_tensor_meta(0).sizes()
        )
        """Of the features that the encoder takes."""
        self._chunk = int(program.metadata("forward").input_tensor_meta(0).sizes()[1])
        self.max_context_len = int(constants(program, "get_max_context_len")[0])
        """Most tokens of a text, with those it begins with."""
        self.vocab_size = int(constants(program, "get_vocab_size")[0])
        """Tokens are from 0 to below this."""
        self.start_ids = [int(t) for t in constants(program, "get_bos_id")]
        """What a text begins with."""
        self.eos_ids = frozenset(int(t) for t in constants(program, "get_eos_ids"))
        """Tokens that end a text."""
        self._never = [int(t) for t in constants(program, "get_suppress_ids")]
        self._not_first = [int(t) for t in constants(program, "get_begin_suppress_ids")]
        session = program.new_session()
        self._encode, self._forward = session.load_method("encode"), session.load_method("forward")

    def generate(
        self, features: Any, start: Sequence[int] = (), *, max_new_tokens: int | None = None
    ) -> Iterator[int]:
        """The most likely tokens, one by one, without one that ends the text.

        features: float32 [1, bands, frames]. start: what the text begins with, such as a language
        and a task; the model's own beginning if empty. ValueError if they do not fit the model.
        """
        features = np.asarray(features, dtype=np.float32)
        if features.shape != (1, self.bands, self.frames):
            raise ValueError(
                f"[transcribe] features must be {[1, self.bands, self.frames]}; "
                f"got {list(features.shape)}"
            )
        begin = list(start) or self.start_ids
        if len(begin) >= self.max_context_len or not all(0 <= t < self.vocab_size for t in begin):
            raise ValueError(
                f"[transcribe] a text must begin with less than {self.max_context_len} tokens "
                f"below {self.vocab_size}; got {begin}"
            )
        return self._generate(features, begin, max_new_tokens)

    def _generate(self, features: Any, begin: list[int], most: int | None) -> Iterator[int]:
        self._encode.execute([features])
        logits: Any = None
        for first in range(0, len(begin), self._chunk):
            logits = self._run(begin[first : first + self._chunk], first)
        position, count = len(begin), 0
        while True:
            logits = np.array(logits)
            logits[self._never + (self._not_first if count == 0 else [])] = -np.inf
            token = int(logits.argmax())
            if token in self.eos_ids:
                return
            yield token
            count += 1
            if count == most or position >= self.max_context_len:
                return
            logits = self._run([token], position)
            position += 1

    def _run(self, tokens: list[int], position: int) -> Any:
        inputs = [np.array([tokens], dtype=np.int64), np.array([position], dtype=np.int64)]
        return self._forward.execute(inputs)[0].reshape(-1)

    def transcribe(
        self, sound: Any, start: Sequence[int] = (), *, max_new_tokens: int | None = None
    ) -> Iterator[int]:
        """`generate` for each stretch of sound that the encoder takes (30 s), one after the other:
        words on their borders are cut.

        sound: float [samples] at 16 kHz, -1 to 1.
        """
        sound = np.asarray(sound).reshape(-1)
        step = self.frames * RATE // 100
        for first in range(0, max(len(sound), 1), step):
            features = log_mel(sound[first : first + step], self.bands, self.frames)
            yield from self.generate(features, start, max_new_tokens=max_new_tokens)


def beginning(
    tokenizer: Tokenizer, start_ids: Sequence[int], language: str | None, translate: bool
) -> list[int]:
    """What a text begins with: the model's own, a language and a task where its tokenizer has
    them, and that there are no times in it. ValueError for a language that it does not have."""
    names = []
    if tokenizer.token_to_id("<|transcribe|>") is not None:
        names = [f"<|{language or 'en'}|>", "<|translate|>" if translate else "<|transcribe|>"]
    elif language not in (None, "en") or translate:
        raise ValueError(
            f"[transcribe] the model has one language and task; got {language or 'translate'}"
        )
    found = {name: tokenizer.token_to_id(name) for name in names}
    for name, number in found.items():
        if number is None:
            raise ValueError(f"[transcribe] must be one of the model's languages; got {name}")
    times = tokenizer.token_to_id("<|notimestamps|>")
    return [*start_ids, *(n for n in (*found.values(), times) if n is not None)]


def read_wav(path: str | Path) -> Any:
    """The mean of a WAV file's channels, float32 [samples], -1 to 1.

    ValueError if it is not of 16 kHz and 16 bits.
    """
    try:
        with wave.open(str(path), "rb") as file:
            found = file.getframerate(), file.getsampwidth(), file.getnchannels()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as failure:
        raise ValueError(f"[wav] must be a WAV file; got {path}: {failure}") from None
    rate, width, channels = found
    if (rate, width) != (RATE, 2):
        raise ValueError(
            f"[wav] must be of {RATE} Hz and 16 bits; got {rate} Hz and {8 * width} bits in "
            f"{path}; try ffmpeg -i FILE -ar 16000 -c:a pcm_s16le NEW.wav"
        )
    samples = np.frombuffer(data[: len(data) // (2 * channels) * 2 * channels], dtype="<i2")
    return (samples.reshape(-1, channels).mean(1) / 32768).astype(np.float32)
