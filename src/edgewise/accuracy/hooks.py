"""Hooks on values in the middle of a program: a copy of it that returns these, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from edgewise.accuracy.matching import QUANTIZING, base_name, namespace
from edgewise.edge.graph import is_getitem
from edgewise.edge.program import copy_program, make_program, output_node
from edgewise.quantize.patterns import ACTIVATIONS, BATCH_NORMS, GATES

_FUSED = ACTIVATIONS | BATCH_NORMS | GATES
_NAMES = """
    alias chunk clone contiguous detach dropout expand expand_as feature_dropout flatten
    lift_fresh_copy movedim permute repeat reshape select slice split split_with_sizes squeeze
    t to _to_copy transpose type_as unbind unflatten unsqueeze unsafe_split view view_as
    _unsafe_view empty_like full_like ones_like zeros_like
"""
_MOVES = frozenset(_NAMES.split())
"""They compute nothing: their values say no more than their operands'."""


@dataclass(frozen=True)
class Hook:
    """A value to return: the node that computes it, and what is quantized behind it."""

    node: Node
    quantize: Node | None = None


def find_hooks(program: ExportedProgram) -> list[Hook]:
    """What computes float tensors of the inputs, once for what is computed in one go.

    Convolution, batch normalisation and clamp become one kernel: only its result is taken.
    """
    depends: set[Node] = set()
    inputs = set(program.graph_signature.user_inputs)
    hooks = []
    for node in program.graph.nodes:
        is_input = node.op == "placeholder" and node.name in inputs
        if is_input or any(source in depends for source in node.all_input_nodes):
            depends.add(node)
            if node.op == "call_function" and _is_layer(node):
                hooks.append(Hook(node, _static_quantize(node)))
    return hooks


def with_hooks(
    program: ExportedProgram, hooks: Sequence[Hook]
) -> tuple[ExportedProgram, list[int]]:
    """The copy, and the position of each hook among what it returns to the caller.

    A quantized value is returned as what its consumers read: quantized and dequantized.
    """
    copied = copy_program(program)
    graph = copied.graph
    nodes = {node.name: node for node in graph.nodes}
    returned = list(output_node(graph).args[0])  # type: ignore[arg-type]
    specs = copied.graph_signature.output_specs
    written = sum(spec.kind != OutputKind.USER_OUTPUT for spec in specs)
    positions = []
    for hook in hooks:
        value = nodes[hook.node.name]
        if hook.quantize is not None:
            value = _dequantized(graph, nodes[hook.quantize.name], returned)
        if value not in returned[written:]:
            returned.append(value)
            argument = TensorArgument(value.name)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
        positions.append(returned.index(value, written) - written)
    output_node(graph).args = (tuple(returned),)
    flat = pytree.tree_structure((0,) * (len(returned) - written))
    hooked = make_program(
        graph, copied.graph_signature, like=copied, root=copied.graph_module, out_spec=flat
    )
    return hooked, positions


def fused(node: Node) -> list[Node]:
    """The operators that are computed in one go, and of which the node is the last."""
    found = [node]
    while found[0].target in _FUSED:
        source = found[0].args[0]
        if not isinstance(source, Node) or source.op != "call_function" or len(source.users) > 1:
            break
        found.insert(0, source)
    return found


def _is_layer(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return False
    source = node.args[0] if is_getitem(node) else node
    assert isinstance(source, Node)
    if namespace(source) in QUANTIZING or base_name(source) in _MOVES:
        return False
    if is_getitem(node) and node.args[1] != 0:
        return False  # statistics that nobody else wants
    if any(_writes_to(user, node) for user in node.users):
        return False
    users = list(node.users)
    return not (len(users) == 1 and users[0].target in _FUSED and users[0].args[0] is node)


def _writes_to(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    arguments = user.target._schema.arguments
    return any(
        a.alias_info is not None and a.alias_info.is_write and given is node
        for a, given in zip(arguments, user.args, strict=False)
    )


def _static_quantize(node: Node) -> Node | None:
    """The user that quantizes the node with constants, if others read that."""
    for user in node.users:
        if (
            namespace(user) in QUANTIZING
            and base_name(user).startswith("quantize_")
            and not any(isinstance(a, Node) for a in user.args[1:])
            and any(base_name(u).startswith("dequantize_") for u in user.users)
        ):
            return user
    return None


def _dequantized(graph: Graph, quantize: Node, returned: Sequence[object]) -> Node:
    """One that is returned anyway, else one of its own: the others keep a single user."""
    found = [u for u in quantize.users if base_name(u).startswith("dequantize_")]
    for node in found:
        if node in returned:
            return node
    with graph.inserting_after(quantize):
        return graph.node_copy(found[0], lambda n: n)
