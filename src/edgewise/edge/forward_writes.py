"""Reads of what was just written read the written value: store-to-load forwarding.

PyTorch writes `y[:, :4] = a` as a whole tensor with a part replaced, of which parts are then read:

    slice_copy(slice_scatter(x, a, 1, 0, 4), 1, 4, 8) = slice_copy(x, 1, 4, 8)
    slice_copy(slice_scatter(x, a, 1, 0, 4), 1, 0, 4) = a

for slices and selects of one dimension whose bounds are known. LSTMs that PyTorch decomposes have
four such writes for each step. Writes into state stay: they change it where it lies.

Requires the edge dialect.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.graph import arguments, call, calls, erase_dead, fake, replace, same_shape
from edgewise.edge.updates import partial_updates

aten = torch.ops.aten

_READS = {aten.slice_copy.Tensor, aten.select_copy.int}
_WRITES: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice_copy.Tensor,
    aten.select_scatter.default: aten.select_copy.int,
}
"""What reads the part that each replaces."""


def forward_writes(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    of_state: set[Node] | None = None
    changed = False
    for node in calls(program.graph):
        if node.target not in _READS or not _is_write(node.args[0]):
            continue
        if of_state is None:
            of_state = partial_updates(program)
        made = _forwarded(program.graph, node, of_state)
        if made is not None:
            replace(node, made)
            changed = True
    if changed:
        erase_dead(program.graph)
    return changed


def _is_write(node: Any) -> bool:
    return isinstance(node, Node) and node.target in _WRITES


def _forwarded(graph: Graph, node: Node, of_state: set[Node]) -> Node | None:
    """What the read is without the writes that it need not wait for; None if it must."""
    source: Any = node.args[0]
    read = _positions(node)
    while read is not None and _is_write(source) and source not in of_state:
        written = _positions(source)
        if written is None or arguments(source)["dim"] != arguments(node)["dim"]:
            break
        if not set(read) & set(written):
            source = source.args[0]
            continue
        value = arguments(source)["src"]
        same = read == written and node.target is _WRITES[source.target]
        same = same and same_shape(fake(value).shape, fake(node).shape)
        if same and fake(value).dtype == fake(node).dtype:
            assert isinstance(value, Node)
            return value
        break
    if source is node.args[0]:
        return None
    with graph.inserting_before(node):
        return call(graph, node.target, (source, *node.args[1:]), node, fake(node))


def _positions(node: Node) -> range | None:
    """Of a read or a write along its dimension; None if they are not known."""
    named = arguments(node)
    source: Any = node.args[0]
    size = fake(source).shape[named["dim"]]
    if not isinstance(size, int):
        return None
    if "index" in named:
        index = named["index"]
        return range(size)[index:][:1] if isinstance(index, int) else None
    bounds = [named["start"], named["end"], named["step"]]
    if not all(bound is None or isinstance(bound, int) for bound in bounds):
        return None
    return range(size)[slice(*bounds)]
