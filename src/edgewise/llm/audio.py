"""Sounds in prompts: what stands for them in a text, and what a model hears in them."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.llm.mel import RATE, log_mel, log_mel_semicausal
from edgewise.llm.settings import load_settings, save_settings
from edgewise.llm.vectors import VectorTokens
from edgewise.runtime import Program
from edgewise.sounds import read_sound

__all__ = ["SPECTROGRAMS", "AudioEncoder", "AudioPrompt", "Steps"]

SPECTROGRAMS: dict[str, Callable[[Any, int, int], Any]] = {
    "whisper": log_mel,
    "semicausal": log_mel_semicausal,
}
"""By name: float32 [1, bands, frames], or [1, frames, bands], of a sound float32 [samples] at 16
kHz, of `bands` and `frames`."""


@dataclass(frozen=True)
class Steps:
    """How many steps so many items make: one for each `every`, `more` of them given; at most
    `most`."""

    every: int
    more: int
    most: int

    def of(self, count: int) -> int:
        """0 or more."""
        return max(0, min((count + self.more) // self.every, self.most))


@dataclass(frozen=True)
class AudioPrompt:
    """What a prompt has for a sound.

    placeholder: what the chat template writes. before, behind: what is there instead, around tokens
    `token`, each of which stands for a vector of the sound; `word` is what a text has for one.
    spectrogram: of SPECTROGRAMS, of `bands` and a window of `samples`. frames: those of samples,
    the most of them a window's; tokens: those of frames. has_windows: longer sounds become several
    windows, and are not refused; is_padded: these are filled up with silence that is heard, and
    parts of one spectrogram.
    """

    placeholder: str
    before: str
    word: str
    behind: str
    token: int
    spectrogram: str
    bands: int
    samples: int
    frames: Steps
    tokens: Steps
    has_windows: bool = False
    is_padded: bool = False

    def save(self, folder: Path) -> None:
        """Writes it to the folder of a model's tokenizer."""
        save_settings(self, folder, "audio")

    @staticmethod
    def load(folder: str | Path) -> AudioPrompt | None:
        """Of the folder of a tokenizer; None if it says nothing of sounds. ValueError if the file
        is not as it should be."""
        return load_settings(folder, "audio", _prompt_of)

    @property
    def seconds(self) -> float:
        """Of a window."""
        return self.samples / RATE

    def windows(self, sound: Any) -> list[tuple[Any, int]]:
        """Of a sound float32 [samples] at 16 kHz: the spectrogram of each window, and its frames.
        ValueError if it is too long, or too short for a token."""
        if len(sound) > self.samples and not self.has_windows:
            raise ValueError(
                f"[audio] a sound must last at most {self.seconds:g} seconds; got "
                f"{len(sound) / RATE:.1f}; try a part of it"
            )
        found: list[tuple[Any, int]] = []
        make, most = SPECTROGRAMS[self.spectrogram], self.frames.most
        if self.is_padded and len(sound):
            count = -(-len(sound) // self.samples)
            whole = make(sound, self.bands, most * count)
            return [(part, most) for part in np.split(whole, count, axis=-1)]
        for first in range(0, max(len(sound), 1), self.samples):
            part = sound[first : first + self.samples]
            frames = self.frames.of(len(part))
            if self.tokens.of(frames) == 0:
                if found:  # the rest of a long sound
                    break
                raise ValueError(f"[audio] a sound must be longer; got {len(sound)} samples")
            found.append((make(part, self.bands, most), frames))
        return found


def _prompt_of(told: dict[str, Any]) -> AudioPrompt:
    steps = {name: Steps(**told[name]) for name in ("frames", "tokens")}
    found = AudioPrompt(**{**told, **steps})
    if found.spectrogram not in SPECTROGRAMS:
        raise ValueError(f"spectrogram {found.spectrogram!r}")
    return found


class AudioEncoder:
    """What a program's method `audio_encoder(features, frames)` hears in sounds: vectors of a
    window, the first of which are its sound's. Some take no number of frames.

    vectors: where they are kept.
    """

    def __init__(self, program: Program, vectors: VectorTokens) -> None:
        self._session, self._vectors = program.new_session(), vectors
        meta = program.metadata("audio_encoder")
        self.shape = tuple(meta.input_tensor_meta(0).sizes())
        """Of a spectrogram."""
        self._takes_frames = meta.num_inputs() == 2
        self._most = int(meta.output_tensor_meta(0).sizes()[-2])
        self._method: Any = None

    def tokens(self, features: Any, frames: int, count: int) -> list[int]:
        """The numbers of a spectrogram's tokens, of which so many frames are sound, and so many
        tokens of it. ValueError if it has another shape."""
        features = np.ascontiguousarray(features, dtype=np.float32)
        if features.shape != self.shape:
            raise ValueError(
                f"[audio] a spectrogram must be float32 {list(self.shape)}; got "
                f"{list(features.shape)}"
            )

        def compute() -> Any:
            if self._method is None:
                self._method = self._session.load_method("audio_encoder")
            more = [np.asarray([frames], dtype=np.int64)] if self._takes_frames else []
            heard = np.array(self._method.execute([features, *more])[0])
            return heard.reshape(-1, heard.shape[-1])[:count]

        return self._vectors.tokens(features, compute, about=(frames, count))

    def window_tokens(self, features: Any) -> list[int]:
        """Of the spectrogram of a window that is full of sound. ValueError as of `tokens`."""
        return self.tokens(features, max(self.shape), self._most)  # no fewer than its frames

    def prepared(self, sound: Any, how: AudioPrompt) -> tuple[str, list[int]]:
        """What a text has for a sound, and the tokens in it: a path, a file's bytes, or samples
        float [N] at 16 kHz, -1 to 1. ValueError if it cannot be read, or is too long."""
        samples = _samples(sound, None if how.has_windows else how.seconds)
        tokens = [
            token
            for features, frames in how.windows(samples)
            for token in self.tokens(features, frames, how.tokens.of(frames))
        ]
        return how.before + how.word * len(tokens) + how.behind, tokens


_MOST_SECONDS = 3600
"""Of a sound. Compressed, a day of silence takes few bytes."""


def _samples(sound: Any, most_seconds: float | None) -> Any:
    if isinstance(sound, bytes):
        sound = io.BytesIO(sound)
    if isinstance(sound, (str, Path, io.BytesIO)):
        return read_sound(sound, RATE, most_seconds=most_seconds or _MOST_SECONDS)
    found = np.asarray(sound)
    if found.ndim != 1 or found.dtype.kind != "f":
        raise ValueError(
            f"[audio] a sound must be a file, or one channel's samples between -1 and 1 at "
            f"{RATE} Hz; got {found.dtype}{list(found.shape)}"
        )
    return found.astype(np.float32)
