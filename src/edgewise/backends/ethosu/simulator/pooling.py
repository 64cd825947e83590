"""Pooling: accumulators of windows over a feature map."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator.kernel import Kernel
from edgewise.backends.ethosu.simulator.memory import Array
from edgewise.backends.ethosu.simulator.scaling import scale


def extreme(x: Array, kernel: Kernel, height: int, width: int, largest: bool) -> Array:
    """The largest or smallest of each window, of what lies within the feature map; int64."""
    limits = np.iinfo(x.dtype)
    padded = kernel.pad(x, height, width, limits.min if largest else limits.max)
    choose = np.maximum if largest else np.minimum
    result = kernel.point(padded, 0, 0, height, width).copy()
    for y in range(kernel.height):
        for x_ in range(kernel.width):
            choose(result, kernel.point(padded, y, x_, height, width), out=result)
    return result.astype(np.int64)


def argmax(x: Array, kernel: Kernel, height: int, width: int) -> Array:
    """The number of the largest of each window's points, the first of equals."""
    points = [
        kernel.point(x, y, x_, height, width)
        for y in range(kernel.height)
        for x_ in range(kernel.width)
    ]
    return np.asarray(np.argmax(np.stack(points), axis=0))


def window_sum(x: Array, kernel: Kernel, height: int, width: int) -> Array:
    """x: int64 without its zero point."""
    padded = kernel.pad(x, height, width, 0)
    if kernel.height == kernel.width == 1:
        return kernel.point(padded, 0, 0, height, width)
    # Rows first, then columns: height + width additions instead of their product.
    sy = kernel.stride[0]
    rows = np.zeros((height, *padded.shape[1:]), np.int64)
    for y in range(kernel.height):
        top = y * kernel.dilation[0]
        rows += padded[top : top + (height - 1) * sy + 1 : sy]
    result = np.zeros((height, width, x.shape[2]), np.int64)
    sx = kernel.stride[1]
    for x_ in range(kernel.width):
        left = x_ * kernel.dilation[1]
        result += rows[:, left : left + (width - 1) * sx + 1 : sx]
    return result


def mean_of_windows(total: Array, rows: int, columns: int, kernel: Kernel) -> Array:
    """total over the number of a window's points that are within rows by columns."""
    height, width, _ = total.shape
    inside = kernel.pad(np.ones((rows, columns, 1), np.int64), height, width, 0)
    plain = window_sum(inside, _without_upscale(kernel), height, width)
    counts = np.maximum(plain, 1)
    multiplier, shift = np.zeros_like(counts), np.zeros_like(counts)
    for count in np.unique(counts):
        multiplier[counts == count], shift[counts == count] = reciprocal(int(count))
    return scale(total, multiplier, shift, "NATURAL")


def reciprocal(count: int) -> tuple[int, int]:
    """multiplier and shift of 1 / count, rounded up."""
    bits = (count - 1).bit_length()
    return ((1 << 30) + 1 << bits) // count, 30 + bits


def _without_upscale(kernel: Kernel) -> Kernel:
    # `inside` is padded and upscaled already.
    return Kernel(kernel.height, kernel.width, kernel.stride, kernel.dilation, 0, 0, 0, 0, "NONE")
