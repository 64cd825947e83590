"""Copying an ExportedProgram, and editing its constants.

Passes edit a private copy in place, so the user's program is never changed. Tensors
are shared with it, not copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

from edgewise.edge.arguments import arguments_of, note_arguments
from edgewise.edge.graph import calls, erase_dead
from edgewise.edge.graph import replace as replace_node


def _lenient_verifier() -> Any:
    from torch._export.verifier import Verifier

    class EdgeVerifier(Verifier):
        dialect = "EDGEWISE"

    # The law of our graphs is edge/dialect.py; torch's verifier knows other dialects and
    # would walk the graph at every construction.
    setattr(EdgeVerifier, "check", lambda self, program: None)  # noqa: B010
    return EdgeVerifier


_VERIFIER: Any = None


def make_program(
    graph: Graph,
    signature: ExportGraphSignature,
    *,
    like: ExportedProgram | None = None,
    root: torch.nn.Module | dict[str, Any] | None = None,
    constants: dict[str, Any] | None = None,
    state_dict: dict[str, Any] | None = None,
    in_spec: pytree.TreeSpec | None = None,
    out_spec: pytree.TreeSpec | None = None,
) -> ExportedProgram:
    """An ExportedProgram around `graph`, without walking it.

    What is not given comes from `like`.
    """
    global _VERIFIER
    if _VERIFIER is None:
        _VERIFIER = _lenient_verifier()
    same_inputs = in_spec is None
    if like is not None:
        entry = like.module_call_graph[0].signature
        in_spec = in_spec or (entry.in_spec if entry else None)
        out_spec = out_spec or (entry.out_spec if entry else None)
    module_call_graph = [
        ModuleCallEntry(
            fqn="",
            signature=ModuleCallSignature(
                inputs=[],
                outputs=[],
                in_spec=in_spec,  # type: ignore[arg-type]
                out_spec=out_spec,  # type: ignore[arg-type]
            ),
        )
    ]
    root = root if root is not None else torch.nn.Module()
    made = ExportedProgram(
        root=root,
        graph=Graph(),
        graph_signature=signature,
        state_dict=state_dict if state_dict is not None else dict(like.state_dict if like else {}),
        range_constraints=dict(like.range_constraints) if like else {},
        module_call_graph=module_call_graph,
        example_inputs=like.example_inputs if like and same_inputs else None,
        constants=constants if constants is not None else dict(like.constants if like else {}),
        verifiers=[_VERIFIER],
    )
    # Writing a graph as Python and compiling that takes longer than most passes: when it is asked.
    meta = made.graph_module.meta
    graph.set_codegen(CodeGen())  # inputs and outputs are flat, as the constructor would have them
    made._graph_module = _LazyGraphModule(root, graph)
    made.graph_module.meta.update(meta)
    if like is not None and same_inputs:
        note_arguments(made, arguments_of(like))
    if like is not None and _STATE in like.graph_module.meta:
        mark_state(made, like.graph_module.meta[_STATE])
    return made


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """A copy whose graph, signature and tables may be edited. Tensors are shared."""
    graph = Graph()
    renamed: dict[Node, Node] = {}
    output = graph.graph_copy(program.graph, renamed)
    graph.output(output)
    old_output = next(iter(reversed(program.graph.nodes)))
    new_output = next(iter(reversed(graph.nodes)))
    new_output.meta = copy.copy(old_output.meta)
    signature = ExportGraphSignature(
        [replace(spec, arg=copy.copy(spec.arg)) for spec in program.graph_signature.input_specs],
        [replace(spec, arg=copy.copy(spec.arg)) for spec in program.graph_signature.output_specs],
    )
    # graph_copy gives a node another name only where the name is a keyword or taken.
    names = {old.name: new.name for old, new in renamed.items() if old.name != new.name}
    names.update(_renamed_by_deepcopy(graph, signature))
    for name, other in names.items():
        signature.replace_all_uses(name, other)
    return make_program(graph, signature, like=program, root=program.graph_module)


def copy_with_modules(program: ExportedProgram) -> ExportedProgram:
    """A copy that also has the lowered modules of partitions cut out before."""
    copied = copy_program(program)
    for name, module in program.graph_module.named_children():
        if not hasattr(copied.graph_module, name):
            copied.graph_module.add_module(name, module)
    return copied


def _renamed_by_deepcopy(graph: Graph, signature: ExportGraphSignature) -> dict[str, str]:
    """Names of the signature that no node has, and the names of the nodes that stand for them.

    `copy.deepcopy` of a program names what is called as a function of Python's is, such as
    `input`, anew, but not in the signature.
    """
    known = {node.name for node in graph.nodes}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    returned = next(iter(reversed(graph.nodes))).args[0]
    outputs = list(returned) if isinstance(returned, (tuple, list)) else []
    found: dict[str, str] = {}
    input_args = [spec.arg for spec in signature.input_specs]
    output_args = [spec.arg for spec in signature.output_specs]
    for nodes, args in ((inputs, input_args), (outputs, output_args)):
        if len(nodes) != len(args):
            continue
        for node, arg in zip(nodes, args, strict=True):
            name = getattr(arg, "name", None)
            if isinstance(node, Node) and isinstance(name, str) and name not in known:
                found[name] = node.name
    return found


def placeholders(program: ExportedProgram) -> dict[str, Node]:
    found = {}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            break
        found[node.name] = node
    return found


_STATE = "edgewise_state"


def mark_state(program: ExportedProgram, names: Iterable[str]) -> None:
    """Says that buffers of these qualified names change between the program's runs."""
    program.graph_module.meta[_STATE] = frozenset(names)


class Constants:
    """The parameters, buffers and constant tensors of a program, by placeholder.

    A buffer that the program writes to is not constant, nor one that another method of the
    same file writes to (see `mark_state`).
    """

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        signature = program.graph_signature
        mutated = {
            spec.target
            for spec in signature.output_specs
            if spec.kind == OutputKind.BUFFER_MUTATION
        }
        mutated |= program.graph_module.meta.get(_STATE, frozenset())
        self.specs: dict[str, InputSpec] = {}
        for spec in signature.input_specs:
            if not isinstance(spec.arg, TensorArgument):
                continue
            if spec.kind in (InputKind.PARAMETER, InputKind.CONSTANT_TENSOR) or (
                spec.kind == InputKind.BUFFER and spec.target not in mutated
            ):
                self.specs[spec.arg.name] = spec

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.op == "placeholder" and node.name in self.specs

    def tensor(self, node: Node) -> torch.Tensor:
        """The constant's value, detached. KeyError if the node is not constant."""
        spec = self.specs[node.name]
        value = tensor_of(self._program, spec)
        return value.detach()

    def add(self, name: str, tensor: torch.Tensor) -> Node:
        """A new constant placeholder before all user inputs; `name` is made unique."""
        program = self._program
        graph = program.graph
        lifted = self._lifted()
        first_input = next(
            (n for n in graph.nodes if n.op != "placeholder" or n.name not in lifted), None
        )
        target = name.replace(".", "_")
        while target in program.constants or target in program.state_dict:
            target += "_"
        anchor = first_input or next(iter(graph.nodes))
        with graph.inserting_before(anchor):
            node: Node = graph.placeholder("c_" + target)
        node.meta["val"] = _fake_like(program, tensor)
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target, None)
        position = sum(1 for s in program.graph_signature.input_specs if s.kind in _LIFTED)
        program.graph_signature.input_specs.insert(position, spec)
        program.constants[target] = tensor
        self.specs[node.name] = spec
        return node

    def _lifted(self) -> set[str]:
        return {
            spec.arg.name
            for spec in self._program.graph_signature.input_specs
            if spec.kind in _LIFTED
        }


_LIFTED = (
    InputKind.PARAMETER,
    InputKind.BUFFER,
    InputKind.CONSTANT_TENSOR,
    InputKind.CUSTOM_OBJ,
    InputKind.TOKEN,
)


def tensor_of(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    """The tensor behind a lifted parameter, buffer or constant."""
    assert spec.target is not None
    if spec.target in program.state_dict:
        value = program.state_dict[spec.target]
    else:
        value = program.constants[spec.target]
    assert isinstance(value, torch.Tensor)
    return value


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The tensor's elements as they lie in memory order, not copied if it is contiguous."""
    flat = tensor.detach().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")  # type: ignore[arg-type]


def fake_mode(program: ExportedProgram) -> Any:
    """The FakeTensorMode of the program's values; a fresh one if it has no tensor."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    for node in program.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (tuple, list)) else (values,):
            if isinstance(value, FakeTensor):
                return value.fake_mode
    return FakeTensorMode()


def _fake_like(program: ExportedProgram, tensor: torch.Tensor) -> torch.Tensor:
    with fake_mode(program):
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def drop_unused_constants(program: ExportedProgram) -> bool:
    """Removes constant placeholders without users, from graph, signature and tables."""
    constants = Constants(program)
    dropped = set()
    for node in list(placeholders(program).values()):
        if node in constants and not node.users:
            dropped.add(node.name)
            program.graph.erase_node(node)
    if dropped:
        specs = program.graph_signature.input_specs
        specs[:] = [s for s in specs if getattr(s.arg, "name", None) not in dropped]
        named = {spec.target for spec in specs}
        for table in (program.state_dict, program.constants):
            for target in [t for t in table if t not in named]:
                del table[target]
    return bool(dropped)


def replace_calls(
    program: ExportedProgram, target: Any, make: Callable[[Graph, Node, Constants], Node | None]
) -> bool:
    """Each call of the operator by what `make` puts before it; None leaves it alone.

    Returns whether it modified.
    """
    graph = program.graph
    found = [node for node in calls(graph) if node.target is target]
    if not found:
        return False
    constants, changed = Constants(program), False
    for node in found:
        with graph.inserting_before(node):
            made = make(graph, node, constants)
        if made is not None:
            replace_node(node, made)
            changed = True
    if changed:
        erase_dead(graph)
        drop_unused_constants(program)
    return changed


def output_node(graph: Graph) -> Node:
    last: Node = next(iter(reversed(graph.nodes)))
    return last


def written_state(program: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """The placeholders that the method writes, each with its new value."""
    signature = program.graph_signature
    nodes = placeholders(program)
    buffers = {
        s.target: s.arg.name for s in signature.input_specs if isinstance(s.arg, TensorArgument)
    }
    returned = output_node(program.graph).args[0]
    assert isinstance(returned, (tuple, list))
    for spec, value in zip(signature.output_specs, returned, strict=True):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            yield nodes[buffers[spec.target]], value
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            yield nodes[str(spec.target)], value


def state_placeholders(program: ExportedProgram, *, of_users: bool = True) -> dict[Node, InputSpec]:
    """What a method may write and its caller sees: buffers, and tensors among its inputs."""
    kinds = {InputKind.BUFFER} | ({InputKind.USER_INPUT} if of_users else set())
    nodes = placeholders(program)
    return {
        nodes[spec.arg.name]: spec
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds and isinstance(spec.arg, TensorArgument) and spec.arg.name in nodes
    }


def return_states(program: ExportedProgram, written: Mapping[Node, Node]) -> None:
    """Lets the method return new values of states, which these then take."""
    returned = output_node(program.graph)
    values = returned.args[0]
    assert isinstance(values, (tuple, list))
    specs, items = program.graph_signature.output_specs, list(values)
    inputs = state_placeholders(program)
    known = {(spec.kind, spec.target) for spec in specs}
    added = []
    for state, value in written.items():
        spec = inputs[state]
        kind, target = OutputKind.BUFFER_MUTATION, spec.target
        if spec.kind == InputKind.USER_INPUT:
            kind, target = OutputKind.USER_INPUT_MUTATION, state.name
        if (kind, target) not in known:  # else it is returned already, and reads the newest
            added.append((OutputSpec(kind, TensorArgument(value.name), target), value))
    buffers = [one for one in added if one[0].kind == OutputKind.BUFFER_MUTATION]
    first = sum(spec.kind == OutputKind.BUFFER_MUTATION for spec in specs)
    rest = [one for one in added if one not in buffers]
    specs[first:first] = [spec for spec, _ in rest]
    items[first:first] = [value for _, value in rest]
    specs[:0] = [spec for spec, _ in buffers]
    items[:0] = [value for _, value in buffers]
    returned.args = (tuple(items),)


def sync_outputs(program: ExportedProgram) -> bool:
    """Lets the signature name the nodes that the graph now returns. Whether it named others."""
    changed = False
    returned = output_node(program.graph).args[0]
    assert isinstance(returned, (tuple, list))
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(value, Node) and hasattr(spec.arg, "name") and spec.arg.name != value.name:
            spec.arg.name, changed = value.name, True
    return changed


def argument_of(value: Any) -> Any:
    """What a signature says of an input or output: a node, or a number that is no node."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    found = value.meta.get("val")
    if isinstance(found, torch.SymInt):
        return SymIntArgument(value.name)
    if found is None or isinstance(found, torch.Tensor):
        return TensorArgument(value.name)
    return ConstantArgument(value.name, found)


def make_signature(inputs: Sequence[InputSpec], outputs: Sequence[str]) -> ExportGraphSignature:
    """A signature whose outputs are all the user's."""
    return ExportGraphSignature(
        list(inputs),
        [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in outputs],
    )


def recompile_all(program: ExportedProgram) -> None:
    """Lets `code` and `forward` of the graph, and of graphs within, be what the graph is now."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            module.recompile()
