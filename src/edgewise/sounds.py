"""From sounds in files to samples."""

from __future__ import annotations

import itertools
import math
import wave
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["is_sound", "read_sound", "resampled"]

_RATES = 4000, 384_000
"""A file of lower ones, which anybody may send, would become a much larger sound."""

_FORMATS = "aac,aiff,amr,au,caf,flac,matroska,mov,mp3,mp4,m4a,mpeg,ogg,w64,wav,webm"
"""FFmpeg's names of those that it may take a file for: lists of other files are none of them."""


# fmt: off
_SUFFIXES = frozenset([
    ".aac", ".aif", ".aiff", ".amr", ".au", ".caf", ".flac", ".m4a", ".mka", ".mp3", ".mp4",
    ".mpga", ".oga", ".ogg", ".opus", ".wav", ".webm",
])
# fmt: on


def is_sound(path: Path) -> bool:
    """Whether a file's name says that it is one for `read_sound`."""
    return path.suffix.lower() in _SUFFIXES


def read_sound(
    source: str | Path | BinaryIO, rate: int, *, most_seconds: float | None = None
) -> Any:
    """The mean of the channels of a file's sound: float32 [samples] of that rate, -1 to 1.

    WAV files of integers, 4 to 384 kHz, need nothing else, but for another rate SciPy. Others (MP3,
    M4A, OGG, WebM, FLAC, ...) are read by FFmpeg, of the package `av`. ValueError if it is none, or
    longer than most_seconds; FileNotFoundError; ModuleNotFoundError without these packages.
    """
    if isinstance(source, (str, Path)):
        with open(source, "rb") as file:
            return _read(file, f"{source}: ", rate, most_seconds)
    return _read(source, "", rate, most_seconds)


def _read(file: BinaryIO, name: str, rate: int, most_seconds: float | None) -> Any:
    try:
        given, samples = _read_wave(file, most_seconds)
        return resampled(samples, given, rate)
    except (wave.Error, EOFError) as failure:
        why = failure
    file.seek(0)
    try:
        import av
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"[sound] must be a WAV file of integers, or the package av must be there; got "
            f"{name}{why or 'its beginning'} and no av; try pip install 'edgewise[sound]', or "
            f"ffmpeg -i FILE -c:a pcm_s16le NEW.wav",
            name="av",
        ) from missing
    # A file is given, not its name, which may be an address; nor may it name others.
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": "none"}
    try:
        with av.open(file, options=options, metadata_errors="ignore") as container:
            return _decode(container, rate, most_seconds)
    except (av.FFmpegError, IndexError) as failure:
        raise ValueError(
            f"[sound] must be a file with sound; got {name}{_reason(failure)}; try one that "
            f"ffplay plays"
        ) from None


def _reason(failure: Exception) -> str:
    return getattr(failure, "strerror", None) or "none in it"


def _decode(container: Any, rate: int, most_seconds: float | None) -> Any:
    """The first sound of what FFmpeg has opened. At that rate from the beginning: a small file can
    hold hours of many samples a second."""
    from av import AudioResampler

    resampler, parts, count = None, [np.zeros(0, np.float32)], 0
    for frame in itertools.chain(container.decode(container.streams.audio[0]), [None]):
        if resampler is None:
            if frame is None:
                break
            _check_rate(frame.sample_rate)
            resampler = AudioResampler(format="fltp", layout=frame.layout, rate=rate)
        for plain in resampler.resample(frame):
            parts.append(plain.to_ndarray().mean(0))
            count += parts[-1].size
        _check_length(count / rate, most_seconds)
    return np.concatenate(parts)


def _check_rate(rate: int) -> None:
    if not _RATES[0] <= rate <= _RATES[1]:
        raise ValueError(
            f"[sound] a sound must have {_RATES[0]} to {_RATES[1]} samples a second; got {rate}"
        )


def _check_length(seconds: float, most: float | None) -> None:
    if most is not None and seconds > most:
        raise ValueError(f"[sound] must last at most {most:g} seconds; got more; try parts of it")


def _read_wave(file: BinaryIO, most_seconds: float | None) -> tuple[int, Any]:
    """wave.Error or EOFError if it is no WAV file of integers."""
    with wave.open(file, "rb") as opened:
        rate, width, channels = (
            opened.getframerate(),
            opened.getsampwidth(),
            opened.getnchannels(),
        )
        if width > 4:
            raise wave.Error(f"samples of {8 * width} bits")
        _check_rate(rate)
        _check_length(opened.getnframes() / rate, most_seconds)
        data = opened.readframes(opened.getnframes())
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
            f"[sound] must have {wanted} samples a second, or SciPy must be there; got "
            f"{rate} and no scipy; try pip install 'edgewise[sound]', or ffmpeg -i FILE -ar "
            f"{wanted} NEW.wav",
            name="scipy",
        ) from missing
    shared = math.gcd(rate, wanted)
    return resample_poly(samples, wanted // shared, rate // shared).astype(np.float32)
