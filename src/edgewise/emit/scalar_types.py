"""The format's numbers for element types; PyTorch's own."""

from __future__ import annotations

import torch

from edgewise.errors import EmitError

_NUMBERS: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}


def scalar_type(dtype: torch.dtype) -> int:
    """EmitError for a type that the format has no number for; `check_types` tells the node."""
    try:
        return _NUMBERS[dtype]
    except KeyError:
        known = ", ".join(str(d).removeprefix("torch.") for d in _NUMBERS)
        raise EmitError(f"[dtype] must be one of {known}; got {dtype}") from None
