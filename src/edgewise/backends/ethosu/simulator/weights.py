"""Weights and scales of a kernel: read from memory, decoded, and put in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator import mlw
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Access, Array, Memory
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Target
from edgewise.backends.ethosu.simulator.weight_order import Order, positions

_SCALE_BYTES = 10
_ALIGNMENT = 16


@dataclass(frozen=True)
class Scales:
    """For each output channel, int64."""

    bias: Array
    multiplier: Array
    shift: Array


@dataclass(frozen=True)
class Stream:
    """Bytes that a core reads."""

    region: int
    start: int
    size: int

    @property
    def access(self) -> Access:
        return Access(self.region, self.start, self.start + self.size, False)


def cores(registers: Registers, target: Target) -> int:
    if target.cores == 1:
        return 1
    return 1 + registers.get("PARALLEL_MODE", "parallel_mode")


def streams(registers: Registers, kind: str, count: int) -> list[Stream]:
    """kind: "WEIGHT" or "SCALE". Streams of no bytes are left out."""
    region = registers.get(f"{kind}_REGION", "region")
    result = []
    for core in range(count):
        name = kind if core == 0 else f"{kind}{core}"
        size = registers.get(f"{name}_LENGTH", "length")
        start = registers.address(f"{name}_BASE") if size else 0
        if start % _ALIGNMENT:
            raise NpuError(f"{name}_BASE is a multiple of {_ALIGNMENT}; got {start:#x}")
        result.append(Stream(region, start, size))
    return result


class WeightReader:
    """Decoded weights are kept: the same bytes in the same order are decoded once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._decoded: dict[tuple[bytes, Order, tuple[int, int, int, int]], Array] = {}

    def read(
        self,
        memory: Memory,
        registers: Registers,
        shape: tuple[int, int, int, int],
        depthwise: bool,
        input_bits: int,
        dilation: tuple[int, int],
    ) -> Array:
        """[out, height, width, in] as int16; a depthwise kernel has one input channel."""
        count = cores(registers, self._target)
        part_kernel = registers.enum("KERNEL_STRIDE", "weight_order") == "PART_KERNEL_FIRST"
        block = registers.get("OFM_BLK_DEPTH_M1", "depth_m1") + 1
        result = np.zeros(shape, np.int16)
        for core, stream in enumerate(streams(registers, "WEIGHT", count)):
            outs = -(-(shape[0] - core) // count)
            if outs <= 0:
                continue
            order = Order(
                depthwise=depthwise,
                part_kernel=part_kernel and not depthwise,
                input_bits=input_bits,
                block_depth=max(1, (block + count - 1 - core) // count),
                group_depth=4 if self._target.macs == 32 else 8,
                dilation=dilation,
            )
            data = memory.bytes_at(stream.region, stream.start, stream.size)
            result[core::count] = self._decode(data, order, (outs, *shape[1:]))
        return result

    def _decode(self, data: bytes, order: Order, shape: tuple[int, int, int, int]) -> Array:
        key = (data, order, shape)
        if key not in self._decoded:
            index = positions(order, shape)
            values = mlw.decode(data)
            if len(values) < len(index) or values[len(index) :].any():
                raise NpuError(
                    f"the weight stream has {len(index)} weights; "
                    f"got {len(values)} in {len(data)} bytes"
                )
            result = np.zeros(int(np.prod(shape)) + 1, np.int16)
            result[index] = values[: len(index)]
            self._decoded[key] = result[:-1].reshape(shape)
        return self._decoded[key]


def read_scales(memory: Memory, registers: Registers, target: Target, channels: int) -> Scales:
    count = cores(registers, target)
    records = np.zeros((channels, _SCALE_BYTES), np.uint8)
    for core, stream in enumerate(streams(registers, "SCALE", count)):
        part = records[core::count]
        if not len(part):
            continue
        size = len(part) * _SCALE_BYTES
        if stream.size < size:
            raise NpuError(
                f"a scale has {_SCALE_BYTES} bytes; got {stream.size} for {len(part)} channels"
            )
        data = memory.bytes_at(stream.region, stream.start, size)
        part[...] = np.frombuffer(data, np.uint8).reshape(-1, _SCALE_BYTES)
    wide = records.astype(np.int64)
    bias = number(wide[:, :5])
    bias = bias - ((bias >> 39) << 40)
    return Scales(bias, number(wide[:, 5:9]), wide[:, 9] & 0x3F)


def number(digits: Array) -> Array:
    """[channels] of [channels, bytes], the lowest first."""
    return np.asarray((digits << 8 * np.arange(digits.shape[1])).sum(1))
