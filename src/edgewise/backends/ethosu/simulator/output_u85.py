"""From scaled accumulators to the output feature map on Ethos-U85: limits and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Access, Array, Memory
from edgewise.backends.ethosu.simulator.output import interpolate
from edgewise.backends.ethosu.simulator.registers import Registers

_TABLE_BYTES = {
    "LUT_U8_U8": 256,
    "LUT_S8_S8": 256,
    "LUT_S8_S16": 512,
    "LUT_S8_S32": 1024,
    "LUT_S16_S16": 2048,
    "LUT_S16_S32": 2048,
}


def table_access_u85(registers: Registers) -> Access | None:
    """Where an activation's table is; None without one."""
    function = registers.enum("ACTIVATION", "activation_function")
    if function == "LUT_NONE":
        return None
    if function not in _TABLE_BYTES:
        raise NotSimulatedError(f"not simulated: the built-in activation {function}")
    size = _TABLE_BYTES[function]
    start = registers.get("ACTIVATION", "table") * size
    return Access(INTERNAL, start, start + size, False)


def finish_u85(
    values: Array, registers: Registers, dtype: np.dtype[Any], table: Access | None, memory: Memory
) -> Array:
    """Limits the values, zero point included, and looks them up; int64."""
    function = registers.enum("ACTIVATION", "activation_function")
    unsigned = function == "LUT_U8_U8" or (function == "LUT_NONE" and dtype.kind == "u")
    if registers.enum("ACTIVATION", "activation_clip_range") == "B16":
        low = registers.signed("ACTIVATION_MIN", "clip_boundary", 16)
        high = registers.signed("ACTIVATION_MAX", "clip_boundary", 16)
        if unsigned:
            low, high = max(low, 0), registers.get("ACTIVATION_MAX", "clip_boundary")
        values = np.clip(values, low, high)
    if table is None:
        if dtype.itemsize < 4:
            limits = np.iinfo(dtype)
            values = np.clip(values, limits.min, limits.max)
        return values
    data = memory.bytes_at(INTERNAL, table.start, table.end - table.start)
    if function == "LUT_S16_S16":
        return interpolate(values, np.frombuffer(data, "<i4"), 7)
    if function == "LUT_S16_S32":
        return interpolate(values, np.frombuffer(data, "<i4"), 0)
    kind = {"LUT_U8_U8": "u1", "LUT_S8_S8": "i1", "LUT_S8_S16": "<i2", "LUT_S8_S32": "<i4"}
    entries = np.frombuffer(data, kind[function])
    return np.asarray(entries[(values + (0 if unsigned else 128)) & 0xFF])
