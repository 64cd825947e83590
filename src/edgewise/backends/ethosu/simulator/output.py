"""From accumulators to the output feature map: scale, zero point, limits, table."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.feature_map import FeatureMap
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Access, Array, Memory
from edgewise.backends.ethosu.simulator.registers import Registers

SLOT = 256
_TABLES = 8 * SLOT


def table_access(registers: Registers, ofm: FeatureMap, shram_bytes: int) -> Access | None:
    """Where an activation's table is; None without one."""
    function = registers.enum("ACTIVATION", "activation_function")
    if not function.startswith("TABLE_"):
        return None
    size = {1: 256, 2: 2048, 4: 1024}[ofm.dtype.itemsize]
    start = shram_bytes - _TABLES + int(function[-1]) * SLOT
    return Access(INTERNAL, start, start + size, False)


def finish(values: Array, registers: Registers, ofm: FeatureMap) -> Array:
    """Adds the zero point and limits the values; int64."""
    function = registers.enum("ACTIVATION", "activation_function")
    if function in ("TANH", "SIGMOID"):
        raise NotSimulatedError(f"not simulated: the built-in activation {function}")
    bits = 8 * ofm.dtype.itemsize
    signed = ofm.dtype.kind == "i"
    if signed:
        values = values + registers.signed("OFM_ZERO_POINT", "zero_point", 16)
    else:
        values = values + registers.get("OFM_ZERO_POINT", "zero_point")
    clip = registers.enum("ACTIVATION", "activation_clip_range")
    if clip == "OFM_PRECISION":
        if bits == 32:
            return values
        signed_limits = signed
    else:
        bits, signed_limits = {
            "FORCE_UINT8": (8, False),
            "FORCE_INT8": (8, True),
            "FORCE_INT16": (16, True),
        }[clip]
    if signed_limits:
        low = registers.signed("ACTIVATION_MIN", "clip_boundary", 16)
        high = registers.signed("ACTIVATION_MAX", "clip_boundary", 16)
        low, high = max(low, -1 << bits - 1), min(high, (1 << bits - 1) - 1)
    else:
        low = max(registers.signed("ACTIVATION_MIN", "clip_boundary", 16), 0)
        high = min(registers.get("ACTIVATION_MAX", "clip_boundary"), (1 << bits) - 1)
    return np.clip(values, low, high)


def look_up(values: Array, table: bytes, ofm: FeatureMap) -> Array:
    """values: limited to 8 or 16 bits."""
    if ofm.dtype.itemsize == 2:
        return interpolate(values, np.frombuffer(table, "<i4"), 7)
    entries = np.frombuffer(table, "<i4" if ofm.dtype.itemsize == 4 else ofm.dtype)
    return np.asarray(entries[(values + (128 if ofm.dtype.kind == "i" else 0)) & 0xFF])


def interpolate(values: Array, table: Array, shift: int) -> Array:
    """Between 512 entries: the lower 16 bits are the value, the upper the step to the next.

    In steps of 1/128, from which `shift` bits are rounded away.
    """
    index = (values + 32768) & 0xFFFF
    entry = table[index >> 7].astype(np.int64)
    base = (entry & 0xFFFF) - ((entry & 0x8000) << 1)
    result = (base << 7) + (entry >> 16) * (index & 127)
    return np.asarray((result + (1 << shift >> 1)) >> shift)


def store(values: Array, ofm: FeatureMap, memory: Memory) -> None:
    ofm.write(memory, values.astype(ofm.dtype))
