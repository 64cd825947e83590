"""bfloat16 arrays, a type that numpy itself does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def from_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[Any]:
    """The bfloat16 numbers whose bits are given.

    With the package `ml_dtypes` installed: an array of its `bfloat16` on the same memory.
    Without: a new float32 array, which holds every bfloat16 exactly.
    """
    numbers: npt.NDArray[Any]
    try:
        import ml_dtypes  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        numbers = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        numbers = bits.view(ml_dtypes.bfloat16)
    return numbers
