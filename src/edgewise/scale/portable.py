"""A prepared graph as plain data, to run its observers in another process.

Graph modules of exported programs cannot be pickled, and FX's own pickle traces them anew, which
makes constants of what no input reaches. What a graph does can be: operators by name, modules and
tensors by what they hold.
"""

from __future__ import annotations

import io
import pkgutil
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from edgewise.scale.observers import observers_of, reset

_GUARDS = "_guards_fn"
"""Checks of an exported module's inputs; they compute nothing."""


@dataclass(frozen=True)
class _Ref:
    """Stands for a node's value."""

    name: str


def pack(prepared: GraphModule) -> bytes:
    """The graph; `Portable` runs it.

    ValueError for what cannot be sent: control flow, and functions without a name.
    """
    nodes, held = [], {}
    for node in prepared.graph.nodes:
        target = node.target
        if node.op == "call_module" and target == _GUARDS:
            continue
        if node.op in ("call_module", "get_attr"):
            held[target] = _held(prepared, node)
        elif node.op == "call_function":
            target = _name_of(node)
        arguments = map_aggregate((node.args, node.kwargs), _unlinked)
        nodes.append((node.name, node.op, target, arguments))
    buffer = io.BytesIO()
    torch.save({"nodes": nodes, "held": held}, buffer)
    return buffer.getvalue()


class Portable:
    """What `pack` made, called like the graph module; its observers have seen nothing."""

    def __init__(self, packed: bytes) -> None:
        found = torch.load(io.BytesIO(packed), weights_only=False)
        graph, nodes = Graph(), {}
        for name, op, target, arguments in found["nodes"]:
            args, kwargs = map_aggregate(
                arguments, lambda v: nodes[v.name] if isinstance(v, _Ref) else v
            )
            made = pkgutil.resolve_name(target) if op == "call_function" else target
            nodes[name] = graph.create_node(op, made, args, kwargs, name)
        self._inputs = sum(node.op == "placeholder" for node in nodes.values())
        self._module = GraphModule(found["held"], graph)
        self.observers = observers_of(dict(self._module.named_modules()))
        for observer in self.observers.values():
            reset(observer)

    def __call__(self, *inputs: Any) -> None:
        """Runs the graph for its observers' sake; ValueError for other than its inputs."""
        leaves = pytree.tree_leaves(inputs)
        if len(leaves) != self._inputs:
            raise ValueError(
                f"[calibrate] a batch must have {self._inputs} inputs; got {len(leaves)}"
            )
        with torch.no_grad():
            self._module(*leaves)


def _unlinked(part: Any) -> Any:
    return _Ref(part.name) if isinstance(part, Node) else part


def _held(prepared: GraphModule, node: Node) -> Any:
    found = attrgetter(str(node.target))(prepared)
    if node.op == "call_module":
        return found
    if not isinstance(found, torch.Tensor):
        raise ValueError(
            f"[calibrate] the graph must hold tensors only, to be sent to other processes; got "
            f"{type(found).__name__} at {node.name}; try calibrating in one process"
        )
    return found.detach()


def _name_of(node: Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return f"torch:ops.{node.target}"
    module = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__qualname__", "<locals>")
    if module is None or "<" in name or isinstance(node.target, torch._ops.HigherOrderOperator):
        raise ValueError(
            f"[calibrate] functions must have a name, to be sent to other processes; got "
            f"{node.target} at {node.name}; try calibrating in one process"
        )
    return f"{module}:{name}"
