"""Feature maps: three-dimensional arrays in up to four tiles, linear or in bricks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Access, Array, Memory, span
from edgewise.backends.ethosu.simulator.registers import Registers

_BRICK = 16
IN_MEMORY = ("TILE2X2", "TILE3X1")
"""Storages of Ethos-U85 that are not inside the NPU."""
TRANSPOSES = {
    "HWC": (0, 1, 2),
    "WHC": (1, 0, 2),
    "HCW": (0, 2, 1),
    "WCH": (1, 2, 0),
    "CHW": (2, 0, 1),
    "CWH": (2, 1, 0),
}
"""What Ethos-U85 writes in which order: by name, the axes of the result."""


@dataclass(frozen=True)
class Tile:
    """A part of a feature map: its address, its first row and column, its size."""

    base: int
    y: int
    x: int
    height: int
    width: int


@dataclass(frozen=True)
class FeatureMap:
    name: str
    region: int
    bases: tuple[int, int, int, int]
    width0: int
    height0: int
    height1: int
    strides: tuple[int, int, int]
    """Bytes from row to row, pixel to pixel, and brick to brick. Linear channels lie together."""
    bricks: bool
    """NHCWB16: 16 channels of a pixel lie together."""
    column: bool
    """TILE3X1: the tiles lie under each other, else two by two."""
    dtype: np.dtype[Any]
    shape: tuple[int, int, int]

    def tiles(self) -> Iterator[Tile]:
        height, width, _ = self.shape
        if self.column:
            start = 0
            for base, size in zip(self.bases, (self.height0, self.height1, height), strict=False):
                rows = min(size, height - start)
                if rows > 0:
                    yield Tile(base, start, 0, rows, width)
                start += size
            return
        left, right = min(self.width0, width), width - self.width0
        upper, lower = min(self.height0, height), height - self.height0
        yield Tile(self.bases[0], 0, 0, upper, left)
        if lower > 0:
            yield Tile(self.bases[2], upper, 0, lower, left)
        if right > 0:
            upper, lower = min(self.height1, height), height - self.height1
            yield Tile(self.bases[1], 0, left, upper, right)
            if lower > 0:
                yield Tile(self.bases[3], upper, left, lower, right)

    def read(self, memory: Memory) -> Array:
        """[height, width, channels], in the feature map's type."""
        self._check()
        parts = list(self.tiles())
        if len(parts) == 1:
            return self._read(memory, parts[0])
        result = np.empty(self.shape, self.dtype)
        for tile in parts:
            result[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width] = self._read(
                memory, tile
            )
        return result

    def write(self, memory: Memory, values: Array) -> None:
        self._check()
        for tile in self.tiles():
            part = values[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width]
            for offset, first, count, shape, strides in self._pieces(tile):
                piece = part[..., first : first + count].reshape(shape)
                memory.write(self.region, offset, strides, piece)

    def accesses(self, write: bool) -> list[Access]:
        result = []
        for tile in self.tiles():
            for offset, _, _, shape, strides in self._pieces(tile):
                start, end = span(offset, shape, strides, self.dtype.itemsize)
                result.append(Access(self.region, start, end, write))
        return result

    def check_apart(self) -> None:
        """NpuError if two elements have the same bytes."""
        for tile in self.tiles():
            for _, _, _, shape, strides in self._pieces(tile):
                inner = self.dtype.itemsize
                for stride, size in sorted(
                    (abs(stride), size) for stride, size in zip(strides, shape, strict=True)
                ):
                    if size > 1 and stride < inner:
                        raise NpuError(
                            f"{self.name} has its elements apart; got strides of "
                            f"{', '.join(map(str, strides))} for {shape}"
                        )
                    inner += (size - 1) * stride

    def _check(self) -> None:
        if self.bricks and any(base % _BRICK for base in self.bases):
            raise NpuError(
                f"{self.name} in bricks is at multiples of {_BRICK}; "
                f"got {', '.join(map(hex, self.bases))}"
            )

    def _read(self, memory: Memory, tile: Tile) -> Array:
        parts = []
        for offset, _, count, shape, strides in self._pieces(tile):
            view = memory.read(self.region, offset, shape, strides, self.dtype)
            if self.bricks:
                view = view.reshape(tile.height, tile.width, count)
            parts.append(view)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)

    def _pieces(
        self, tile: Tile
    ) -> Iterator[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]]:
        """Offset, first channel, channels, shape and strides: whole bricks, then the rest."""
        stride_y, stride_x, stride_c = self.strides
        depth = self.shape[2]
        size = (tile.height, tile.width)
        if not self.bricks:
            yield tile.base, 0, depth, (*size, depth), (stride_y, stride_x, self.dtype.itemsize)
            return
        whole, rest = divmod(depth, _BRICK)
        item = self.dtype.itemsize
        if whole:
            yield (
                tile.base,
                0,
                whole * _BRICK,
                (*size, whole, _BRICK),
                (stride_y, stride_x, stride_c, item),
            )
        if rest:
            first = whole * _BRICK
            yield (
                tile.base + whole * stride_c,
                first,
                rest,
                (*size, rest),
                (stride_y, stride_x, item),
            )


def feature_map(registers: Registers, name: str, shape: tuple[int, int, int]) -> FeatureMap:
    """The feature map that registers IFM_*, IFM2_* or OFM_* describe."""
    precision = f"{name}_PRECISION"
    bits = 8 << registers.get(precision, "activation_precision")
    signed = registers.get(precision, "activation_type")
    has_storage = registers.has_field(precision, "activation_storage")
    return FeatureMap(
        name=name,
        region=registers.get(f"{name}_REGION", "region"),
        bases=(
            registers.address(f"{name}_BASE0"),
            registers.address(f"{name}_BASE1"),
            registers.address(f"{name}_BASE2"),
            registers.address(f"{name}_BASE3"),
        ),
        width0=registers.get(f"{name}_WIDTH0_M1", "width_m1") + 1,
        height0=registers.get(f"{name}_HEIGHT0_M1", "height_m1") + 1,
        height1=registers.get(f"{name}_HEIGHT1_M1", "height_m1") + 1,
        strides=(
            registers.stride(f"{name}_STRIDE_Y"),
            registers.stride(f"{name}_STRIDE_X"),
            registers.stride(f"{name}_STRIDE_C"),
        ),
        bricks=registers.enum(precision, "activation_format") == "NHCWB16",
        column=has_storage and registers.enum(precision, "activation_storage") == "TILE3X1",
        dtype=np.dtype(f"{'i' if signed else 'u'}{bits // 8}"),
        shape=shape,
    )


def output_shape(registers: Registers) -> tuple[int, int, int]:
    """Height, width, depth of what a kernel computes; before it is turned over."""
    return (
        registers.get("OFM_HEIGHT_M1", "height_m1") + 1,
        registers.get("OFM_WIDTH_M1", "width_m1") + 1,
        registers.get("OFM_DEPTH_M1", "depth_m1") + 1,
    )


def output_map(registers: Registers) -> FeatureMap | None:
    """Where a kernel writes; None where its result stays inside the NPU, as Ethos-U85's may."""
    shape = output_shape(registers)
    stored = registers.has_field("OFM_PRECISION", "activation_storage")
    if stored and registers.enum("OFM_PRECISION", "activation_storage") not in IN_MEMORY:
        return None
    if registers.has_field("OFM_PRECISION", "activation_transpose"):
        order = TRANSPOSES[registers.enum("OFM_PRECISION", "activation_transpose")]
        shape = (shape[order[0]], shape[order[1]], shape[order[2]])
    return feature_map(registers, "OFM", shape)
