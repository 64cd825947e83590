"""Transfers of Ethos-U85: strides on both sides, and lines chosen by an index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator.dma import Side, Transfer, read_transfer, region_of
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Access, Memory, span
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Target

_INDEX_BYTES = 4


@dataclass(frozen=True)
class Indexed:
    """Lines of one side are at multiples of its stride that an index gives."""

    plain: Transfer
    by_source: bool
    region: int
    start: int
    skip: int
    largest: int

    def _strides(self) -> tuple[int, int]:
        return self.plain.shape[1] * _INDEX_BYTES + self.skip, _INDEX_BYTES

    def accesses(self) -> list[Access]:
        planes, lines, length = self.plain.shape
        reach = (planes, self.largest + 1, length)
        shapes = (reach, self.plain.shape) if self.by_source else (self.plain.shape, reach)
        found = [
            Access(side.region, *span(side.start, shape, side.strides, 1), write)
            for side, shape, write in (
                (self.plain.source, shapes[0], False),
                (self.plain.target, shapes[1], True),
            )
        ]
        index = span(self.start, (planes, lines), self._strides(), _INDEX_BYTES)
        return [*found, Access(self.region, *index, False)]

    def run(self, memory: Memory) -> None:
        planes, lines, length = self.plain.shape
        index = memory.read(self.region, self.start, (planes, lines), self._strides(), np.int32)
        if index.min() < 0 or index.max() > self.largest:
            raise NpuError(
                f"an index is between 0 and {self.largest}; got {index.min()} to {index.max()}"
            )
        for plane in range(planes):
            for line in range(lines):
                at = (int(index[plane, line]), line)
                source, target = (
                    (side.region, side.start + plane * side.strides[0] + n * side.strides[1], (1,))
                    for side, n in (
                        (self.plain.source, at[0 if self.by_source else 1]),
                        (self.plain.target, at[1 if self.by_source else 0]),
                    )
                )
                memory.copy(source, target, (length,))


def read_transfer_u85(registers: Registers) -> Transfer | Indexed:
    length = registers.address("DMA0_LEN")
    mode = registers.get("DMA0_SRC_REGION", "stride_mode")
    indexed = [registers.get(f"DMA0_{name}_REGION", "idx_mode") for name in ("SRC", "DST")]
    lines = registers.get("DMA0_SIZE0", "size")
    planes = registers.get("DMA0_SIZE1", "size") if mode > 1 else 1
    if not (length and lines and planes):
        raise NpuError(f"a transfer has bytes; got {planes} planes of {lines} lines of {length}")
    sides = []
    for name, by_index in zip(("SRC", "DST"), indexed, strict=True):
        line = registers.address(f"DMA0_{name}_STRIDE0") if mode > 0 or by_index else length
        plane = registers.address(f"DMA0_{name}_STRIDE1") if mode > 1 else line * lines
        region = region_of(registers, f"DMA0_{name}_REGION")
        sides.append(Side(region, registers.address(f"DMA0_{name}"), (plane, line, 1)))
    transfer = Transfer(sides[0], sides[1], (planes, lines, length))
    if not any(indexed):
        return transfer
    if all(indexed):
        raise NpuError("one side of a transfer is indexed; got both")
    return Indexed(
        transfer,
        bool(indexed[0]),
        registers.get("DMA0_IDX_REGION", "region"),
        registers.address("DMA0_IDX"),
        registers.address("DMA0_IDX_SKIP1") if mode > 1 else 0,
        registers.get("DMA0_IDX_MAX", "idx_max"),
    )


def transfer_of(target: Target, registers: Registers) -> Transfer | Indexed:
    """What the DMA registers describe, on the target."""
    return (read_transfer_u85 if target.family == "u85" else read_transfer)(registers)
