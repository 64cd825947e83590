"""Convolutions as matrix products in floating point, exact because no sum leaves its integers."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.kernel import Kernel
from edgewise.backends.ethosu.simulator.memory import Array

_ROWS = 1 << 24  # elements of an unfolded input at a time


def convolution(x: Array, weights: Array, kernel: Kernel, height: int, width: int) -> Array:
    """Accumulators [height, width, out], int64.

    x: [rows, columns, in] without its zero point. weights: [out, kernel height, width, in].
    """
    out, kh, kw, channels = weights.shape
    dtype = _exact_type(x, weights)
    padded = kernel.pad(x.astype(dtype), height, width, 0)
    matrix = weights.transpose(1, 2, 3, 0).reshape(-1, out).astype(dtype)
    if (kh, kw) == (1, 1):
        seen = kernel.point(padded, 0, 0, height, width)
        return _integers(seen.reshape(-1, channels) @ matrix).reshape(height, width, out)
    result = np.empty((height, width, out), np.int64)
    step = max(1, _ROWS // (width * kh * kw * channels))
    (sy, sx), (dy, dx) = kernel.stride, kernel.dilation
    row, column, channel = padded.strides
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (height, width, kh, kw, channels),
        (sy * row, sx * column, dy * row, dx * column, channel),
        writeable=False,
    )
    for y in range(0, height, step):
        part = windows[y : y + step]
        product = part.reshape(-1, kh * kw * channels) @ matrix
        result[y : y + step] = _integers(product).reshape(-1, width, out)
    return result


def depthwise(x: Array, weights: Array, kernel: Kernel, height: int, width: int) -> Array:
    """As `convolution`, with weights [channels, kernel height, kernel width, 1]."""
    channels, kh, kw, _ = weights.shape
    dtype = _exact_type(x, weights)
    padded = kernel.pad(x.astype(dtype), height, width, 0)
    total = np.zeros((height, width, channels), dtype)
    taps = weights[..., 0].transpose(1, 2, 0).astype(dtype)
    for ky in range(kh):
        for kx in range(kw):
            total += kernel.point(padded, ky, kx, height, width) * taps[ky, kx]
    return _integers(total)


def _exact_type(x: Array, weights: Array) -> type[np.float32 | np.float64]:
    """Of float32 and float64 the first that has every sum of products as it is."""
    if x.size == 0:
        return np.float32
    largest = max(int(x.max()), -int(x.min()))
    sums = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1)
    bound = largest * int(sums.max())
    if bound < 1 << 24:
        return np.float32
    if bound < 1 << 53:
        return np.float64
    raise NpuError(f"accumulators have at most 53 bits; got sums of up to {bound}")


def _integers(values: Array) -> Array:
    return values.astype(np.int64)
