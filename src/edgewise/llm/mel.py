"""Whisper's features of sound: the logarithm of a mel spectrogram.

Source: "Robust Speech Recognition via Large-Scale Weak Supervision", and the feature extractor of
`transformers`, which tests compare with: 16 kHz, windows of 25 ms (Hann) every 10 ms, bands on
Slaney's mel scale with equal areas, log10, at most 8 below the largest, then (x + 4) / 4.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["FRAMES_PER_SECOND", "RATE", "log_mel", "log_mel_of_all"]

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
        levels[:, first : first + _BLOCK] = np.log10(np.maximum(_filters(bands) @ power.T, 1e-10))
    np.maximum(levels, levels.max() - 8, out=levels)
    return (levels + 4) / 4


@lru_cache(maxsize=4)
def _filters(bands: int) -> Any:
    """[bands, frequencies]: triangles whose areas are equal."""
    edges = _hertz(np.linspace(0, _mel(RATE / 2), bands + 2))
    frequencies = np.linspace(0, RATE / 2, _WINDOW // 2 + 1)
    away = edges[:, None] - frequencies
    widths = np.diff(edges)
    rising = -away[:-2] / widths[:-1, None]
    falling = away[2:] / widths[1:, None]
    areas = 2 / (edges[2:] - edges[:-2])
    return np.maximum(0, np.minimum(rising, falling)) * areas[:, None]


def _mel(hertz: float) -> float:
    """Slaney's: linear to 1000 Hz, logarithmic above."""
    if hertz < _LINEAR:
        return hertz * _PER_HZ
    return float(_LINEAR * _PER_HZ + np.log(hertz / _LINEAR) * _LOG)


def _hertz(mel: Any) -> Any:
    turn = _LINEAR * _PER_HZ
    return np.where(mel < turn, mel / _PER_HZ, _LINEAR * np.exp((mel - turn) / _LOG))
