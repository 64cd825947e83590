"""From sounds to arrays: samples, or the logarithm of a spectrogram in mels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.runtime.errors import InvalidArgumentError
from edgewise.sounds import read_sound, resampled


def samples(value: Any, rate: int) -> Any:
    """float32[samples]. value: a file (`edgewise.sounds.read_sound`), an array of one channel, or
    a dict of "array" and "sampling_rate"; another rate than `rate` needs SciPy."""
    given = rate
    if isinstance(value, Mapping) and "array" in value:
        given, value = int(value.get("sampling_rate", rate)), value["array"]
    if isinstance(value, (str, Path)):
        given, value = rate, read_sound(value, rate)
    found = np.asarray(value)
    if found.ndim != 1 or found.dtype.kind != "f":
        raise InvalidArgumentError(
            f"[call] a sound must be a file, or one channel's samples between -1 and 1; got "
            f"{found.dtype}{list(found.shape)}"
        )
    return resampled(found.astype(np.float32), given, rate)


def cut(sound: Any, length: int) -> Any:
    """At most so many samples; warns if there are more."""
    if len(sound) > length:
        warnings.warn(
            f"[call] the sound was cut to the model's {length} samples; got {len(sound)}; try "
            f"pieces of it, or edgewise.compile with a larger sequence_length",
            stacklevel=5,
        )
    return sound[:length]


def waveform(sound: Any, length: int, how: Mapping[str, Any]) -> Any:
    """float32[1, length], filled up with what stands for silence."""
    fill = np.float32(how.get("padding_value", 0.0))
    made = np.full((1, length), fill, np.float32)
    made[0, : len(sound)] = sound
    if how.get("do_normalize", False):
        # Without a mask silence is normalized, too.
        heard = made[:, : len(sound)] if how.get("return_attention_mask", False) else made
        heard[...] = (heard - heard.mean()) / np.sqrt(heard.var() + 1e-7)
    return made


def log_mel(sound: Any, length: int, how: Mapping[str, Any], filters: Any) -> Any:
    """float32[1, mels, frames], as Whisper takes it. filters: float[frequencies, mels]."""
    padded = np.zeros(length)
    padded[: len(sound)] = sound
    size, hop = int(how["n_fft"]), int(how["hop_length"])
    padded = np.pad(padded, size // 2, mode="reflect")
    count = 1 + (len(padded) - size) // hop
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop][:count]
    window = np.hanning(size + 1)[:-1]
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    mels = np.log10(np.maximum(1e-10, filters.T.astype(np.float64) @ power.T))[:, :-1]
    mels = (np.maximum(mels, mels.max() - 8.0) + 4.0) / 4.0
    return mels[None].astype(np.float32)


def frames_of(count: int, steps: tuple[tuple[int, int], ...]) -> int:
    """How many frames the convolutions make of so many samples."""
    for kernel, stride in steps:
        count = (count - kernel) // stride + 1
    return max(count, 0)
