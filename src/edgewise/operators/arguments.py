"""Arguments of PyTorch's operators, as the definitions of several backends read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Pair = tuple[int, int]


def reduced_dims(dims: Any, rank: int) -> list[int]:
    """Of `dim`, which is a number or several: in order, and all where it names none. A tensor
    without dimensions takes 0 and -1, and has none to reduce."""
    named = [dims] if isinstance(dims, int) else list(dims or ())
    return sorted({d % rank for d in named}) if named and rank else list(range(rank))


def pair(value: Any, default: Pair = (1, 1)) -> Pair:
    """A number for height and width, or one for each; the default if there is none."""
    items = [value] if isinstance(value, int) else list(value or default)
    return int(items[0]), int(items[-1])


def beyond_padding(
    sizes: Sequence[int],
    results: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Pair:
    """How far the last windows of images reach beyond the padding, as they do with ceil_mode."""
    each = zip(sizes, results, kernel, stride, padding, strict=True)
    height, width = (max((n - 1) * s + k - size - 2 * p, 0) for size, n, k, s, p in each)
    return height, width
