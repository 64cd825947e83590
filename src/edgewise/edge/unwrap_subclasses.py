"""Parameters that are tensor subclasses become the plain tensors they hold.

An export of a model whose parameters torchao quantized reads their parts (integers, scales,
zero points) by `access_subclass_inner_tensor`, which may be nested. Every part that is read
becomes a constant of its own, so that later passes meet tensors only.
"""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import calls, dtype_name
from edgewise.edge.program import Constants, drop_unused_constants

_ACCESS = "export.access_subclass_inner_tensor.default"
_FLOAT8 = (
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
)  # fmt: skip
_MOST_SHOWN = 3


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
    _tell_float8(program, held)
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


def _tell_float8(program: ExportedProgram, held: dict[Node, torch.Tensor]) -> None:
    """Warns of what is smaller in the model than it will be in the file."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = {
        names.get(source.name, source.name): part.dtype
        for node, part in held.items()
        if isinstance(source := node.args[0], Node) and part.dtype in _FLOAT8
    }
    if found:
        warnings.warn(
            f"[quantize] weights of 8-bit floating point are float32 in the file: no backend and "
            f"no kernel multiplies by them; got {_listed(found)}; try integers, for example "
            f"torchao's Int8WeightOnlyConfig()",
            stacklevel=2,
        )


def _listed(found: dict[str, torch.dtype]) -> str:
    shown = [f"{name} ({dtype_name(dtype)})" for name, dtype in found.items()]
    more = len(shown) - _MOST_SHOWN
    return ", ".join([*shown[:_MOST_SHOWN], *([f"{more} more"] if more > 0 else [])])
