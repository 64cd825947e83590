"""What convolution, depthwise convolution and pooling share: windows over a feature map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.memory import Array
from edgewise.backends.ethosu.simulator.registers import Registers

_MAX_SIDE = 256
MAX_AREA = 256 * 256


@dataclass(frozen=True)
class Kernel:
    height: int
    """In points, without dilation."""
    width: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    top: int
    left: int
    bottom: int
    right: int
    upscale: str

    def input_size(self, out_height: int, out_width: int) -> tuple[int, int]:
        """Rows and columns of the feature map that the windows lie in."""
        rows = self._extent(0, out_height) - self.top - self.bottom
        columns = self._extent(1, out_width) - self.left - self.right
        if self.upscale != "NONE":
            rows, columns = -(-rows // 2), -(-columns // 2)
        if rows < 1 or columns < 1:
            raise NpuError(f"windows cover a row and column; got {rows} by {columns}")
        return rows, columns

    def check_padding(self) -> None:
        """NpuError if windows lie beside the feature map, in what is put around it alone."""
        around = ((self.top, self.bottom), (self.left, self.right))
        for axis, (before, after) in enumerate(around):
            size = self._extent(axis, 1)
            if max(before, after) >= size:
                raise NpuError(f"windows of {size} lie over the feature map; got {before}, {after}")

    def _extent(self, axis: int, outputs: int) -> int:
        points = (self.height, self.width)[axis]
        return (outputs - 1) * self.stride[axis] + (points - 1) * self.dilation[axis] + 1

    def pad(self, values: Array, out_height: int, out_width: int, fill: Any) -> Array:
        """values [rows, columns, channels], upscaled, and with what lies beyond its edges."""
        if self.upscale == "NEAREST":
            values = values.repeat(2, 0).repeat(2, 1)
        elif self.upscale == "ZEROS":
            rows, columns, channels = values.shape
            spread = np.full((2 * rows, 2 * columns, channels), fill, values.dtype)
            spread[::2, ::2] = values
            values = spread
        height, width = self._extent(0, out_height), self._extent(1, out_width)
        if not (self.top or self.left) and values.shape[:2] == (height, width):
            return values
        result = np.full((height, width, values.shape[2]), fill, values.dtype)
        rows = min(values.shape[0], height - self.top)
        columns = min(values.shape[1], width - self.left)
        result[self.top : self.top + rows, self.left : self.left + columns] = values[
            :rows, :columns
        ]
        return result

    def point(self, padded: Array, y: int, x: int, out_height: int, out_width: int) -> Array:
        """What the kernel's point (y, x) sees of each window: [out rows, out columns, channels]."""
        top, left = y * self.dilation[0], x * self.dilation[1]
        sy, sx = self.stride
        return padded[
            top : top + (out_height - 1) * sy + 1 : sy, left : left + (out_width - 1) * sx + 1 : sx
        ]


def read_kernel(registers: Registers) -> Kernel:
    if registers.enum("KERNEL_STRIDE", "decomposition") != "D8X8":
        raise NotSimulatedError("not simulated: kernels in parts of 4 by 4")
    if registers.enum("ACC_FORMAT", "acc_format") == "F16":
        raise NotSimulatedError("not simulated: accumulators in float16")
    stride, dilation, points = [], [], []
    for axis, side in (("y", "HEIGHT"), ("x", "WIDTH")):
        low = registers.get("KERNEL_STRIDE", f"stride_{axis}_lsb")
        high = registers.get("KERNEL_STRIDE", f"stride_{axis}_msb")
        stride.append(1 + low + 2 * high)
        dilation.append(1 + registers.get("KERNEL_STRIDE", f"dilation_{axis}"))
        extent = registers.get(f"KERNEL_{side}_M1", f"{side.lower()}_m1")
        if extent % dilation[-1]:
            raise NpuError(
                f"a kernel's {side.lower()} - 1 is a multiple of its dilation; got {extent}"
            )
        points.append(extent // dilation[-1] + 1)
    if (max(points) > _MAX_SIDE and min(points) > 1) or points[0] * points[1] > MAX_AREA:
        raise NpuError(f"a kernel has at most {MAX_AREA} points; got {points[0]} by {points[1]}")
    return Kernel(
        height=points[0],
        width=points[1],
        stride=(stride[0], stride[1]),
        dilation=(dilation[0], dilation[1]),
        top=registers.get("IFM_PAD_TOP", "pad"),
        left=registers.get("IFM_PAD_LEFT", "pad"),
        bottom=registers.get("IFM_PAD_BOTTOM", "pad"),
        right=registers.get("IFM_PAD_RIGHT", "pad"),
        upscale=registers.enum("IFM_UPSCALE", "mode"),
    )
