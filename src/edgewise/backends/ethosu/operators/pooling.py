"""Maxima and means of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.builder import MOST_STEPS, Builder
from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored, Sums
from edgewise.backends.ethosu.operators.shape import sizes
from edgewise.edge.graph import fake
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators.arguments import Pair, beyond_padding, pair
from edgewise.partition.constraints import only_first, rank
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten


def _max_pool(to: Lowering, node: Node, args: Args) -> Value | tuple[Value, ...]:
    value = to.real(args["self"])
    kernel = pair(args["kernel_size"])
    stride, pad = pair(args["stride"], kernel), pair(args["padding"], (0, 0))
    several = isinstance(node.meta["val"], (tuple, list))
    result = node.meta["val"][0] if several else node.meta["val"]
    shape = tuple(int(s) for s in result.shape)

    def make(ts: Sequence[Tensor], quant: Quant) -> Tensor:
        around = (pad[0], pad[0], pad[1], pad[1])
        return to.b.pool("MAX_POOL2D", ts[0], kernel, stride, around, shape[2:])

    made = Combined((value,), shape, make)
    return (made,) if several else made


def _no_dilation(q: Ask) -> str | None:
    found = pair(q.args["dilation"])
    return None if found == (1, 1) else f"dilation={found}"


_MAX_AREA = 2**16


def _area(q: Ask) -> str | None:
    height, width = pair(q.args["kernel_size"])
    return None if height * width <= _MAX_AREA else f"{height} x {width}"


_SMALL_AREA = Constraint(f"windows of at most {_MAX_AREA} elements", _area)
NO_DILATION = Constraint("windows without dilation", _no_dilation)
define(
    "max_pool2d",
    (aten.max_pool2d.default,),
    _max_pool,
    (rank("self", 4), NO_DILATION, _SMALL_AREA),
    reads=ANY,
    keep=True,
    quantization=SAME_SCALE,
)
define(
    "max_pool2d_with_indices",
    (aten.max_pool2d_with_indices.default,),
    _max_pool,
    (
        rank("self", 4),
        NO_DILATION,
        _SMALL_AREA,
        only_first("maxima without indices", "indices"),
    ),
    reads=ANY,
)

MAX_FILTER = 64
"""Rows or columns of a filter that all families take."""


_MAX_AT_BORDER = 8


@dataclass(frozen=True)
class Windows:
    """Of a mean, over rows and columns. before, after: the sizes of the image and the result."""

    kernel: Pair
    stride: Pair
    pad: Pair
    before: Pair
    after: Pair
    counts_padding: bool = False
    divisor: int | None = None

    @property
    def past(self) -> Pair:
        """By how much the last window reaches past the padding, as with ceil_mode."""
        return beyond_padding(self.before, self.after, self.kernel, self.stride, self.pad)

    @property
    def padded(self) -> bool:
        return any(self.pad) or any(self.past)

    @property
    def plain(self) -> bool:
        """Whether each window lies in the image and divides by its size."""
        return self.divisor is None and not self.padded

    @property
    def seen(self) -> np.ndarray[Any, Any]:
        """How many elements of the image each window sees: [rows, columns] of the result."""
        sides = []
        for k, s, p, size, count in zip(
            self.kernel, self.stride, self.pad, self.before, self.after, strict=True
        ):
            start = np.arange(count) * s - p
            sides.append(np.minimum(start + k, size) - np.maximum(start, 0))
        return np.outer(sides[0], sides[1])

    @property
    def common(self) -> int:
        """A multiple of what each window sees."""
        return math.lcm(*map(int, np.unique(self.seen)))

    def shares(self, value: Stored) -> bool:
        """Whether sums of 32 bits hold all windows' means as multiples of one fraction."""
        return max(self.kernel) <= MAX_FILTER and self.common < 2 ** (30 - value.quant.bits)

    @property
    def divides_by_seen(self) -> bool:
        """Whether windows at the border divide by how much of the image they see."""
        counted = self.counts_padding and any(self.pad)
        return self.divisor is None and self.padded and not counted


@dataclass(frozen=True)
class Means(Real):
    """Of windows: by TOSA's own pooling where no scale changes, else by a filter of ones, whose
    sums are rounded once."""

    value: Stored
    windows: Windows

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.value.shape[:2], *self.windows.after)

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        mine, w = self.value, self.windows
        (rows, columns), past = w.pad, w.past
        same = mine.quant.same_numbers(quant)
        pooled = same and (w.plain or (w.divides_by_seen and max(w.stride) <= MOST_STEPS))
        if pooled or (w.divides_by_seen and not w.shares(mine)):
            tensor = b.pool(
                "AVG_POOL2D",
                mine.tensor,
                w.kernel,
                w.stride,
                (rows, rows, columns, columns),
                w.after,
                mine.quant.zero_point,
            )
            return Stored(tensor, mine.quant).quantized(b, quant)
        assert max(w.kernel) <= MAX_FILTER
        channels = mine.shape[1]
        ones = np.ones((*w.kernel, channels, 1), np.int8)
        made = b.conv2d(
            mine.tensor,
            ones,
            np.zeros(channels, np.int64),
            mine.quant.zero_point,
            stride=w.stride,
            pad=(rows, rows + past[0], columns, columns + past[1]),
            depthwise=True,
        )
        count = w.divisor or w.kernel[0] * w.kernel[1]
        if w.divides_by_seen:
            # Each by a whole factor, so that all divide by one number.
            count = w.common
            wide = made if made.dtype == INT32 else b.rescale(made, [1.0], INT32)
            made = b.binary("MUL", wide, b.const(count // w.seen[None, None], INT32))
        return Sums(made, (mine.quant.scale / count,)).quantized(b, quant)


def _windows(node: Node, args: Args) -> Windows:
    """Where windows reach past padding that is counted, the padding is part of the image."""
    kernel = pair(args["kernel_size"])
    windows = Windows(
        kernel,
        pair(args["stride"], kernel),
        pair(args["padding"], (0, 0)),
        pair(fake(args["self"]).shape[2:]),
        pair(fake(node).shape[2:]),
        bool(args["count_include_pad"]),
        args["divisor_override"],
    )
    by_size = windows.divisor is None and windows.counts_padding
    if not (by_size and any(windows.pad) and any(windows.past)):
        return windows
    (height, width), (rows, columns) = windows.before, windows.pad
    whole = (height + 2 * rows, width + 2 * columns)
    return replace(windows, pad=(0, 0), before=whole, counts_padding=False)


def _avg_pool(to: Lowering, node: Node, args: Args) -> Value:
    value, windows = to.stored(args["self"]), _windows(node, args)
    rows, columns = (
        (whole - size) // 2 for whole, size in zip(windows.before, value.shape[2:], strict=True)
    )
    sides = {2: (rows, rows), 3: (columns, columns)}
    padded = to.b.pad(value.tensor, sides, value.quant.zero_point)
    return Means(Stored(padded, value.quant), windows)


def _small_at_borders(q: Ask) -> str | None:
    """What windows at the border divide by is counted by the NPU, for few of them."""
    w = _windows(q.node, q.args)
    if q.target.family == "U85" or not w.divides_by_seen or max(w.kernel) <= _MAX_AT_BORDER:
        return None
    return f"{w.kernel[0]} x {w.kernel[1]}"


def _small_steps(q: Ask) -> str | None:
    """A filter of ones is a depthwise convolution, needed where the scale changes."""
    w = _windows(q.node, q.args)
    source, (user, *_) = q.args["self"], [*q.node.users, None]
    if q.target.family == "U85" or max(w.stride) <= 3 or not is_dequantize(source):
        return None
    alike = is_quantize(user) and Quant.of(source).same_numbers(Quant.of(user))
    return None if alike and (w.plain or w.divides_by_seen) else f"stride={list(w.stride)}"


def _small(q: Ask) -> str | None:
    kernel = pair(q.args["kernel_size"])
    return None if max(kernel) <= MAX_FILTER else f"{kernel[0]} x {kernel[1]}"


define(
    "avg_pool2d",
    (aten.avg_pool2d.default,),
    _avg_pool,
    (
        rank("self", 4),
        Constraint(f"windows of at most {MAX_FILTER} x {MAX_FILTER}", _small),
        Constraint(
            f"windows of at most {_MAX_AT_BORDER} x {_MAX_AT_BORDER} where padding is not "
            "counted, except on U85",
            _small_at_borders,
        ),
        Constraint("strides up to 3 where scale or divisor change, except on U85", _small_steps),
    ),
    also="a filter of ones where the scale changes",
    quantization=SAME_SCALE,
)


def _adaptive(to: Lowering, node: Node, args: Args) -> Value:
    value = to.stored(args["self"])
    before, after = pair(value.shape[2:]), pair(sizes(node)[2:])
    kernel = (before[0] // after[0], before[1] // after[1])
    return Means(value, Windows(kernel, kernel, (0, 0), before, after))


def _even(q: Ask) -> str | None:
    before, after = fake(q.args["self"]).shape[-2:], fake(q.node).shape[-2:]
    even = all(b % a == 0 for b, a in zip(before, after, strict=True))
    return None if even else f"{list(before)} to {list(after)}"


define(
    "adaptive_avg_pool2d",
    (aten._adaptive_avg_pool2d.default,),
    _adaptive,
    (rank("self", 4), Constraint("sizes that divide the input's", _even)),
    quantization=SAME_SCALE,
)

__all__ = ["INT8", "Means", "Windows"]
