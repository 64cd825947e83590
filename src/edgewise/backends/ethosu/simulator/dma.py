"""Copies: lines, planes of lines, and stacks of planes."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Access, Memory, span
from edgewise.backends.ethosu.simulator.registers import Registers


@dataclass(frozen=True)
class Side:
    region: int
    start: int
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class Transfer:
    source: Side
    target: Side
    shape: tuple[int, int, int]
    """Planes, lines, bytes of a line."""

    def accesses(self) -> list[Access]:
        return [
            Access(side.region, *span(side.start, self.shape, side.strides, 1), write)
            for side, write in ((self.source, False), (self.target, True))
        ]

    def run(self, memory: Memory) -> None:
        """Bytes that were never written may be among those copied: they stay unwritten."""
        source, target = self.source, self.target
        memory.copy(
            (source.region, source.start, source.strides),
            (target.region, target.start, target.strides),
            self.shape,
        )


def region_of(registers: Registers, name: str) -> int:
    internal = registers.enum(name, "region_mode") == "INTERNAL"
    return INTERNAL if internal else registers.get(name, "region")


def read_transfer(registers: Registers) -> Transfer:
    """Of Ethos-U55 and U65: what follows a line or plane is skipped in memory."""
    length = registers.address("DMA0_LEN")
    sides, dimensions = [], 1
    for name in ("SRC", "DST"):
        mode = registers.get(f"DMA0_{name}_REGION", "stride_mode") + 1
        dimensions = max(dimensions, mode)
        lines = registers.get("DMA0_SIZE0", "size") if mode > 1 else 1
        line = length + (registers.address("DMA0_SKIP0") if mode > 1 else 0)
        plane = length * lines + (registers.address("DMA0_SKIP1") if mode > 2 else 0)
        region = region_of(registers, f"DMA0_{name}_REGION")
        sides.append((region, registers.address(f"DMA0_{name}"), mode, line, plane))
    lines = registers.get("DMA0_SIZE0", "size") if dimensions > 1 else 1
    planes = registers.get("DMA0_SIZE1", "size") if dimensions > 2 else 1
    if not (length and lines and planes):
        raise NpuError(f"a transfer has bytes; got {planes} planes of {lines} lines of {length}")
    source, target = (
        Side(
            region,
            start,
            (plane if mode > 2 else length * lines, line if mode > 1 else length, 1),
        )
        for region, start, mode, line, plane in sides
    )
    return Transfer(source, target, (planes, lines, length))
