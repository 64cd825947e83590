"""Order of dimensions in memory.

In the edge dialect a tensor's memory format is decided by rule, not by the strides that
eager mode happened to produce: shape operators give contiguous tensors, operators on
channels-last tensors give channels-last ones, and only `clone` and `_to_copy` with a
`memory_format` change it.
"""

from __future__ import annotations

import sympy
import torch
from torch.fx import Node

from edgewise.edge.graph import Dim, arguments, dims_of, is_call, is_getitem, is_static
from edgewise.edge.sizes import same

aten = torch.ops.aten

CHANNELS_LAST = (0, 2, 3, 1)

# Results are contiguous whatever the operand's order was.
_SHAPE_OPS = {
    aten.view_copy,
    aten.permute_copy,
    aten.expand_copy,
    aten.unsqueeze_copy,
    aten.squeeze_copy,
    aten.select_copy,
    aten.embedding,
    aten.index,
    aten.mm,
    aten.bmm,
    aten.addmm,
}


def dim_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions from outermost to innermost; the identity where strides leave a choice."""
    if tensor.dim() != 4 or is_laid_out(tensor, torch.contiguous_format):
        return tuple(range(tensor.dim()))
    if is_laid_out(tensor, torch.channels_last):
        return CHANNELS_LAST
    return tuple(range(tensor.dim()))


def with_order(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """A fake tensor of the same type and shape, laid out as `order` says."""
    channels_last = order == CHANNELS_LAST
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    if is_laid_out(tensor, memory_format):
        return tensor
    return torch.empty_like(tensor, memory_format=memory_format)


def is_laid_out(tensor: torch.Tensor, memory_format: torch.memory_format) -> bool:
    """Whether strides are those of a memory format, contiguous or channels last; False where it
    depends on the numbers that open sizes stand for.

    Not torch's own question: one about open sizes would be answered for the export's example, and
    the answer be made a rule.
    """
    if is_static([*tensor.shape, *tensor.stride()]):  # a part may lie in rows of an open size
        return tensor.is_contiguous(memory_format=memory_format)
    shape, strides = dims_of(tensor.shape), dims_of(tensor.stride())
    order = tuple(range(tensor.dim()))
    if memory_format is torch.channels_last:
        if tensor.dim() != 4:
            return False
        order = CHANNELS_LAST
    expected: Dim = 1
    for dim in reversed(order):
        if shape[dim] == 1:
            continue
        if not same(_at_least_one(strides[dim]), expected):
            return False
        expected = expected * shape[dim]
    return True


def _at_least_one(stride: Dim) -> Dim:
    """A stride as if all sizes were at least one, as torch writes `Max(1, n)` for it."""
    if isinstance(stride, int):
        return stride
    return stride.replace(_is_bounded, _other_than_one)


def _is_bounded(expression: sympy.Expr) -> bool:
    return type(expression).__name__ == "Max" and 1 in expression.args and len(expression.args) == 2


def _other_than_one(bounded: sympy.Expr) -> sympy.Expr:
    return next(size for size in bounded.args if size != 1)


def settle(node: Node) -> None:
    """Lays the node's value out as the rules of this dialect say.

    An element of a tuple is laid out as it was computed; what a delegate computes, as the
    delegate was told to.
    """
    value = node.meta.get("val")
    if is_getitem(node):
        node.meta["val"] = node.args[0].meta["val"][node.args[1]]  # type: ignore[union-attr]
    elif is_call(node) and not isinstance(node.target, torch._ops.OpOverload):
        return
    elif isinstance(value, torch.Tensor):
        node.meta["val"] = with_order(value, _order(node, value))
    elif isinstance(value, (tuple, list)):
        node.meta["val"] = type(value)(
            with_order(v, _order(node, v)) if isinstance(v, torch.Tensor) else v for v in value
        )


def _order(node: Node, value: torch.Tensor) -> tuple[int, ...]:
    contiguous = tuple(range(value.dim()))
    if value.dim() != 4 or not is_call(node):
        return dim_order(value) if node.op == "placeholder" else contiguous
    target = node.target
    packet = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else None
    if packet in _SHAPE_OPS:
        return contiguous
    if packet in (aten.clone, aten._to_copy, aten.contiguous):
        memory_format = arguments(node)["memory_format"]
        if memory_format is torch.channels_last:
            return CHANNELS_LAST
        if memory_format is torch.contiguous_format:
            return contiguous
    operands = [
        n.meta["val"]
        for n in (node.all_input_nodes[:1] if packet is aten.convolution else node.all_input_nodes)
        if isinstance(n.meta.get("val"), torch.Tensor) and n.meta["val"].dim() == 4
    ]
    strict = any(dim_order(v) == CHANNELS_LAST for v in operands)
    all_fit = all(is_laid_out(v, torch.channels_last) for v in operands)
    return CHANNELS_LAST if strict and all_fit else contiguous
