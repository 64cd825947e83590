"""Calls that are known to fail, and why: (operator, data type) -> reason.

The type "*" stands for all. A test fails when none of an entry's calls fails any more.
"""

from __future__ import annotations

import torch

_COMPLEX = "a file of this format has no complex tensors, which the transform gives"
_BOUND = "torch.export bounds the result by the tensor's elements, also where it is broadcast"
_CANCELS = "rows of one element: a difference of equals, times the inverse of sqrt(eps)"
_BYTES = "eager resizes uint8 in fixed point; the numbers differ, bicubic ones by more than one"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("fft.rfft", "*"): _COMPLEX,
    ("_upsample_bilinear2d_aa", "uint8"): _BYTES,
    ("masked_select", "*"): _BOUND,
    ("native_layer_norm_backward", "float32"): _CANCELS,
    ("nn.functional.interpolate.bicubic", "uint8"): _BYTES,
    ("nn.functional.interpolate.bilinear", "uint8"): _BYTES,
    ("nn.functional.upsample_bilinear", "uint8"): _BYTES,
}


def reason(operator: str, dtype: torch.dtype) -> str | None:
    name = str(dtype).removeprefix("torch.")
    return EXCEPTIONS.get((operator, name)) or EXCEPTIONS.get((operator, "*"))
