"""The law of an edge program between its passes, and the program as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import graphs_within
from edgewise.edge.dialect import check
from edgewise.edge.graph import calls, dtype_name, op_name
from edgewise.edge.node_errors import at_node
from edgewise.errors import InvalidGraphError
from edgewise.passes import Property


def verify(program: ExportedProgram) -> None:
    """InvalidGraphError if a node reads one that comes later or is gone, if the inputs are not the
    signature's, or if a call of an operator has no value. The dialect is no part of it: until
    `normalize` has run, a program is not yet in it."""
    named = {getattr(spec.arg, "name", "") for spec in program.graph_signature.input_specs}
    found = {node.name for node in program.graph.find_nodes(op="placeholder")}
    if named != found:
        raise InvalidGraphError(
            f"[edge] inputs must be the signature's; got {', '.join(sorted(named ^ found))} in one "
            f"of them only"
        )
    for graph in (program.graph, *(body.graph for _, body in graphs_within(program.graph_module))):
        try:
            graph.lint()
        except RuntimeError as error:
            raise InvalidGraphError(f"[edge] nodes must be in order; got {error}") from error
        for node in calls(graph):
            returns = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.returns
            if returns and "val" not in node.meta:
                raise InvalidGraphError(f"{at_node(node)} calls must carry a value; got none")


def in_the_dialect(
    keep: Callable[[ExportedProgram], Callable[[Node], bool]],
    *,
    bodies: bool = True,
) -> Property[ExportedProgram]:
    """That every node is one of the edge dialect's, or one that stays whole. bodies: those of
    control flow, too, which become programs of the dialect later than what is around them."""

    def broken(program: ExportedProgram) -> str:
        keeps = keep(program)
        kept = {node.target for node in calls(program.graph) if keeps(node)}
        try:
            check(program, kept, bodies=bodies)
        except InvalidGraphError as error:
            return str(error)
        return ""

    return Property("nodes are in the edge dialect", broken, of_valid_input=True)


def text(program: ExportedProgram) -> str:
    """One line for each node, in order: what it computes, of what; bodies of control flow below."""
    lines = _lines(program.graph)
    for path, body in graphs_within(program.graph_module):
        lines += ["", f"{path}:", *_lines(body.graph)]
    return "\n".join(lines)


def _lines(graph: torch.fx.Graph) -> list[str]:
    return [_line(node) for node in graph.nodes]


def _line(node: Node) -> str:
    if node.op in ("placeholder", "get_attr"):
        return f"{node.name}: {_shown(node.meta.get('val'))} = {node.op} {node.target}"
    given = [str(argument) for argument in node.args]
    given += [f"{name}={argument}" for name, argument in node.kwargs.items()]
    if node.op == "output":
        return f"output {', '.join(given)}"
    return f"{node.name}: {_shown(node.meta.get('val'))} = {op_name(node)}({', '.join(given)})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        shape = ", ".join(str(size) for size in value.shape)
        return f"{dtype_name(value.dtype)}[{shape}]"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_shown, value))})"
    return "none" if value is None else str(value)
