"""Causal convolutions over time whose inputs a program keeps from call to call.

The cache of such a layer is a ring as that of a sliding window: position p lies in slot
`p % slots`. So a text may be taken back by as many tokens as the ring has slots to spare, and
nothing has to be cleared for a new text: what lies before position 0 is read as zeros.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from edgewise.llm.export.step import Convolution, Row, current_step

__all__ = ["drop_padding", "with_inputs_before"]

aten = torch.ops.aten


def with_inputs_before(new: torch.Tensor, layer: int, width: int) -> torch.Tensor:
    """new [B, channels, S] to [B, channels, width - 1 + S]: each sequence behind the last inputs of
    the calls before, which keeps its own for the next ones."""
    step = current_step()
    if step is None:
        raise ValueError("[convolution] must run in a step; got a call outside of one")
    if step.found is not None:
        step.found[layer] = Convolution(new.shape[1], width)
        return torch.nn.functional.pad(new, (width - 1, 0))
    parts = []
    for number, row in enumerate(step.rows):
        own = step.own(new, number)
        (cache,) = step.caches[layer, number]
        parts.append(torch.cat([_before(row, cache, width), own], 2))
        cache.index_copy_(1, step.new_slots(row, cache.shape[1]), own.transpose(1, 2))
    return step.joined(parts)


def _before(row: Row, cache: torch.Tensor, width: int) -> torch.Tensor:
    """[1, channels, width - 1] of a cache [1, slots, channels]."""
    positions = row.input_pos + torch.arange(1 - width, 0)
    found = cache.index_select(1, positions % cache.shape[1])
    found = torch.where((positions >= 0).view(1, -1, 1), found, torch.zeros(()))
    return found.transpose(1, 2)


def drop_padding(program: ExportedProgram) -> bool:
    """Convolutions with zeros around whose first and last results models cut off get none.

    The library pads all inputs as those of a text's beginning, and keeps the last of the results.
    Returns whether it modified. Requires: operators of the export, before they are decomposed.
    """
    graph = program.graph
    modified = False
    for node in list(graph.nodes):
        kept = _kept_without_padding(node)
        if kept is None:
            continue
        with graph.inserting_before(node):
            plain = graph.call_function(node.target, (*node.args[:4], [0], *node.args[5:]))
        plain.meta = {**node.meta, "val": kept.meta["val"]}
        kept.replace_all_uses_with(plain)
        modified = True
    graph.eliminate_dead_code()
    return modified


def _kept_without_padding(node: Node) -> Node | None:
    """What remains of the results of a padded convolution, if no zero is among its operands."""
    if node.target is not aten.conv1d.default or len(node.args) < 6:
        return None
    x, _, _, stride, padding, dilation = node.args[:6]
    if not isinstance(x, Node) or (stride, dilation) != ([1], [1]) or padding == [0]:
        return None
    width = node.args[1].meta["val"].shape[2]  # type: ignore[union-attr]
    if padding != [width - 1]:
        return None
    length = x.meta["val"].shape[2]
    first = _reader(node)
    # From 0 on, as many as there are inputs; of these the last, all but the padding.
    if first is None or _bound(first, 2, 0) != 0 or not _has_length(first, length):
        return None
    last = _reader(first)
    if last is None or _bound(last, 3, sys.maxsize) != sys.maxsize:
        return None
    return last if _has_length(last, length - (width - 1)) else None


def _reader(node: Node) -> Node | None:
    """The slice over time that alone reads the result, perhaps behind a cast to its own type."""
    readers = [one for one in node.users if one.users or one.op == "output"]
    if len(readers) != 1:
        return None
    (reader,) = readers
    if reader.target is aten.to.dtype and reader.meta["val"].dtype == node.meta["val"].dtype:
        return _reader(reader)
    is_over_time = reader.target is aten.slice.Tensor and reader.args[1] in (2, -1)
    return reader if is_over_time else None


def _bound(node: Node, index: int, default: int) -> Any:
    given = node.args[index] if len(node.args) > index else None
    return default if given is None else given


def _has_length(node: Node, length: Any) -> bool:
    return statically_known_true(node.meta["val"].shape[2] == length)
