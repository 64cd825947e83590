"""Control flow: calls of higher-order operators, whose branches and bodies are graphs.

| operator   | bodies     | each body's inputs                            | its outputs          |
|------------|------------|-----------------------------------------------|----------------------|
| cond       | true false | captured                                      | results              |
| while_loop | cond body  | carried, captured                             | a bool; next carried |
| map_impl   | f          | a row of each mapped tensor, captured         | a row of each result |
| scan       | f          | carried, a row of each mapped tensor, captured | next carried, rows  |

A pass sees a body as an exported program of its own (`transform_bodies`): constants that it
captures are its constants, whatever else it gets are its inputs. So each pass is written for a
whole program, and holds for branches at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from edgewise.edge.graph import erase_dead, is_call
from edgewise.edge.program import (
    Constants,
    argument_of,
    drop_unused_constants,
    make_program,
    output_node,
)
from edgewise.errors import ExportError

COND = torch.ops.higher_order.cond
WHILE_LOOP = torch.ops.higher_order.while_loop
MAP = torch.ops.higher_order.map_impl
SCAN = torch.ops.higher_order.scan

# Which arguments are bodies, carried, mapped and captured values.
_ROLES: dict[Any, tuple[tuple[int, ...], int | None, int | None, int]] = {
    COND: ((1, 2), None, None, 3),
    WHILE_LOOP: ((0, 1), 2, None, 3),
    MAP: ((0,), None, 1, 2),
    SCAN: ((0,), 1, 2, 3),
}


@dataclass(frozen=True)
class ControlFlow:
    """A call of a higher-order operator, its arguments by role (see the module's table)."""

    node: Node
    bodies: tuple[Node, ...]
    """`get_attr` nodes, whose targets name graph modules."""
    carried: tuple[Any, ...]
    mapped: tuple[Any, ...]
    captured: tuple[Any, ...]

    @property
    def changing(self) -> tuple[Any, ...]:
        """What differs from one run of a body to the next."""
        return self.carried + self.mapped


def control_flow(node: Node) -> ControlFlow | None:
    """The call by roles, or None if the node is none."""
    if not is_call(node) or node.target not in _ROLES:
        return None
    bodies, carried, mapped, captured = _ROLES[node.target]

    def role(position: int | None) -> tuple[Any, ...]:
        found = node.args[position] if position is not None and position < len(node.args) else ()
        assert isinstance(found, (list, tuple))
        return tuple(found)

    graphs: Any = tuple(node.args[i] for i in bodies)
    return ControlFlow(node, graphs, role(carried), role(mapped), role(captured))


def control_flows(graph: Graph) -> Iterator[ControlFlow]:
    """From a snapshot: safe against edits of the graph."""
    return iter([flow for node in graph.nodes if (flow := control_flow(node)) is not None])


def body_of(owner: torch.nn.Module, attribute: Node) -> GraphModule:
    """The graph module that a `get_attr` node of `owner`'s graph names."""
    module = owner.get_submodule(str(attribute.target))
    assert isinstance(module, GraphModule)
    return module


def graphs_within(module: GraphModule, path: str = "") -> Iterator[tuple[str, GraphModule]]:
    """The bodies of all control flow in `module`, at any depth, with paths such as `true/body`."""
    for flow in control_flows(module.graph):
        for attribute in flow.bodies:
            inner = body_of(module, attribute)
            name = f"{path}{attribute.target}"
            yield name, inner
            yield from graphs_within(inner, f"{name}/")


Stage = Callable[[ExportedProgram, str], ExportedProgram]


def transform_bodies(program: ExportedProgram, stage: Stage) -> bool:
    """Replaces every body by `stage(body, name)`. Returns whether there is any.

    The stage gets a private copy, of which it may return another; it sees to the bodies within.
    Constants that it adds or drops become, or cease to be, captured by the call.
    """
    owner = program.graph_module
    flows = list(control_flows(program.graph))
    originals = {a.target: body_of(owner, a) for flow in flows for a in flow.bodies}
    written: set[Any] = set()
    for flow in flows:
        made = []
        captured = _Captured(program, flow)
        for attribute in flow.bodies:
            if attribute.target in written:
                attribute = _renamed(owner, attribute, flow.node)
            original = originals[attribute.meta.get("was", attribute.target)]
            body = stage(_as_program(program, original, flow), str(attribute.target))
            captured.add(body)
            made.append((attribute, body))
            written.add(attribute.target)
        for attribute, body in made:
            original = originals[attribute.meta.get("was", attribute.target)]
            several = isinstance(output_node(original.graph).args[0], (list, tuple))
            setattr(owner, str(attribute.target), captured.as_module(body, several))
        _set_arguments(flow, [attribute for attribute, _ in made], captured.values())
    if flows:
        erase_dead(program.graph)
        drop_unused_constants(program)
    return bool(flows)


def _renamed(owner: GraphModule, attribute: Node, before: Node) -> Node:
    """Another name for a body that two calls share: each gets what was made for itself."""
    number = 1
    while hasattr(owner, f"{attribute.target}_{number}"):
        number += 1
    name = f"{attribute.target}_{number}"
    owner.add_module(name, body_of(owner, attribute))
    with before.graph.inserting_before(before):
        other = before.graph.get_attr(name)
    other.meta["was"] = attribute.target
    return other


def _set_arguments(flow: ControlFlow, bodies: Sequence[Node], captured: Sequence[Any]) -> None:
    positions, _, _, last = _ROLES[flow.node.target]
    args: list[Any] = [*flow.node.args, *[()] * (last + 1 - len(flow.node.args))]
    for position, body in zip(positions, bodies, strict=True):
        args[position] = body
    args[last] = list(captured) if isinstance(args[last], list) else tuple(captured)
    flow.node.args = tuple(args)


def _as_program(
    program: ExportedProgram, module: GraphModule, flow: ControlFlow
) -> ExportedProgram:
    """The body as a program: constants first, then what else it is given."""
    constants = Constants(program)
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    operands = [*(None,) * len(flow.changing), *flow.captured]
    if len(inputs) != len(operands):
        raise ValueError(f"{flow.node.name} gives {len(operands)} inputs; got {len(inputs)}")
    given = list(zip(inputs, operands, strict=True))
    graph = Graph()
    renamed: dict[Node, Node] = {}
    specs: list[InputSpec] = []
    for is_constant in (True, False):
        for old, operand in given:
            if (operand in constants) is not is_constant:
                continue
            new = renamed[old] = graph.placeholder(old.name)
            new.meta = dict(old.meta)
            # Laid out as the rules of the dialect have decided outside.
            if isinstance(operand, Node) and isinstance(operand.meta.get("val"), torch.Tensor):
                new.meta["val"] = operand.meta["val"]
            if is_constant:
                known = constants.specs[operand.name]
                argument = TensorArgument(new.name)
                specs.append(InputSpec(known.kind, argument, known.target, known.persistent))
            else:
                specs.append(InputSpec(InputKind.USER_INPUT, argument_of(new), None))
    returned: Any = ()
    for node in module.graph.nodes:
        if node.op == "output":
            returned = node.args[0]
        elif node.op != "placeholder":
            renamed[node] = graph.node_copy(node, lambda n: renamed[n])
    values = [renamed.get(v, v) for v in _listed(returned)]
    graph.output(tuple(values))
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, argument_of(v), None) for v in values]
    count = sum(s.kind == InputKind.USER_INPUT for s in specs)
    flat: tuple[tuple[int, ...], dict[str, Any]] = (tuple(range(count)), {})
    body = make_program(
        graph,
        ExportGraphSignature(specs, outputs),
        like=program,
        root=module,
        in_spec=pytree.tree_structure(flat),
        out_spec=pytree.tree_structure(tuple(range(len(values)))),
    )
    _lift_tensors(body)
    return body


def _lift_tensors(body: ExportedProgram) -> None:
    """Constants instead of tensors that the body keeps as its attributes: the export lifts
    those of the outer graph only."""
    constants = Constants(body)
    for node in list(body.graph.nodes):
        if node.op != "get_attr":
            continue
        name = str(node.target)
        value = attrgetter(name)(body.graph_module)
        if isinstance(value, torch.Tensor):
            value = _value_of(body, name, value)
            node.replace_all_uses_with(constants.add(name, value))
            body.graph.erase_node(node)


def _value_of(body: ExportedProgram, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A program that is exported again, as after quantizing, keeps a fake tensor in the body, and
    its value among the outer program's buffers, by another name. The fake mode knows which."""
    if not isinstance(tensor, FakeTensor):
        return tensor
    converter: Any = tensor.fake_mode.fake_tensor_converter.meta_converter
    numbers, fakes = converter.describer.lookup_tensor, converter.tensor_memo
    for value in (*body.state_dict.values(), *body.constants.values()):
        if isinstance(value, torch.Tensor) and fakes.get(numbers.get(value)) is tensor:
            return value
    raise ExportError(
        f"[{name}] constants of a branch or loop have values; got a fake tensor of shape "
        f"{list(tensor.shape)}; try register_buffer in the module that calls it"
    )


def _listed(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


class _Captured:
    """What a call's bodies capture, once they are transformed."""

    def __init__(self, program: ExportedProgram, flow: ControlFlow) -> None:
        self._program = program
        self._constants = Constants(program)
        self._plain = [v for v in flow.captured if v not in self._constants]
        self._by_target = {s.target: name for name, s in self._constants.specs.items()}
        self._nodes: dict[str, Node] = {}
        self._outer: dict[tuple[int, str], str] = {}

    def add(self, body: ExportedProgram) -> None:
        """Notes the body's constants; those that the outer program lacks become its own."""
        inner = Constants(body)
        for node in body.graph.nodes:
            if node not in inner or not node.users:
                continue
            target = str(inner.specs[node.name].target)
            known = self._by_target.get(target)
            if known is not None and self._same(target, body):
                outer = next(n for n in self._program.graph.nodes if n.name == known)
            else:
                outer = self._constants.add(target, inner.tensor(node))
            self._nodes.setdefault(outer.name, outer)
            self._outer[id(body), node.name] = outer.name
        ranges = self._program.range_constraints
        for symbol, found in body.range_constraints.items():
            ranges.setdefault(symbol, found)

    def _same(self, target: str, body: ExportedProgram) -> bool:
        outer = self._program
        for mine, theirs in (
            (outer.state_dict, body.state_dict),
            (outer.constants, body.constants),
        ):
            if target in theirs:
                return mine.get(target) is theirs[target]
        return False

    def values(self) -> list[Any]:
        return [*self._plain, *self._nodes.values()]

    def as_module(self, body: ExportedProgram, several: bool) -> GraphModule:
        """The body as a graph whose inputs are in the order of the call's values."""
        specs = body.graph_signature.input_specs
        nodes = {n.name: n for n in body.graph.nodes if n.op == "placeholder"}
        users = [nodes[s.arg.name] for s in specs if s.kind == InputKind.USER_INPUT]
        own = {outer: nodes[name] for (key, name), outer in self._outer.items() if key == id(body)}
        graph = Graph()
        renamed: dict[Node, Node] = {}
        for old in users:
            renamed[old] = graph.placeholder(old.name)
            renamed[old].meta = dict(old.meta)
        for name, outer in self._nodes.items():
            new = graph.placeholder(name)
            new.meta = dict(outer.meta)
            if name in own:
                renamed[own[name]] = new
        for node in body.graph.nodes:
            if node.op not in ("placeholder", "output"):
                renamed[node] = graph.node_copy(node, lambda n: renamed[n])
        returned = output_node(body.graph).args[0]
        assert isinstance(returned, (list, tuple))
        values = tuple(renamed[v] if isinstance(v, Node) else v for v in returned)
        graph.output(values if several else values[0])
        return GraphModule(body.graph_module, graph)
