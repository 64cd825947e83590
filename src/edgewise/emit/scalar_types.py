"""The format's numbers for element types; PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Node

from edgewise.edge.graph import tensors_of
from edgewise.edge.node_errors import at_node
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


def check_types(nodes: Iterable[Node]) -> None:
    """EmitError, with node and line, for a value of a type that the format has no number for."""
    for node in nodes:
        for value in tensors_of(node):
            if value.dtype not in _NUMBERS:
                kind = str(value.dtype).removeprefix("torch.")
                hint = (
                    "real and imaginary parts as real tensors: torch.view_as_real"
                    if value.is_complex()
                    else "x.to(torch.float32)"
                )
                raise EmitError(
                    f"{at_node(node)} tensors must be of integers, bools or real floating numbers "
                    f"that files know; got {kind}; try {hint}"
                )


def scalar_type(dtype: torch.dtype) -> int:
    """EmitError for a type that the format has no number for."""
    try:
        return _NUMBERS[dtype]
    except KeyError:
        known = ", ".join(str(d).removeprefix("torch.") for d in _NUMBERS)
        raise EmitError(f"[dtype] must be one of {known}; got {dtype}") from None
