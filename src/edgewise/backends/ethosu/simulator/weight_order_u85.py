"""The order in which Ethos-U85 streams weights.

From the outside in: blocks of output channels; blocks of input channels, forwards and
backwards in turn; parts of the kernel of at most 8 by 8 points, columns before rows; groups of
input channels; groups of output channels; points of the kernel; eights of input channels; fours
of output channels, dealt to the decoders in turn; four output channels; eight input channels.
Points go stride phase by stride phase, within one in rows of alternating direction.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator.memory import Array

_FOUR = 4
_PART = 8


@dataclass(frozen=True)
class OrderU85:
    depthwise: bool
    part_kernel: bool
    sparse: bool
    input_bits: int
    block_depth: int
    """Output channels of a block."""
    group_depth: int
    """Output channels that the NPU computes at a time."""
    macs: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    decoders: int
    interleaved: bool
    """All decoders' weights in one stream."""

    @property
    def input_block(self) -> int:
        if self.part_kernel:
            return 16
        if self.macs <= 256 and self.group_depth == 16 and not self.sparse:
            return 32
        return 128 if self.sparse and self.input_bits == 8 else 64

    @property
    def input_group(self) -> int:
        if self.depthwise:
            return 1
        if self.part_kernel and self.input_bits == 16 and not self.sparse:
            return 8
        return self.input_block

    @property
    def round_to(self) -> int:
        """Points of a kernel's part are filled up to a multiple of this."""
        if self.depthwise:
            return 10
        if self.part_kernel:
            return 10 if self.input_bits == 16 or self.sparse else 5
        return 1

    @property
    def idle(self) -> int:
        """Points that a depthwise kernel leaves empty after each ten."""
        if not self.depthwise or (self.input_bits == 8 and self.macs <= 256):
            return 0
        return 2 if self.macs <= 512 else 6


@functools.lru_cache(maxsize=512)
def positions_u85(order: OrderU85, shape: tuple[int, int, int, int], decoder: int) -> Array:
    """For each weight of a stream its index in [out, height, width, in], or the total for none."""
    if order.interleaved and order.decoders > 1:
        parts = [_stream(order, shape, d) for d in range(order.decoders)]
        block = order.group_depth * order.input_group * order.round_to // order.decoders
        dealt: Array = np.stack([part.reshape(-1, block) for part in parts], 1)
        return dealt.ravel()
    return _stream(order, shape, decoder)


def _stream(order: OrderU85, shape: tuple[int, int, int, int], decoder: int) -> Array:
    out, height, width, inputs = shape
    total = out * height * width * inputs
    block = 1 if order.depthwise else order.input_block
    starts = list(range(0, 1 if order.depthwise else inputs, block))
    eight = 1 if order.depthwise else (16 if order.sparse else 8)
    step_y, step_x = _PART // order.dilation[0], _PART // order.dilation[1]
    lanes = np.arange(decoder * _FOUR, order.group_depth, _FOUR * order.decoders)
    lanes = (lanes[:, None] + np.arange(_FOUR)).ravel()
    parts = []
    for number, o in enumerate(range(0, out, order.block_depth)):
        groups = np.arange(o, min(o + order.block_depth, out), order.group_depth)
        outs = groups[:, None] + lanes
        for i in starts if number % 2 == 0 else starts[::-1]:
            depth = 1 if order.depthwise else min(block, inputs - i)
            for x in range(0, width, step_x):
                for y in range(0, height, step_y):
                    rows, columns = min(height - y, step_y), min(width - x, step_x)
                    point = _points(order, rows, columns)
                    points = np.where(
                        point < 0, -1, (y + point // columns) * width + x + point % columns
                    )
                    for group in range(i, i + depth, order.input_group):
                        ins = np.arange(group, group + order.input_group).reshape(-1, eight)
                        parts.append(_block(outs, ins, points, shape, total))
    return np.concatenate(parts)


def _points(order: OrderU85, rows: int, columns: int) -> Array:
    """Indices of a part's points in their order, -1 for none."""
    stride_y, stride_x = order.stride if order.part_kernel or order.depthwise else (1, 1)
    points = []
    for y in range(min(stride_y, rows)):
        for x in range(min(stride_x, columns)):
            for number, row in enumerate(range(y, rows, stride_y)):
                line = [row * columns + column for column in range(x, columns, stride_x)]
                points += line if number % 2 == 0 else line[::-1]
    filled = np.full(-(-len(points) // order.round_to) * order.round_to, -1)
    filled[: len(points)] = points
    if order.idle:
        tens = filled.reshape(-1, 10)
        filled = np.pad(tens, ((0, 0), (0, order.idle)), constant_values=-1).ravel()
    return filled


def _block(
    outs: Array, ins: Array, points: Array, shape: tuple[int, int, int, int], total: int
) -> Array:
    """outs: [groups, channels], ins: [eights, channels], points: kernel points, -1 for none."""
    out, height, width, inputs = shape
    four = outs.reshape(len(outs), -1, _FOUR)
    o = four[:, None, None, :, :, None]
    i = ins[None, None, :, None, None, :]
    p = points[None, :, None, None, None, None]
    index = (o * (height * width) + p) * inputs + i
    return np.where((o < out) & (i < inputs) & (p >= 0), index, total).ravel()
