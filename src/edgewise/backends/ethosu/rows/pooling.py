"""Maxima and means of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.builder import Builder
from edgewise.backends.ethosu.quant import Quant, is_dequantize, is_quantize
from edgewise.backends.ethosu.rows.shape import sizes
from edgewise.backends.ethosu.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    OpRow,
    Value,
    add_row,
)
from edgewise.backends.ethosu.tosa import INT8, Tensor
from edgewise.backends.ethosu.values import Combined, Real, Stored, Sums
from edgewise.edge.graph import fake
from edgewise.partition.constraints import only_first, rank

aten = torch.ops.aten
Pair = tuple[int, int]


def pair(value: object, default: Pair) -> Pair:
    """One number for both, or one for each; nothing for the default."""
    items = [value] if isinstance(value, int) else list(value or ())  # type: ignore[call-overload]
    if not items:
        return default
    return (int(items[0]), int(items[-1]))


def _max_pool(to: Lowering, node: Node, args: Args) -> Value | tuple[Value, ...]:
    value = to.real(args["self"])
    kernel = pair(args["kernel_size"], (1, 1))
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
    found = pair(q.args["dilation"], (1, 1))
    return None if found == (1, 1) else f"dilation={found}"


_MAX_AREA = 2**16


def _area(q: Ask) -> str | None:
    height, width = pair(q.args["kernel_size"], (1, 1))
    return None if height * width <= _MAX_AREA else f"{height} x {width}"


_SMALL_AREA = Constraint(f"windows of at most {_MAX_AREA} elements", _area)
NO_DILATION = Constraint("windows without dilation", _no_dilation)
add_row(
    OpRow(
        "max_pool2d",
        (aten.max_pool2d.default,),
        _max_pool,
        (rank("self", 4), NO_DILATION, _SMALL_AREA),
        reads=ANY,
        keep=True,
    )
)
add_row(
    OpRow(
        "max_pool2d_with_indices",
        (aten.max_pool2d_with_indices.default,),
        _max_pool,
        (
            rank("self", 4),
            NO_DILATION,
            _SMALL_AREA,
            only_first("maxima without places", "indices"),
        ),
        reads=ANY,
    )
)

MAX_FILTER = 64
"""Rows or columns of a filter that all families take."""


@dataclass(frozen=True)
class Means(Real):
    """Of windows: by TOSA's own pooling where no scale changes, else by a filter of ones, whose
    sums are rounded once."""

    value: Stored
    kernel: Pair
    stride: Pair
    pad: Pair
    sizes: tuple[int, ...]
    counts_padding: bool
    divisor: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        mine = self.value
        padded = any(self.pad) or not self._fits()
        seen = self.divisor is None and padded and not (self.counts_padding and any(self.pad))
        plain = self.divisor is None and not padded
        around = (self.pad[0], self.pad[0], self.pad[1], self.pad[1])
        if seen or (plain and mine.quant.same_numbers(quant)):
            tensor = b.pool(
                "AVG_POOL2D",
                mine.tensor,
                self.kernel,
                self.stride,
                around,
                self.sizes[2:],
                mine.quant.zero_point,
            )
            return Stored(tensor, mine.quant).quantized(b, quant)
        assert max(self.kernel) <= MAX_FILTER
        channels = mine.shape[1]
        ones = np.ones((*self.kernel, channels, 1), np.int8)
        made = b.conv2d(
            mine.tensor,
            ones,
            np.zeros(channels, np.int64),
            mine.quant.zero_point,
            stride=self.stride,
            pad=(around[0], around[1] + self._past(0), around[2], around[3] + self._past(1)),
            depthwise=True,
        )
        count = self.divisor or self.kernel[0] * self.kernel[1]
        return Sums(made, (mine.quant.scale / count,)).quantized(b, quant)

    def _past(self, i: int) -> int:
        """By how many rows (columns) the last window reaches past the padding, as with
        ceil_mode."""
        reach = (self.sizes[2 + i] - 1) * self.stride[i] + self.kernel[i]
        return max(0, reach - self.value.shape[2 + i] - 2 * self.pad[i])

    def _fits(self) -> bool:
        return not (self._past(0) or self._past(1))


_MAX_AT_BORDER = 8


def _avg_pool(to: Lowering, node: Node, args: Args) -> Value:
    kernel = pair(args["kernel_size"], (1, 1))
    return Means(
        to.stored(args["self"]),
        kernel,
        pair(args["stride"], kernel),
        pair(args["padding"], (0, 0)),
        sizes(node),
        bool(args["count_include_pad"]),
        args["divisor_override"],
    )


def _of_mean(q: Ask) -> tuple[Pair, Pair, Pair, bool]:
    """Kernel, stride, padding; whether windows reach past the padding."""
    kernel = pair(q.args["kernel_size"], (1, 1))
    pad, stride = pair(q.args["padding"], (0, 0)), pair(q.args["stride"], kernel)
    before, after = fake(q.args["self"]).shape[2:], fake(q.node).shape[2:]
    over = any((after[i] - 1) * stride[i] + kernel[i] > before[i] + 2 * pad[i] for i in range(2))
    return kernel, stride, pad, over


def _divides_by_seen(q: Ask) -> bool:
    """Whether windows at the border divide by how much of the input they see."""
    _, _, pad, over = _of_mean(q)
    counts_padding = q.args["count_include_pad"] and any(pad)
    return q.args["divisor_override"] is None and (any(pad) or over) and not counts_padding


def _small_at_borders(q: Ask) -> str | None:
    """What windows at the border divide by is counted by the NPU, for few of them."""
    kernel, _, _, _ = _of_mean(q)
    if q.target.family == "U85" or not _divides_by_seen(q) or max(kernel) <= _MAX_AT_BORDER:
        return None
    return f"{kernel[0]} x {kernel[1]}"


def _small_steps(q: Ask) -> str | None:
    """A filter of ones is a depthwise convolution, needed where the scale changes."""
    _, stride, pad, _ = _of_mean(q)
    source, (user, *_) = q.args["self"], [*q.node.users, None]
    if q.target.family == "U85" or max(stride) <= 3 or not is_dequantize(source):
        return None
    if _divides_by_seen(q):
        return None
    alike = is_quantize(user) and Quant.of(source).same_numbers(Quant.of(user))
    plain = q.args["divisor_override"] is None and not any(pad)
    return None if alike and plain else f"stride={list(stride)}"


def _countable(q: Ask) -> str | None:
    """Windows that reach past the padding divide by what they see of it."""
    _, _, pad, over = _of_mean(q)
    counted = q.args["divisor_override"] is None and q.args["count_include_pad"]
    return "ceil_mode=True" if over and any(pad) and counted else None


def _small(q: Ask) -> str | None:
    kernel = pair(q.args["kernel_size"], (1, 1))
    return None if max(kernel) <= MAX_FILTER else f"{kernel[0]} x {kernel[1]}"


add_row(
    OpRow(
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
            Constraint(
                "strides up to 3 where scale or divisor change, except on U85", _small_steps
            ),
            Constraint(
                "no windows past padding that is counted", _countable, "count_include_pad=False"
            ),
        ),
        also="a filter of ones where the scale changes",
    )
)


def _adaptive(to: Lowering, node: Node, args: Args) -> Value:
    value = to.stored(args["self"])
    after = sizes(node)
    kernel = (value.shape[2] // after[2], value.shape[3] // after[3])
    return Means(value, kernel, kernel, (0, 0), after, True, None)


def _even(q: Ask) -> str | None:
    before, after = fake(q.args["self"]).shape[-2:], fake(q.node).shape[-2:]
    even = all(b % a == 0 for b, a in zip(before, after, strict=True))
    return None if even else f"{list(before)} to {list(after)}"


add_row(
    OpRow(
        "adaptive_avg_pool2d",
        (aten._adaptive_avg_pool2d.default,),
        _adaptive,
        (rank("self", 4), Constraint("sizes that divide the input's", _even)),
    )
)

__all__ = ["INT8", "Means"]
