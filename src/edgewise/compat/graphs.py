"""`executorch.exir.backend.utils` and `print_program`: graphs as text, and tags of constants.

`edgewise.to_backend(...)`'s `delegation_report()` and `edgewise inspect` tell more.
"""

from __future__ import annotations

import pprint
import sys
from typing import Any, TextIO

from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from edgewise.edge.bodies import WHILE_LOOP, control_flows
from edgewise.edge.graph import is_getitem
from edgewise.partition.lowered_module import LoweredBackendModule, is_delegate_call
from edgewise.partition.spec import TAG, CompileSpec

_INDENT = "  "


def get_delegates(graph: Graph) -> list[Node]:
    """The nodes that stand for delegates (not those that call them)."""
    return [node.args[0] for node in graph.nodes if is_delegate_call(node)]


def get_lowered_submodules(
    graph_module: GraphModule,
) -> list[tuple[str, LoweredBackendModule, Node]]:
    """The delegates that this graph calls: name, module and the call."""
    return [
        (*_read(graph_module, node.args[0]), node)
        for node in graph_module.graph.nodes
        if is_delegate_call(node)
    ]


def get_lowered_backend_modules(graph_module: GraphModule) -> list[LoweredBackendModule]:
    """The delegates that this graph calls."""
    return [module for _, module, _ in get_lowered_submodules(graph_module)]


def get_control_flow_submodules(
    graph_module: GraphModule,
) -> list[tuple[str, GraphModule, Node]]:
    """What `cond`, `map` and `scan` of this graph run: name, graph module and the call."""
    return [
        (*_read(graph_module, body), flow.node)
        for flow in control_flows(graph_module.graph)
        if flow.node.target is not WHILE_LOOP
        for body in flow.bodies
    ]


def _get_submodule(graph_module: GraphModule, node: Node, arg_index: int) -> tuple[str, Any, Node]:
    return (*_read(graph_module, node.args[arg_index]), node)


def _read(graph_module: GraphModule, attribute: Any) -> tuple[str, Any]:
    name = str(attribute.target)
    return name, graph_module.get_submodule(name)


def get_delegated_payload(
    graph_module: GraphModule,
) -> dict[str, tuple[str, list[CompileSpec], bytes]]:
    """Of each delegate by its name: backend, options and payload."""
    return {
        name: (module.backend_id, module.compile_specs, module.processed_bytes)
        for name, module, _ in get_lowered_submodules(graph_module)
    }


def get_non_lowered_nodes(graph: Graph) -> list[Node]:
    """Calls that no delegate computes."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and not is_delegate_call(node)
        and not (is_getitem(node) and is_delegate_call(node.args[0]))
    ]


def format_delegated_graph(graph_module: GraphModule) -> str:
    """The graph, and below each delegate the graph that it computes."""
    return "graph():\n" + "".join(_lines(graph_module, _INDENT))


def _lines(graph_module: GraphModule, indent: str) -> list[str]:
    lines = []
    for node in graph_module.graph.nodes:
        lines.append(f"{indent}{node.format_node()}\n")
        inner = getattr(graph_module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, LoweredBackendModule):
            deeper = indent + _INDENT
            lines.append(f"{deeper}backend_id: {inner.backend_id}\n{deeper}lowered graph():\n")
            lines += _lines(inner.original_module.graph_module, deeper + _INDENT)
    return lines


def print_delegated_graph(graph_module: GraphModule) -> None:
    """Prints `format_delegated_graph`."""
    print(format_delegated_graph(graph_module))


def tag_constant_data(edge_program: ExportedProgram) -> None:
    """Gives parameters, buffers and constants the tag of what reads them, the first in the
    alphabet if there are several. A delegate has the constants that it reads without it, too."""
    _tag_like_users(edge_program, mutated=False)


def tag_mutated_buffer(edge_program: ExportedProgram) -> None:
    """Gives buffers that the program writes the tag of what reads them. A delegate keeps those that
    nothing else uses; the others it is given, and gives back what they become."""
    _tag_like_users(edge_program, mutated=True)


def _tag_like_users(program: ExportedProgram, mutated: bool) -> None:
    signature = program.graph_signature
    constants = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    written = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in constants:
            continue
        tags = {user.meta[TAG] for user in node.users if user.meta.get(TAG) is not None}
        if tags and (constants[node.name] in written) == mutated:
            node.meta[TAG] = min(tags)


def inspect_node(graph: Graph, node: Node) -> str:
    """The graph with an arrow at the node, and the lines of the model that the node is of."""
    lines = (
        f"{'--> ' if one is node else '    '}{one.format_node()}"
        for one in graph.nodes
        if one.format_node()
    )
    text = "\n".join(lines)
    trace = node.meta.get("stack_trace") or "none is known"
    return (
        f"Here is the node in the graph module:\ngraph():\n{text}\n"
        f"This node {node} has metadata of:\nThe node stacktrace:\n{trace}\n"
    )


def pretty_print(obj: Any, indent: int = 0, out: TextIO | None = None) -> None:
    """Prints dataclasses, such as a program's. indent: columns before each line."""
    text = pprint.pformat(obj)
    print("\n".join(" " * indent + line for line in text.splitlines()), file=out or sys.stdout)


print_program = pretty_print
