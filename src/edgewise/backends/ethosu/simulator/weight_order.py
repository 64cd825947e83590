"""The order in which Ethos-U55 and U65 stream weights.

From the outside in: blocks of output channels, blocks of input channels, parts of the kernel
of at most 8 by 8 points, then, part kernel first: groups of 8 input channels, groups of output
channels, kernel points; depth first: groups of output channels, kernel points, groups of 8
input channels. Inside: the output channels of a group, the input channels of a group. Where a
group or part is cut off by an edge the stream has zeros. Depthwise kernels have one input channel.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator.memory import Array

_INPUT_GROUP = 8
_PART = 8


@dataclass(frozen=True)
class Order:
    depthwise: bool
    part_kernel: bool
    input_bits: int
    block_depth: int
    """Output channels of a block, in this stream."""
    group_depth: int
    """Output channels that the NPU computes at a time."""
    dilation: tuple[int, int]


@functools.lru_cache(maxsize=512)
def positions(order: Order, shape: tuple[int, int, int, int]) -> Array:
    """For each weight of a stream its index in [out, height, width, in], or the total for none."""
    out, height, width, inputs = shape
    total = out * height * width * inputs
    input_block = 16 if order.part_kernel or order.input_bits == 16 else 32
    if order.depthwise:
        input_block, inputs = 1, 1
    round_to = 1
    if order.depthwise:
        round_to = 4
    elif order.part_kernel:
        round_to = 2 if order.input_bits == 16 else 4
    parts = []
    for o in range(0, out, order.block_depth):
        groups = _steps(o, min(order.block_depth, out - o), order.group_depth)
        outs = groups[:, None] + np.arange(order.group_depth)
        for i in range(0, inputs, input_block):
            depth = min(input_block, inputs - i) if order.part_kernel else input_block
            group = 1 if order.depthwise else _INPUT_GROUP
            ins = _steps(i, depth, group)[:, None] + np.arange(group)
            for y in range(0, height, _PART // order.dilation[0]):
                for x in range(0, width, _PART // order.dilation[1]):
                    rows = min(height - y, _PART // order.dilation[0])
                    columns = min(width - x, _PART // order.dilation[1])
                    point = np.arange(-(-rows * columns // round_to) * round_to)
                    ky, kx = y + point // columns, x + point % columns
                    points = np.where(point < rows * columns, ky * width + kx, -1)
                    parts.append(_block(outs, ins, points, order.part_kernel, shape, total))
    return np.concatenate(parts)


def _block(
    outs: Array,
    ins: Array,
    points: Array,
    part_kernel: bool,
    shape: tuple[int, int, int, int],
    total: int,
) -> Array:
    """outs: [groups, channels], ins: [groups, channels], points: kernel points, -1 for none."""
    out, height, width, inputs = shape
    if part_kernel:  # in groups, out groups, points, out channels, in channels
        o = outs[None, :, None, :, None]
        i = ins[:, None, None, None, :]
        p = points[None, None, :, None, None]
    else:  # out groups, points, in groups, out channels, in channels
        o = outs[:, None, None, :, None]
        i = ins[None, None, :, None, :]
        p = points[None, :, None, None, None]
    index = (o * (height * width) + p) * inputs + i
    valid = (o < out) & (i < inputs) & (p >= 0)
    return np.where(valid, index, total).ravel()


def _steps(start: int, length: int, step: int) -> Array:
    return np.arange(start, start + length, step)
