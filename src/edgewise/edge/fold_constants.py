"""Calls whose operands are all constants are computed now.

What is folded: class tokens expanded to a static batch, position ids, masks, transposed
weights. What is not: random operators, results much larger than what they are made of
(a file should not grow by a mask that the device can compute), and operators outside
ATen (a dequantized weight must stay quantized in the file). But what is quantized of constants,
dequantized ones too, becomes integers.
"""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls, erase_dead, op_name
from edgewise.edge.program import Constants, drop_unused_constants

GROWTH_LIMIT = 1 << 20
"""Bytes by which a folded result may exceed its operands."""

_QUANTIZE = "quantized_decomposed.quantize_per_"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_"
Known = dict[Node, torch.Tensor | list[torch.Tensor]]


def fold_constants(program: ExportedProgram) -> bool:
    """Returns whether it modified."""
    constants = Constants(program)
    known: Known = {}
    dequantized: set[Node] = set()
    """Made of constants, and quantized ones among them: computed only if it is quantized again."""
    for node in calls(program.graph):
        sources = node.all_input_nodes
        if not all(n in constants or n in known or n in dequantized for n in sources):
            continue
        name = op_name(node)
        if name.startswith(_QUANTIZE):
            value = _evaluate(node, constants, _with_operands(node, constants, known))
        elif name.startswith(_DEQUANTIZE) or not dequantized.isdisjoint(sources):
            if name.startswith(_DEQUANTIZE) or may_fold(node):
                dequantized.add(node)
            continue
        else:
            value = _evaluate(node, constants, known) if may_fold(node) else None
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


def _with_operands(node: Node, constants: Constants, known: Known) -> Known:
    """`known`, and what the node's operands are."""
    found = dict(known)
    pending = list(node.all_input_nodes)
    while pending:
        source = pending[-1]
        missing = [n for n in source.all_input_nodes if n not in constants and n not in found]
        if source in constants or source in found:
            pending.pop()
        elif missing:
            pending += missing
        else:
            value = _evaluate(pending.pop(), constants, found, limited=False)
            assert value is not None
            found[source] = value
    return found


def may_fold(node: Node) -> bool:
    """Whether the call's results are tensors of known sizes that its operands alone decide."""
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
    node: Node, constants: Constants, known: Known, limited: bool = True
) -> torch.Tensor | list[torch.Tensor] | None:
    """None if it is larger than the limit, or no tensor."""

    def operand(source: Node) -> torch.Tensor | list[torch.Tensor]:
        return known[source] if source in known else constants.tensor(source)

    operands = [operand(n) for n in node.all_input_nodes]
    size = sum(t.nbytes for t in operands if isinstance(t, torch.Tensor))
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    grown = sum(v.numel() * v.element_size() for v in results) - size
    if limited and grown > GROWTH_LIMIT:
        return None
    args = torch.fx.node.map_arg(node.args, operand)
    kwargs = torch.fx.node.map_arg(node.kwargs, operand)
    with torch.no_grad():
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    if isinstance(result, torch.Tensor):
        return result
    return list(result) if isinstance(result, (tuple, list)) else None
