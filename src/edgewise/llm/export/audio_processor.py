"""How a checkpoint's own processor puts a sound into a prompt, and which spectrogram it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise.llm.audio import SPECTROGRAMS, AudioPrompt, Steps
from edgewise.llm.config import read_config
from edgewise.llm.export.audio_tower import AudioInputs
from edgewise.llm.export.processing import (
    media_token,
    prepared,
    processor_name,
    recording_processor,
    text_between,
)
from edgewise.llm.export.voxtral import VoxtralProcessing
from edgewise.llm.mel import RATE

__all__ = ["read_audio_processor"]

_SECONDS = 30
"""Of a window, where the processor does not tell."""

_SHORT = 8000
"""Samples of a sound that is far shorter than a window."""

_LARGEST_STEP = 1e-3
"""Of a spectrogram's values, which are about 1, from the processor's."""

_MASKS = ("input_features_mask", "feature_attention_mask")
"""Names of what says which frames are sound."""


def read_audio_processor(
    checkpoint: str | Path, seconds: float | None = None
) -> tuple[AudioInputs, AudioPrompt]:
    """Of a folder as `save_pretrained` writes it: what the model takes, and what goes before it.

    seconds: the longest sound, for models that take sounds of any length; None for the model's own
    window, or 30. ValueError if there is no processor, it lacks a package, or sounds cannot be
    prepared here as it does.
    """
    folder = Path(checkpoint)
    config = read_config(str(folder))
    if config.get("model_type") == "voxtral":
        processor: Any = VoxtralProcessing(folder, config)
    else:
        processor = recording_processor(folder, "audio")
    asked = _Asked(processor, media_token(folder, "audio"), seconds)
    window = asked.window
    frames = _steps(asked.hop, asked.frames, _lengths(window, asked.hop), asked.frames(window))
    before, behind = asked.around()
    most = asked.count(window)
    every = round(frames.most / most)
    counts = {asked.frames(n): asked.count(n) for n in _lengths(window, asked.hop * every)}
    tokens = _steps(every, counts.__getitem__, counts, most)
    long = asked.sample(window + window // 2)
    has_windows = long["input_features"].shape[0] == 2
    is_padded = has_windows and int((long["input_ids"] == asked.token).sum()) == 2 * most
    prompt = AudioPrompt(
        asked.placeholder,
        before,
        asked.word,
        behind,
        asked.token,
        "",
        asked.bands,
        window,
        frames,
        tokens,
        has_windows,
        is_padded,
    )
    prompt = _with_spectrogram(prompt, asked)
    example = window // 8
    sample = asked.sample(example)
    features, sound_frames = prompt.windows(_sound(example))[0]
    mask = asked.mask(sample)
    inputs = AudioInputs(
        features.shape,
        frames.most,
        asked.token,
        most,
        torch.int64 if mask is None else mask.dtype,
        sample,
        sound_frames,
    )
    return inputs, prompt


class _Asked:
    """What a processor makes of sounds of so many samples."""

    def __init__(self, processor: Any, token: int, seconds: float | None) -> None:
        self.processor, self.token = processor, token
        extractor = processor.feature_extractor
        rate = getattr(extractor, "sampling_rate", RATE)
        if rate != RATE:
            raise ValueError(
                f"[audio] sounds must have {RATE} samples a second; got {rate} of "
                f"{type(extractor).__name__}; try without --audio"
            )
        self.bands, self.hop = (
            int(getattr(extractor, name, 0) or 0) for name in ("feature_size", "hop_length")
        )
        if not (self.bands and self.hop):
            raise ValueError(
                f"[audio] a spectrogram must have bands and steps (feature_size, hop_length); got "
                f"{type(extractor).__name__} without; try without --audio"
            )
        own = getattr(extractor, "n_samples", None)
        if own and seconds is not None:
            raise ValueError(
                f"[audio] the model's sounds have windows of {own / RATE:g} seconds; got "
                f"{seconds:g}; try without --audio-seconds"
            )
        if seconds is not None and not 1 <= seconds <= _SECONDS:
            raise ValueError(f"[audio] sounds must last 1 to {_SECONDS} seconds; got {seconds:g}")
        self.window = int(own or (seconds or _SECONDS) * RATE)
        self._samples: dict[int, dict[str, torch.Tensor]] = {}
        self.placeholder = self._placeholder()
        self.word: str = processor.tokenizer.convert_ids_to_tokens(token)

    def _placeholder(self) -> str:
        name = getattr(self.processor, "audio_token", None)
        if isinstance(name, str):
            return name
        raise ValueError(
            f"[audio] a processor must tell its audio token; got {processor_name(self.processor)}; "
            f"try without --audio"
        )

    def sample(self, count: int) -> dict[str, torch.Tensor]:
        if count not in self._samples:
            self._samples[count] = self._sample(count)
        return self._samples[count]

    def _sample(self, count: int) -> dict[str, torch.Tensor]:
        found = prepared(
            self.processor,
            "audio",
            self.placeholder,
            audio=[_sound(count)],
            sampling_rate=RATE,
        )
        if "input_features" not in found:
            raise ValueError(
                f"[audio] a model must take a spectrogram, input_features; got {sorted(found)} of "
                f"{processor_name(self.processor)}; try without --audio"
            )
        return found

    def mask(self, sample: dict[str, torch.Tensor]) -> torch.Tensor | None:
        return next((sample[name] for name in _MASKS if name in sample), None)

    def frames(self, count: int) -> int:
        sample = self.sample(count)
        mask = self.mask(sample)
        return sample["input_features"].shape[-1] if mask is None else int(mask.sum())

    def count(self, count: int) -> int:
        return int((self.sample(count)["input_ids"] == self.token).sum())

    def around(self) -> tuple[str, str]:
        """What a prompt has before and behind a sound's tokens."""
        made = self._sample(_SHORT)  # asked again: the text is that of the last one
        count = int((made["input_ids"] == self.token).sum())
        text = text_between(self.processor, "audio")
        parts = text.split(self.word * count) if count else []
        if len(parts) != 2:
            raise ValueError(
                f"[audio] a sound must be tokens {self.word!r} of a prompt; got {text[:80]!r} of "
                f"{processor_name(self.processor)}; try without --audio"
            )
        return parts[0], parts[1]


def _sound(count: int) -> Any:
    """Noise, some of it loud: float32 [samples]."""
    random = np.random.default_rng(0)
    loud = np.repeat(random.uniform(0, 0.3, count // 1000 + 1), 1000)[:count]
    return (random.standard_normal(count) * loud).astype(np.float32)


def _lengths(window: int, every: int) -> list[int]:
    """Samples of sounds, some of them one more or less than another."""
    some = [_SHORT + every // 8 * n for n in range(10)]
    edges = [_SHORT - _SHORT % every + every * n + more for n in (1, 2) for more in (-1, 0, 1)]
    return [*some, *edges, window // 3, window // 2 + 7, window - 1, window]


def _steps(every: int, of: Callable[[int], int], counts: Iterable[int], most: int) -> Steps:
    """What makes `of(n)` of each n. ValueError if nothing does."""
    counts = list(counts)
    found = [of(n) for n in counts]
    pairs = list(zip(counts, found, strict=True))
    low = max(steps * every - n for n, steps in pairs)
    high = min(((steps + 1) * every - 1 - n for n, steps in pairs if steps < most), default=low)
    made = Steps(every, low, most)
    if low <= high and [made.of(n) for n in counts] == found:
        return made
    raise ValueError(
        f"[audio] a sound must have a frame or a token for each so many samples or frames; got "
        f"{found[:8]} for {counts[:8]}; try without --audio, and please tell us of this processor"
    )


def _with_spectrogram(prompt: AudioPrompt, asked: _Asked) -> AudioPrompt:
    """With what gives the processor's. ValueError if none does."""
    lengths: Sequence[int] = (_SHORT + 77, prompt.samples // 3, prompt.samples)
    if prompt.has_windows:
        lengths = (*lengths, prompt.samples + prompt.samples // 2)
    wanted = [asked.sample(n)["input_features"].numpy() for n in lengths]
    gaps = {}
    for name in SPECTROGRAMS:
        made = replace(prompt, spectrogram=name)
        windows = [made.windows(_sound(n)) for n in lengths]
        gaps[name] = max(
            _gap([features for features, _ in ours], theirs)
            for ours, theirs in zip(windows, wanted, strict=True)
        )
        if gaps[name] <= _LARGEST_STEP:
            return made
    raise ValueError(
        f"[audio] a spectrogram must be Whisper's or Gemma's; got another, by "
        f"{min(gaps.values()):.2g}, of {type(asked.processor.feature_extractor).__name__}; try "
        f"without --audio, and please tell us of this processor"
    )


def _gap(ours: list[Any], theirs: Any) -> float:
    """The largest difference. Theirs may end before ours where there is no sound, and may go on in
    zeros."""
    if len(ours) != len(theirs):
        return np.inf
    gaps = []
    for (window,), wanted in zip(ours, theirs, strict=True):
        both = tuple(slice(min(pair)) for pair in zip(window.shape, wanted.shape, strict=True))
        missing = wanted.copy()
        missing[both] = 0
        gaps += [np.abs(window[both] - wanted[both]).max(), np.abs(missing).max()]
    return float(max(gaps))
