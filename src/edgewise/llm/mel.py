"""Features of sound: logarithms of mel spectrograms.

Whisper's, source: "Robust Speech Recognition via Large-Scale Weak Supervision", and the feature
extractor of `transformers`, which tests compare with: 16 kHz, windows of 25 ms (Hann) every 10 ms,
bands on Slaney's mel scale with equal areas, log10, at most 8 below the largest, then (x + 4) / 4.

Gemma's (Universal Speech Model), source: the feature extractor of Gemma 4 in `transformers`:
windows of 20 ms that begin half a window before the sound, magnitudes, bands on the mel scale of
HTK, log(x + 0.001), and zeros where a window is not within the sound.

NeMo's, which Parakeet takes, source: the feature extractor of Parakeet in `transformers`: from
each sample 0.97 of the one before is taken, windows of 25 ms (Hann, symmetric) every 10 ms, bands
on Slaney's mel scale with equal areas, natural logarithms, and in each band the mean 0 and the
standard deviation 1 over the sound.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = [
    "FRAMES_PER_SECOND",
    "RATE",
    "log_mel",
    "log_mel_normalized",
    "log_mel_of_all",
    "log_mel_semicausal",
]

RATE = 16_000
"""Samples a second."""
_WINDOW, _HOP = 400, 160
FRAMES_PER_SECOND = RATE // _HOP
_BLOCK = 4096
"""Frames that are computed at once."""
_LINEAR, _PER_HZ, _LOG = 1000.0, 3 / 200, 27 / np.log(6.4)


def log_mel(sound: Any, bands: int, frames: int) -> Any:
    """sound: float [samples] at 16 kHz, -1 to 1, cut or filled with silence to `frames` hops.

    Returns float32 [1, bands, frames].
    """
    count = frames * _HOP
    padded = np.zeros(count, dtype=np.float32)
    given = np.asarray(sound).reshape(-1)[:count]
    padded[: len(given)] = given
    return log_mel_of_all(padded, bands)[None]


def log_mel_of_all(sound: Any, bands: int) -> Any:
    """The same of as many whole hops as there are, at least one: float32 [bands, frames]."""
    sound = np.asarray(sound, dtype=np.float32).reshape(-1)
    count = max(len(sound) // _HOP, 1)
    if len(sound) <= _WINDOW // 2:
        sound = np.pad(sound, (0, _WINDOW // 2 + 1 - len(sound)))
    padded = np.pad(sound, _WINDOW // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    pieces = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][:count]
    levels = np.empty((bands, count), dtype=np.float32)
    for first in range(0, count, _BLOCK):
        power = np.abs(np.fft.rfft(pieces[first : first + _BLOCK] * window, axis=-1)) ** 2
        loudness = _filters(bands, _WINDOW) @ power.T
        levels[:, first : first + _BLOCK] = np.log10(np.maximum(loudness, 1e-10))
    np.maximum(levels, levels.max() - 8, out=levels)
    return (levels + 4) / 4


_SHORT_WINDOW, _TRANSFORM, _FLOOR = 320, 512, 1e-3
"""Gemma's."""


def log_mel_semicausal(sound: Any, bands: int, frames: int) -> Any:
    """sound: float [samples] at 16 kHz, -1 to 1. Returns float32 [1, frames, bands]."""
    given = np.asarray(sound, dtype=np.float32).reshape(-1)
    count = min(max(len(given) - 1, 0) // _HOP, frames)
    levels = np.zeros((1, frames, bands), dtype=np.float32)
    if count == 0:
        return levels
    padded = np.pad(given, (_SHORT_WINDOW // 2, 0))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, _SHORT_WINDOW)[::_HOP][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_SHORT_WINDOW) / _SHORT_WINDOW)
    filters = _plain_filters(bands).T
    for first in range(0, count, _BLOCK):
        part = np.s_[first : first + _BLOCK]
        magnitudes = np.abs(np.fft.rfft(pieces[part] * window, n=_TRANSFORM, axis=-1))
        levels[0, :count][part] = np.log(magnitudes @ filters + _FLOOR)
    return levels


_EMPHASIS, _GUARD = 0.97, 2.0**-24
"""NeMo's; the second is added to what logarithms are taken of."""


def log_mel_normalized(sound: Any, bands: int) -> Any:
    """sound: float [samples] at 16 kHz, -1 to 1. Returns float32 [frames, bands], of as many whole
    hops as there are."""
    given = np.asarray(sound, dtype=np.float32).reshape(-1)
    count = len(given) // _HOP
    levels = np.empty((count, bands), dtype=np.float32)
    if count == 0:
        return levels
    flat = np.concatenate([given[:1], given[1:] - np.float32(_EMPHASIS) * given[:-1]])
    padded = np.pad(flat, _WINDOW // 2)
    pieces = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / (_WINDOW - 1))
    filters = _filters(bands, _TRANSFORM).T
    for first in range(0, count, _BLOCK):
        part = np.s_[first : first + _BLOCK]
        power = np.abs(np.fft.rfft(pieces[part] * window, n=_TRANSFORM, axis=-1)) ** 2
        levels[part] = np.log(power @ filters + _GUARD)
    spread = levels.std(0, ddof=1, dtype=np.float64) if count > 1 else np.zeros(bands)
    levels -= levels.mean(0, dtype=np.float64)
    levels /= spread + 1e-5
    return levels


@lru_cache(maxsize=4)
def _plain_filters(bands: int) -> Any:
    """[bands, frequencies]: triangles of height 1 on HTK's scale."""
    most = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, most, bands + 2) / 2595) - 1)
    return _triangles(edges, np.linspace(0, RATE / 2, _TRANSFORM // 2 + 1))


@lru_cache(maxsize=4)
def _filters(bands: int, size: int) -> Any:
    """[bands, frequencies] for a transform of so many samples: triangles whose areas are equal."""
    edges = _hertz(np.linspace(0, _mel(RATE / 2), bands + 2))
    frequencies = np.linspace(0, RATE / 2, size // 2 + 1)
    return _triangles(edges, frequencies) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _triangles(edges: Any, frequencies: Any) -> Any:
    """[bands, frequencies]: each from an edge over the next one, where it is 1, to the third."""
    away = edges[:, None] - frequencies
    widths = np.diff(edges)
    rising = -away[:-2] / widths[:-1, None]
    falling = away[2:] / widths[1:, None]
    return np.maximum(0, np.minimum(rising, falling))


def _mel(hertz: float) -> float:
    """Slaney's: linear to 1000 Hz, logarithmic above."""
    if hertz < _LINEAR:
        return hertz * _PER_HZ
    return float(_LINEAR * _PER_HZ + np.log(hertz / _LINEAR) * _LOG)


def _hertz(mel: Any) -> Any:
    turn = _LINEAR * _PER_HZ
    return np.where(mel < turn, mel / _PER_HZ, _LINEAR * np.exp((mel - turn) / _LOG))
