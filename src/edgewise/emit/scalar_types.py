"""The format's numbers for element types; PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from edgewise.edge.graph import dtype_name, tensors_of
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


_OLD_QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


def check_types(nodes: Iterable[Node]) -> None:
    """EmitError, with node and line, for a value or an argument of a type that the format has no
    number for."""
    for node in nodes:
        named = [a for a in pytree.arg_tree_leaves(*node.args, **node.kwargs) if _is_type(a)]
        for dtype in [value.dtype for value in tensors_of(node)] + named:
            if dtype not in _NUMBERS:
                kind = dtype_name(dtype)
                raise EmitError(
                    f"{at_node(node)} tensors must be of integers, bools or real floating numbers "
                    f"that files know; got {kind}; try {_remedy(dtype)}"
                )


def _is_type(argument: object) -> bool:
    return isinstance(argument, torch.dtype)


def _remedy(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "real and imaginary parts as real tensors: torch.view_as_real"
    if dtype in _OLD_QUANTIZED:
        return "quantize=, or the PT2E flow, which have int8"
    return "x.to(torch.float32)"


def scalar_type(dtype: torch.dtype) -> int:
    """EmitError for a type that the format has no number for."""
    try:
        return _NUMBERS[dtype]
    except KeyError:
        known = ", ".join(dtype_name(d) for d in _NUMBERS)
        raise EmitError(f"[dtype] must be one of {known}; got {dtype}") from None
