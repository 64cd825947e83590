"""From sounds in files to samples."""

from __future__ import annotations

import math
import wave
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["read_wave", "resampled"]

_RATES = 4000, 384_000
"""A file of lower ones, which anybody may send, would become a much larger sound."""


def read_wave(path: str | Path | BinaryIO) -> tuple[int, Any]:
    """Samples a second of a WAV file, and the mean of its channels: float32 [samples], -1 to 1.

    Of integers of 8, 16, 24 or 32 bits, 4 to 384 kHz. FileNotFoundError, or ValueError if it is
    none.
    """
    try:
        with wave.open(str(path) if isinstance(path, (str, Path)) else path, "rb") as file:
            rate, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as failure:
        name = f"{path}: " if isinstance(path, (str, Path)) else ""
        raise ValueError(
            f"[wav] must be a WAV file of integers; got {name}{failure or 'its beginning'}; try "
            f"ffmpeg -i FILE -c:a pcm_s16le NEW.wav"
        ) from None
    if width > 4:
        raise ValueError(f"[wav] samples must have 8, 16, 24 or 32 bits; got {8 * width}")
    if not _RATES[0] <= rate <= _RATES[1]:
        raise ValueError(
            f"[wav] a sound must have {_RATES[0]} to {_RATES[1]} samples a second; got {rate}"
        )
    data = data[: len(data) // (width * channels) * width * channels]
    if width == 1:  # the only ones without a sign
        samples = (np.frombuffer(data, dtype=np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        # Each behind a byte of zeros: as many times 256.
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        samples = wide.view("<i4").reshape(-1) / np.float64(1 << 31)
    else:
        samples = np.frombuffer(data, dtype=f"<i{width}") / np.float64(1 << (8 * width - 1))
    return rate, samples.reshape(-1, channels).mean(1).astype(np.float32)


def resampled(samples: Any, rate: int, wanted: int) -> Any:
    """float32 at `wanted` samples a second, by SciPy if that is another rate."""
    if rate == wanted:
        return samples
    try:
        from scipy.signal import resample_poly
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"[wav] a sound must have {wanted} samples a second, or SciPy must be there; got "
            f"{rate} and no scipy; try pip install 'edgewise[sound]', or ffmpeg -i FILE -ar "
            f"{wanted} NEW.wav",
            name="scipy",
        ) from missing
    shared = math.gcd(rate, wanted)
    return resample_poly(samples, wanted // shared, rate // shared).astype(np.float32)
