"""Regions of memory that know which of their bytes were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.backends.ethosu.simulator.errors import NpuError

Array = npt.NDArray[Any]

INTERNAL = 8
"""The number of the region that stands for memory inside the NPU."""


@dataclass(frozen=True)
class Access:
    """Bytes that a command touches."""

    region: int
    start: int
    end: int
    write: bool

    def conflicts(self, other: Access) -> bool:
        return (
            (self.write or other.write)
            and self.region == other.region
            and self.start < other.end
            and other.start < self.end
        )

    def __str__(self) -> str:
        name = "internal memory" if self.region == INTERNAL else f"region {self.region}"
        return f"{'write' if self.write else 'read'} of {name} [{self.start:#x}, {self.end:#x})"


class Region:
    def __init__(self, size: int, contents: bytes | None = None) -> None:
        self.read_only = contents is not None
        self.size = size
        if contents is None:
            self.data = np.zeros(size, np.uint8)
            self.written = np.zeros(size, np.bool_)
        else:
            self.data = np.frombuffer(contents, np.uint8)
            self.written = np.ones(0, np.bool_)


class Memory:
    def __init__(self, regions: dict[int, Region]) -> None:
        self._regions = regions

    def __getitem__(self, number: int) -> Region:
        region = self._regions.get(number)
        if region is None:
            raise NpuError(f"a region is one of {sorted(self._regions)}; got {number}")
        return region

    def read(
        self, number: int, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: Any
    ) -> Array:
        """A view of what was written. Strides in bytes."""
        region = self._check(number, offset, shape, strides, np.dtype(dtype))
        if not region.read_only:
            shadow = _view(region.written, offset, shape, strides, np.dtype(dtype))
            if not shadow.all():
                where = np.argwhere(~shadow)[0]
                first = offset + sum(int(i) * s for i, s in zip(where, (*strides, 1), strict=True))
                raise NpuError(
                    f"bytes are written before they are read; got {np.count_nonzero(~shadow)} "
                    f"that are not, the first at {first:#x} of region {number}"
                )
        return np.ndarray(shape, dtype, region.data, offset, strides)

    def write(self, number: int, offset: int, strides: Sequence[int], values: Array) -> None:
        region = self._check(number, offset, values.shape, strides, values.dtype)
        if region.read_only:
            raise NpuError(f"region {number} is for reading only; got a write at {offset:#x}")
        view: Array = np.ndarray(values.shape, values.dtype, region.data, offset, strides)
        view[...] = values
        _view(region.written, offset, values.shape, strides, values.dtype)[...] = True

    def copy(
        self,
        source: tuple[int, int, Sequence[int]],
        target: tuple[int, int, Sequence[int]],
        shape: Sequence[int],
    ) -> None:
        """Copies bytes and whether they were written. From and to: region, offset, strides."""
        byte = np.dtype(np.uint8)
        regions = [self._check(*one[:2], shape, one[2], byte) for one in (source, target)]
        if regions[1].read_only:
            raise NpuError(f"region {target[0]} is for reading only; got a write at {target[1]:#x}")
        for name in ("data", "written"):
            memory_from, memory_to = (getattr(region, name) for region in regions)
            view: Array = np.ndarray(shape, memory_to.dtype, memory_to, target[1], target[2])
            if name == "written" and regions[0].read_only:
                view[...] = True
            else:
                view[...] = np.ndarray(
                    shape, memory_from.dtype, memory_from, source[1], source[2]
                ).copy()

    def forget(self, number: int) -> None:
        """What the region holds is overwritten by something unknown."""
        self[number].written[...] = False

    def bytes_at(self, number: int, offset: int, size: int) -> bytes:
        return self.read(number, offset, (size,), (1,), np.uint8).tobytes()

    def _check(
        self,
        number: int,
        offset: int,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: np.dtype[Any],
    ) -> Region:
        region = self[number]
        start, end = span(offset, shape, strides, dtype.itemsize)
        if start < 0 or end > region.size:
            raise NpuError(
                f"addresses are in region {number} of {region.size:#x} bytes; "
                f"got [{start:#x}, {end:#x})"
            )
        if any(value % dtype.itemsize for value in (offset, *strides)):
            raise NpuError(
                f"addresses and strides are multiples of an element's {dtype.itemsize} bytes; "
                f"got {offset:#x}, {', '.join(map(hex, strides))}"
            )
        count = int(np.prod(np.asarray(shape, dtype=object)))
        if count * dtype.itemsize > region.size:
            raise NpuError(f"elements do not lie on each other; got {tuple(shape)} of {count}")
        return region


def span(
    offset: int, shape: Sequence[int], strides: Sequence[int], item_size: int
) -> tuple[int, int]:
    """The first byte, and the one after the last."""
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low = offset + sum(step for step in steps if step < 0)
    high = offset + sum(step for step in steps if step > 0)
    return low, high + item_size


def _view(
    written: Array, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    return np.ndarray(
        (*shape, dtype.itemsize),
        np.bool_,
        written,
        offset,
        (*strides, 1),
    )
