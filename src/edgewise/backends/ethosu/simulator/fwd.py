"""The fast weight format of Ethos-U85: codes of 2, 4 or 8 bits after a header of 32 bytes.

The header: a bit for raw values, a bit for codes of 2 bits, 102 zero bits, what was added to
raw values (8 bits), a table of 16 values (9 bits each, the sign in the lowest).
"""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Array

_HEADER = 32


def decode(data: bytes) -> Array:
    """All codes of a stream as weights, int16, those that pad its end included."""
    if len(data) < _HEADER:
        raise NpuError(f"a fast weight stream has a header of {_HEADER} bytes; got {len(data)}")
    header = int.from_bytes(data[:_HEADER], "little")
    raw, small = header & 1, header >> 1 & 1
    if header >> 2 & (1 << 102) - 1:
        raise NpuError("a fast weight stream's header has 102 zero bits; got others")
    codes = np.frombuffer(data, np.uint8, offset=_HEADER)
    if raw:
        added = (header >> 104 & 0xFF ^ 0x80) - 0x80
        return codes.view(np.int8).astype(np.int16) - np.int16(added)
    folded = np.array([header >> 112 + 9 * i & 0x1FF for i in range(16)], np.int16)
    table = np.where(folded & 1, -(folded >> 1), folded >> 1).astype(np.int16)
    bits = 2 if small else 4
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(table[(codes[:, None] >> shifts & ((1 << bits) - 1)).ravel()])
