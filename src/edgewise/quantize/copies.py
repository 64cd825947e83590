"""Conversions that convert nothing, which quantizers would take for an end of what is quantized,
and views of what may lie otherwise after a rewriting."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.graph import arguments
from edgewise.edge.layout import dim_order
from edgewise.edge.spellings import CONVERSIONS
from edgewise.quantize.fold import written_values
from edgewise.quantize.steps import replace_calls, step

aten = torch.ops.aten


def drop_conversions(model: GraphModule) -> bool:
    """Instead of a conversion to the data type that there is: what it converts, or if it
    changes the memory format `contiguous`. One whose copy or source is written later stays."""
    written = written_values(model)

    def plain(node: Node) -> Node | None:
        source = node.args[0]
        if not isinstance(source, Node) or node in written or source in written:
            return None
        before, after = source.meta["val"], node.meta["val"]
        if before.dtype != after.dtype:
            return None
        if dim_order(before) == dim_order(after):
            return source
        made = step(node, aten.contiguous.default, source)
        made.kwargs = {"memory_format": arguments(node)["memory_format"]}
        made.meta["val"] = after
        return made

    changed = False
    for target in CONVERSIONS:
        changed |= replace_calls(model, target, plain)
    return changed


def view_by_reshape(model: GraphModule) -> bool:
    """Instead of views `reshape`: what takes an operator's place may order its result in another
    way (a layer norm as sums and products that of its transposed input), of which there is no view.
    A view that is written, or of what is, stays."""
    written = written_values(model)

    def reshaped(node: Node) -> Node | None:
        source = node.args[0]
        if not isinstance(source, Node) or node in written or source in written:
            return None
        made = step(node, aten.reshape.default, source, arguments(node)["size"])
        made.meta["val"] = node.meta["val"]
        return made

    return replace_calls(model, aten.view.default, reshaped)
