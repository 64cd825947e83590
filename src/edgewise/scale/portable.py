"""A prepared graph as plain data, to run its observers in another process.

Graph modules of exported programs cannot be pickled; what they do can: operators by name,
modules and tensors by what they hold.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from edgewise.scale.observers import observers_of, reset

_GUARDS = "_guards_fn"
"""Checks of an exported module's inputs; they compute nothing."""


@dataclass(frozen=True)
class _Ref:
    """Stands for a node's value."""

    name: str


@dataclass(frozen=True)
class _Step:
    name: str
    op: str
    target: str
    args: Any
    kwargs: Any


def pack(prepared: GraphModule) -> bytes:
    """The graph; `Portable` runs it.

    ValueError for what cannot be sent: control flow, and functions without a name.
    """
    steps, modules, tensors = [], {}, {}
    for node in prepared.graph.nodes:
        target = str(node.target)
        if node.op == "call_module" and target == _GUARDS:
            continue
        if node.op == "call_module":
            modules[target] = prepared.get_submodule(target)
        elif node.op == "get_attr":
            tensors[target] = _tensor(prepared, node)
        elif node.op == "call_function":
            target = _name_of(node)
        args, kwargs = (_unlinked(v) for v in (node.args, node.kwargs))
        steps.append(_Step(node.name, node.op, target, args, kwargs))
    buffer = io.BytesIO()
    torch.save({"steps": steps, "modules": modules, "tensors": tensors}, buffer)
    return buffer.getvalue()


class Portable:
    """What `pack` made, called like the graph module; its observers have seen nothing."""

    def __init__(self, packed: bytes) -> None:
        held = torch.load(io.BytesIO(packed), weights_only=False)
        self.modules: Mapping[str, torch.nn.Module] = held["modules"]
        for observer in observers_of(self.modules).values():
            reset(observer)
        self._steps: Sequence[_Step] = held["steps"]
        self._tensors: Mapping[str, torch.Tensor] = held["tensors"]
        self._functions: dict[str, Callable[..., Any]] = {}
        self._last = {ref: i for i, s in enumerate(self._steps) for ref in _refs(s)}

    def __call__(self, *inputs: Any) -> None:
        """Runs the graph for its observers' sake; ValueError for other than its inputs."""
        leaves = pytree.tree_leaves(inputs)
        wanted = sum(step.op == "placeholder" for step in self._steps)
        if len(leaves) != wanted:
            raise ValueError(f"[calibrate] a batch must have {wanted} inputs; got {len(leaves)}")
        given = iter(leaves)
        values: dict[str, Any] = {}
        with torch.no_grad():
            for index, step in enumerate(self._steps):
                if step.op == "output":
                    return
                values[step.name] = self._run(step, given, values)
                for name in _refs(step):
                    if self._last[name] == index:
                        del values[name]  # as early as nobody reads it any more

    def _run(self, step: _Step, given: Any, values: Mapping[str, Any]) -> Any:
        if step.op == "placeholder":
            return next(given)
        if step.op == "get_attr":
            return self._tensors[step.target]
        args, kwargs = (_linked(v, values) for v in (step.args, step.kwargs))
        if step.op == "call_module":
            return self.modules[step.target](*args, **kwargs)
        if step.op == "call_method":
            return getattr(args[0], step.target)(*args[1:], **kwargs)
        if step.target not in self._functions:
            self._functions[step.target] = _function(step.target)
        return self._functions[step.target](*args, **kwargs)


def _tensor(prepared: GraphModule, node: Node) -> torch.Tensor:
    found: Any = prepared
    for part in str(node.target).split("."):
        found = getattr(found, part)
    if not isinstance(found, torch.Tensor):
        raise ValueError(
            f"[calibrate] the graph must hold tensors only, to be sent to other processes; got "
            f"{type(found).__name__} at {node.name}; try calibrating in one process"
        )
    return found.detach()


def _name_of(node: Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return f"torch.ops:{node.target}"
    module = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__qualname__", "<locals>")
    if module is None or "<" in name or isinstance(node.target, torch._ops.HigherOrderOperator):
        raise ValueError(
            f"[calibrate] functions must have a name, to be sent to other processes; got "
            f"{node.target} at {node.name}; try calibrating in one process"
        )
    return f"{module}:{name}"


def _function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    found: Any = torch.ops if module == "torch.ops" else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _unlinked(value: Any) -> Any:
    def unlinked(part: Any) -> Any:
        return _Ref(part.name) if isinstance(part, Node) else part

    return map_aggregate(value, unlinked)


def _linked(value: Any, values: Mapping[str, Any]) -> Any:
    return map_aggregate(value, lambda v: values[v.name] if isinstance(v, _Ref) else v)


def _refs(step: _Step) -> set[str]:
    found: set[str] = set()

    def note(value: Any) -> Any:
        if isinstance(value, _Ref):
            found.add(value.name)
        return value

    map_aggregate((step.args, step.kwargs), note)
    return found
