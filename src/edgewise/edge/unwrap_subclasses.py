"""Parameters that are tensor subclasses become the plain tensors they hold.

An export of a model whose parameters torchao quantized reads their parts (integers, scales,
zero points) by `access_subclass_inner_tensor`, which may be nested. Every part that is read
becomes a constant of its own, so that later passes meet tensors only.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls
from edgewise.edge.program import Constants, drop_unused_constants

_ACCESS = "export.access_subclass_inner_tensor.default"


def unwrap_subclasses(program: ExportedProgram) -> bool:
    """Returns whether it modified. Ensures that no part of a subclass is read by a call."""
    nodes = [node for node in calls(program.graph) if str(node.target) == _ACCESS]
    if not nodes:
        return False
    constants = Constants(program)
    held: dict[Node, torch.Tensor] = {}
    named: dict[tuple[Node, str], str] = {}
    for node in nodes:
        source, attribute = node.args
        assert isinstance(source, Node)
        assert isinstance(attribute, str)
        if source not in constants and source not in held:
            continue  # of a computed tensor: torch's own business
        whole = held[source] if source in held else constants.tensor(source)
        held[node] = getattr(whole, attribute).detach()
        named[source, attribute] = (
            f"{source.name.removeprefix('p_').removeprefix('b_')}_{attribute}"
        )
    made: dict[tuple[object, object], Node] = {}
    for node, part in held.items():
        if all(user in held for user in node.users):
            continue
        key = (node.args[0], node.args[1])
        if key not in made:
            made[key] = constants.add(named[key], part)  # type: ignore[index]
        node.replace_all_uses_with(made[key], delete_user_cb=lambda user: user not in held)
    for node in reversed(list(held)):
        if not node.users:
            program.graph.erase_node(node)
    drop_unused_constants(program)
    return True
