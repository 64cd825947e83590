"""Arithmetic of real numbers with computed integers or booleans, whose cast stands apart.

    x * mask = x * mask.to(x.dtype)

compute the same: PyTorch gives operands the result's type before. A backend of one type takes the
second.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import call, calls, erase_dead, fake, replace, tensors_of
from edgewise.edge.program import Constants
from edgewise.edge.provenance import forget

aten = torch.ops.aten

_ARITHMETIC = (
    aten.add.Tensor,
    aten.div.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.mul.Tensor,
    aten.sub.Tensor,
)
_FLOATS = (torch.float32, torch.float16)


def cast_mixed_operands(program: ExportedProgram, keep: Callable[[Node], bool]) -> bool:
    """Where a backend takes the operands of one type: `keep` is asked for their minimum, which one
    that takes arithmetic takes. Returns whether it modified."""
    graph = program.graph
    wanted = [node for node in calls(graph) if _is_mixed(node)]
    constants = Constants(program) if wanted else ()
    casts: dict[tuple[Node, torch.dtype], Node] = {}
    changed = False
    for node in wanted:
        dtype = fake(node).dtype
        operands = [operand for operand in node.args[:2] if isinstance(operand, Node)]
        others = [one for one in operands if fake(one).dtype != dtype]
        if any(one in constants for one in others):
            continue  # which are cast when they are folded
        for one in others:
            if (one, dtype) not in casts:
                value = fake(one).to(dtype)
                with graph.inserting_after(one):
                    made = call(graph, aten._to_copy.default, (one,), node, value, dtype=dtype)
                casts[one, dtype] = made
        given = [casts.get((one, dtype), one) for one in operands]
        with graph.inserting_before(node):
            minimum = call(graph, aten.minimum.default, given, node, fake(node))
            if keep(minimum):
                args = (*given, *node.args[2:])
                new = call(graph, node.target, args, node, fake(node), **node.kwargs)
                forget(node)
                replace(node, new)
                changed = True
        graph.erase_node(minimum)
    if casts:
        erase_dead(graph)
    return changed


def _is_mixed(node: Node) -> bool:
    """Whether one operand has the result's type, and the other is integers or booleans."""
    if node.target not in _ARITHMETIC or fake(node).dtype not in _FLOATS:
        return False
    operands = [tensors_of(one) for one in node.args[:2] if isinstance(one, Node)]
    kinds = [t.dtype for tensors in operands for t in tensors]
    if len(kinds) < 2:
        return False  # a number
    others = [kind for kind in kinds if kind != fake(node).dtype]
    return len(others) == 1 and not (others[0].is_floating_point or others[0].is_complex)
