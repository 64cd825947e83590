"""Numbers written where booleans hold, as a choice.

    x[mask] = 0        index_put(x, [mask], 0) = where(mask, 0, x)

compute the same. Kernels and backends choose by booleans; few write by them. Writes to a program's
state stay: a kernel writes in place.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, call, calls, fake, replace, same_shape

aten = torch.ops.aten


def choose_by_masks(program: ExportedProgram) -> bool:
    """In place; whether there was such a write."""
    graph, signature = program.graph, program.graph_signature
    changed = False
    for node in calls(graph):
        if node.target is not aten.index_put.default or node.name in signature.buffers_to_mutate:
            continue
        named = arguments(node)
        x, indices, value = named["self"], named["indices"], named["values"]
        mask = indices[0] if len(indices) == 1 else None
        if named["accumulate"] or not isinstance(mask, Node) or fake(mask).dtype != torch.bool:
            continue
        shape, sizes = fake(x).shape, fake(value).shape
        is_number = same_shape(sizes, [1] * len(sizes))  # data may decide how many there are
        if not is_number or fake(value).dtype != fake(x).dtype or not shape:
            continue
        with graph.inserting_before(node):
            behind = len(shape) - fake(mask).dim()
            for _ in range(behind):
                wider = fake(mask).unsqueeze(-1)
                mask = call(graph, aten.unsqueeze.default, (mask, -1), node, wider)
            if fake(value).dim():
                number = fake(value).new_empty(())
                value = call(graph, aten.view.default, (value, []), node, number)
            chosen = call(graph, aten.where.self, (mask, value, x), node, fake(node))
        replace(node, chosen)
        changed = True
    return changed
