"""Resizing: positions in steps of a fraction, values from the nearest pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewise.backends.ethosu.simulator.memory import Array
from edgewise.backends.ethosu.simulator.registers import Registers


@dataclass(frozen=True)
class Axis:
    parts: int
    """Of a pixel."""
    step: int
    """Parts from an output to the next."""
    offset: int
    """The first output's position in parts."""

    def neighbours(self, outputs: int, inputs: int) -> tuple[Array, Array, Array]:
        """For each output the pixel before, the one after, and the parts between."""
        position = self.offset + np.arange(outputs) * self.step
        before = position // self.parts
        return (
            np.clip(before, 0, inputs - 1),
            np.clip(before + 1, 0, inputs - 1),
            position - before * self.parts,
        )


def read_axis(registers: Registers, name: str) -> Axis:
    parts = registers.get(f"RESIZE_{name}_SCALE_N_M1", f"resize_{name.lower()}_scale_n_m1") + 1
    whole = registers.get(f"RESIZE_{name}", "one_step_int")
    rest = registers.get(f"RESIZE_{name}", "one_step_mod")
    offset = registers.signed(f"RESIZE_{name}_OFFSET", f"resize_{name.lower()}_offset", 12)
    return Axis(parts, whole * parts + rest, offset)


def bilinear(x: Array, rows: Axis, columns: Axis, height: int, width: int) -> Array:
    """Sums weighed by parts of both axes; int64."""
    y0, y1, dy = rows.neighbours(height, x.shape[0])
    x0, x1, dx = columns.neighbours(width, x.shape[1])
    dy, dx = dy[:, None, None], dx[None, :, None]
    upper = x[y0][:, x0] * (columns.parts - dx) + x[y0][:, x1] * dx
    lower = x[y1][:, x0] * (columns.parts - dx) + x[y1][:, x1] * dx
    return np.asarray(upper * (rows.parts - dy) + lower * dy)


def nearest(x: Array, rows: Axis, columns: Axis, height: int, width: int) -> Array:
    """Halves go to the pixel after."""
    y0, y1, dy = rows.neighbours(height, x.shape[0])
    x0, x1, dx = columns.neighbours(width, x.shape[1])
    y = np.where(2 * dy >= rows.parts, y1, y0)
    return np.asarray(x[y][:, np.where(2 * dx >= columns.parts, x1, x0)])
