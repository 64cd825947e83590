"""Calls whose operands are all constants are computed now.

What is folded: class tokens expanded to a static batch, position ids, masks, transposed
weights. What is not: random operators, results much larger than what they are made of
(a file should not grow by a mask that the device can compute), and operators outside
ATen (a dequantized weight must stay quantized in the file).
"""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls, erase_dead
from edgewise.edge.program import Constants, drop_unused_constants

GROWTH_LIMIT = 1 << 20
"""Bytes by which a folded result may exceed its operands."""


def fold_constants(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    constants = Constants(program)
    known: dict[Node, torch.Tensor | list[torch.Tensor]] = {}
    for node in calls(program.graph):
        if _may_fold(node) and all(n in constants or n in known for n in node.all_input_nodes):
            value = _evaluate(node, constants, known)
            if value is not None:
                known[node] = value
    changed = False
    for node, value in known.items():
        needed = any(user not in known for user in node.users)
        if isinstance(value, torch.Tensor) and needed:
            name = node.all_input_nodes[0].name if node.all_input_nodes else node.name
            name = f"{name.removeprefix('p_').removeprefix('c_')}_folded"
            new = constants.add(name, value.contiguous())
            node.replace_all_uses_with(new, delete_user_cb=lambda user: user not in known)
            changed = True
    if changed:
        erase_dead(program.graph)
        drop_unused_constants(program)
    return changed


def _may_fold(node: Node) -> bool:
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return False
    if "empty" in target._schema.name:
        return False  # what lies in memory by chance
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return all(
        isinstance(v, torch.Tensor) and all(isinstance(s, int) for s in v.shape) for v in values
    )


def _evaluate(
    node: Node, constants: Constants, known: dict[Node, torch.Tensor | list[torch.Tensor]]
) -> torch.Tensor | list[torch.Tensor] | None:
    def operand(source: Node) -> torch.Tensor | list[torch.Tensor]:
        return known[source] if source in known else constants.tensor(source)

    operands = [operand(n) for n in node.all_input_nodes]
    size = sum(t.nbytes for t in operands if isinstance(t, torch.Tensor))
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    if sum(v.numel() * v.element_size() for v in results) > size + GROWTH_LIMIT:
        return None
    args = torch.fx.node.map_arg(node.args, operand)
    kwargs = torch.fx.node.map_arg(node.kwargs, operand)
    with torch.no_grad():
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    if isinstance(result, torch.Tensor):
        return result
    return list(result) if isinstance(result, (tuple, list)) else None
