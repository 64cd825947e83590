"""Calls that are known to fail, and why: (operator, data type) -> reason.

The type "*" stands for all. A test fails when none of an entry's calls fails any more.
"""

from __future__ import annotations

from collections.abc import Mapping

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


_WIDE = "ExecuTorch computes float64 in float32 in places"
_SUMS = "ExecuTorch adds up in the type itself"
_NOTHING = "ExecuTorch refuses what has no elements"

ON_EXECUTORCH: dict[tuple[str, str], str] = {
    ("fft.rfft", "*"): _COMPLEX,
    ("masked_select", "*"): _BOUND,
    ("_upsample_bilinear2d_aa", "float64"): _WIDE,
    ("_upsample_bilinear2d_aa", "uint8"): _BYTES,
    ("cdist", "float64"): _WIDE,
    ("log_softmax", "float64"): _WIDE,
    ("matmul", "float64"): _WIDE,
    ("native_group_norm", "float64"): _WIDE,
    ("native_layer_norm", "float64"): _WIDE,
    ("nn.functional.adaptive_avg_pool1d", "float64"): _WIDE,
    ("nn.functional.adaptive_avg_pool2d", "float64"): _WIDE,
    ("nn.functional.avg_pool2d", "bfloat16"): _SUMS,
    ("nn.functional.avg_pool2d", "float16"): _SUMS,
    ("nn.functional.batch_norm", "*"): _NOTHING,
    ("nn.functional.conv1d", "bfloat16"): _SUMS,
    ("nn.functional.conv1d", "float16"): _SUMS,
    ("nn.functional.conv2d", "bfloat16"): _SUMS,
    ("nn.functional.conv2d", "float16"): _SUMS,
    ("nn.functional.conv_transpose1d", "bfloat16"): _SUMS,
    ("nn.functional.conv_transpose2d", "bfloat16"): _SUMS,
    ("nn.functional.conv_transpose2d", "float16"): _SUMS,
    ("nn.functional.group_norm", "float64"): _WIDE,
    ("nn.functional.interpolate.bilinear", "float64"): _WIDE,
    ("nn.functional.interpolate.bilinear", "uint8"): _BYTES,
    ("nn.functional.layer_norm", "float64"): _WIDE,
    ("nn.functional.pad.circular", "*"): _NOTHING,
    ("nn.functional.upsample_bilinear", "float64"): _WIDE,
    ("nn.functional.upsample_bilinear", "uint8"): _BYTES,
    ("remainder", "float64"): _WIDE,
    ("stack", "*"): _NOTHING,
    ("sum", "float64"): _WIDE,
}
"""The same of files on ExecuTorch's runtime, without delegates."""


def reason(
    operator: str, dtype: torch.dtype, exceptions: Mapping[tuple[str, str], str]
) -> str | None:
    name = str(dtype).removeprefix("torch.")
    return exceptions.get((operator, name)) or exceptions.get((operator, "*"))
