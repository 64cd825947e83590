"""A partition as a program of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from edgewise.edge.bodies import graphs_within
from edgewise.edge.graph import is_size
from edgewise.edge.program import (
    Constants,
    make_program,
    make_signature,
    output_node,
    state_placeholders,
    tensor_of,
    written_state,
)
from edgewise.edge.resolve_symbolic_shapes import SizeMaker
from edgewise.partition.spec import DELEGATE_INPUT, TAG


def cut_out(
    program: ExportedProgram,
    nodes: Sequence[Node],
    states: Mapping[Node, Node] = MappingProxyType({}),
) -> tuple[ExportedProgram, list[Node], list[Node]]:
    """The nodes as a program of their own, its inputs, and the nodes that are its outputs.

    Constants that the nodes read become the new program's parameters and buffers, by their names;
    inputs, if they are marked so (`DELEGATE_INPUT`). states: buffers that the new program keeps,
    each with its new value.
    Sizes that they read are no inputs: the new program computes them from its inputs' shapes.
    Modules that they name, bodies of control flow and what other backends have compiled, are the
    new program's, too.
    """
    constants = Constants(program)
    members = set(nodes)
    graph = Graph()
    env: dict[Node, Any] = {}
    specs: list[InputSpec] = []
    state: dict[str, Any] = {}
    read = list(dict.fromkeys(s for n in nodes for s in n.all_input_nodes if s not in members))
    owned = [s for s in read if s in constants and not s.meta.get(DELEGATE_INPUT)]
    for source in owned:
        old = constants.specs[source.name]
        env[source] = graph.placeholder(source.name)
        env[source].meta = dict(source.meta)
        assert old.target is not None
        value = tensor_of(program, old)
        state[old.target] = value
        kind = InputKind.PARAMETER if isinstance(value, torch.nn.Parameter) else InputKind.BUFFER
        persistent = True if kind == InputKind.BUFFER else None
        argument = TensorArgument(env[source].name)
        specs.append(InputSpec(kind, argument, old.target, persistent))
    buffers = state_placeholders(program, of_users=False)
    for source in states:
        env[source] = graph.placeholder(source.name)
        env[source].meta = dict(source.meta)
        old = buffers[source]
        state[str(old.target)] = tensor_of(program, old)
        argument = TensorArgument(env[source].name)
        specs.append(InputSpec(InputKind.BUFFER, argument, old.target, True))
    root = torch.nn.Module()
    modules = [s for s in read if s.op == "get_attr"]
    for source in modules:
        name = str(source.target)
        root.add_module(name, program.graph_module.get_submodule(name))
        env[source] = graph.get_attr(name)
        env[source].meta = dict(source.meta)
    others = {*owned, *states, *modules}
    inputs = [s for s in read if s not in others and not is_size(s)]
    for source in inputs:
        env[source] = graph.placeholder(source.name)
        env[source].meta = dict(source.meta)
        specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(env[source].name), None))
    sizes = SizeMaker(graph, [env[s] for s in inputs])
    for source in [s for s in read if is_size(s)]:
        value = source.meta["val"]
        made = sizes.make(value) if isinstance(value, torch.SymInt) else None
        # A size that the inputs do not tell stays the expression that it is.
        env[source] = value if made is None else made
    for node in nodes:
        env[node] = graph.node_copy(node, lambda n: env[n])
    written = set(states.values())
    outputs = [
        n for n in nodes if n not in written and any(user not in members for user in n.users)
    ]
    graph.output(tuple(env[n] for n in [*states.values(), *outputs]))
    signature = make_signature(specs, [env[n].name for n in outputs])
    signature.output_specs[:0] = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(env[value].name), buffers[one].target)
        for one, value in states.items()
    ]
    flat_inputs: tuple[tuple[int, ...], dict[str, Any]] = (tuple(range(len(inputs))), {})
    part = make_program(
        graph,
        signature,
        like=program,
        root=root,
        state_dict=state,
        constants={},
        in_spec=pytree.tree_structure(flat_inputs),
        out_spec=pytree.tree_structure(tuple(range(len(outputs)))),
    )
    # A backend may partition its program again.
    for made in (part.graph_module, *(body for _, body in graphs_within(part.graph_module))):
        for node in made.graph.nodes:
            node.meta.pop(TAG, None)
    return part, inputs, outputs


def owned_states(program: ExportedProgram, nodes: Sequence[Node]) -> dict[Node, Node]:
    """The buffers that a partition has to itself, each with its new value: those with its tag that
    nothing else reads, and whose new value nothing but the buffer takes.

    Without other results the call would be dead: then none.
    """
    members = set(nodes)
    end = output_node(program.graph)
    returned = end.args[0]
    assert isinstance(returned, (tuple, list))
    buffers = state_placeholders(program, of_users=False)
    found = {
        state: value
        for state, value in written_state(program)
        if state in buffers
        and state.meta.get(TAG) == nodes[0].meta.get(TAG) is not None
        and value in members
        and members.issuperset(state.users)
        and members.union([end]).issuperset(value.users)
        and list(returned).count(value) == 1
    }
    values = set(found.values())
    has_results = any(u not in members for n in nodes if n not in values for u in n.users)
    return found if has_results else {}


def drop_states(program: ExportedProgram, states: Mapping[Node, Node]) -> None:
    """The method writes and names them no more."""
    signature, end = program.graph_signature, output_node(program.graph)
    values, names = set(states.values()), {state.name for state in states}
    returned = end.args[0]
    assert isinstance(returned, (tuple, list))
    kept = [i for i, value in enumerate(returned) if value not in values]
    end.args = (tuple(returned[i] for i in kept),)
    signature.output_specs[:] = [signature.output_specs[i] for i in kept]
    dropped = [s for s in signature.input_specs if getattr(s.arg, "name", None) in names]
    signature.input_specs[:] = [s for s in signature.input_specs if s not in dropped]
    for spec in dropped:
        program.state_dict.pop(str(spec.target), None)
        program.constants.pop(str(spec.target), None)
