"""What an edge program may contain, as one table, and the check against it.

| node            | must be                                                                   |
|-----------------|---------------------------------------------------------------------------|
| placeholder     | named by the signature                                                    |
| get_attr        | a lowered module, or a body of control flow                               |
| call_function   | a functional, non-view operator; arithmetic on sizes; getitem; a delegate; |
|                 | control flow, whose bodies obey this table; `auto_functionalized` around  |
|                 | a custom operator that writes its arguments                               |
| any tensor      | of a fake value, its memory format decided by `edge.layout`               |
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import control_flow, graphs_within
from edgewise.edge.graph import AUTO_FUNCTIONALIZED, op_name, tensors_of
from edgewise.edge.node_errors import at_node
from edgewise.errors import InvalidGraphError

aten = torch.ops.aten

_SIZE_ARITHMETIC = {
    operator.getitem,
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.truediv,
    operator.mod,
    operator.neg,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    torch.sym_min,
    torch.sym_max,
    torch.sym_float,
    torch.sym_int,
    torch.sym_not,
    torch.sym_ite,
    math.ceil,
    math.trunc,
    round,
}


def check(program: ExportedProgram, allowed: Collection[Any] = (), *, bodies: bool = True) -> None:
    """InvalidGraphError at the first node that breaks the table. `allowed`: operators let pass.
    bodies: whether those of control flow are looked at, too."""
    named = {getattr(spec.arg, "name", "") for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name not in named:
            raise InvalidGraphError(
                f"{at_node(node)} inputs must be named by the signature; got one that is not"
            )
    graphs = [body.graph for _, body in graphs_within(program.graph_module)]
    for graph in [program.graph, *(graphs if bodies else [])]:
        for node in graph.nodes:
            _check_node(node, allowed)


def check_layouts(program: ExportedProgram) -> None:
    """InvalidGraphError at the first node that computes a sparse tensor."""
    for node in program.graph.nodes:
        for tensor in tensors_of(node) if node.op != "output" else ():
            if tensor.layout is not torch.strided:
                raise InvalidGraphError(
                    f"{at_node(node)} tensors must be dense; "
                    f"got {str(tensor.layout).removeprefix('torch.')}; try to_dense() before"
                )


def _check_node(node: Node, allowed: Collection[Any]) -> None:
    if node.op in ("call_method", "call_module"):
        raise InvalidGraphError(
            f"{at_node(node)} calls must be of functions; got a {node.op}; try torch.export"
        )
    if node.op == "call_function" and node.target not in allowed:
        _check_call(node)


def _check_call(node: Node) -> None:
    target = node.target
    if target in _SIZE_ARITHMETIC or target is executorch_call_delegate:
        return
    if control_flow(node) is not None or target is AUTO_FUNCTIONALIZED:
        return
    if not isinstance(target, torch._ops.OpOverload):
        raise InvalidGraphError(
            f"{at_node(node)} calls must be of operators; got {op_name(node)}; "
            f"other higher-order operators and Python functions are not part of the dialect"
        )
    if any(t.is_complex() for n in [*node.all_input_nodes, node] for t in tensors_of(n)):
        raise InvalidGraphError(
            f"{at_node(node)} operators must compute real numbers; got {op_name(node)} of complex "
            f"ones; try real and imaginary parts as tensors of their own"
        )
    schema = target._schema
    if schema.is_mutable:
        raise InvalidGraphError(
            f"{at_node(node)} operators must be functional; got {op_name(node)}, "
            f"which writes its input"
        )
    if target.namespace == "aten" and any(r.alias_info is not None for r in schema.returns):
        raise InvalidGraphError(
            f"{at_node(node)} operators must not return views; got {op_name(node)}"
        )
    if schema.returns and "val" not in node.meta:
        raise InvalidGraphError(
            f"{at_node(node)} nodes must carry a value; got none in meta['val']"
        )
