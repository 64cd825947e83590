"""Order of dimensions in memory.

In the edge dialect a tensor's memory format is decided by rule, not by the strides that
eager mode happened to produce: shape operators give contiguous tensors, operators on
channels-last tensors give channels-last ones, and only `clone` and `_to_copy` with a
`memory_format` change it.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments, is_call, is_getitem

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
    """Whether strides are those of a memory format; False where it depends on sizes that only data
    will tell."""
    from torch._prims_common import is_contiguous_for_memory_format_or_false

    return is_contiguous_for_memory_format_or_false(tensor, memory_format=memory_format)


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
