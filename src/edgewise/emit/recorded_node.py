"""What a record says of one node, read from the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments, dtype_name, size_hint
from edgewise.inspect.record import ModuleRecord, TensorRecord, WeightRecord

_EXPORT = "torch.export."
"""Modules that torch.export itself puts around the user's."""


def weight_of(name: str, tensor: torch.Tensor) -> WeightRecord:
    """A constant by its qualified name."""
    return WeightRecord(name, tensor_record(tensor))


def tensors_of(node: Node) -> tuple[TensorRecord, ...]:
    """Types of the tensors that the node computes."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return tuple(tensor_record(v) for v in values if isinstance(v, torch.Tensor))


def tensor_record(value: torch.Tensor) -> TensorRecord:
    """The type of a tensor, fake or not."""
    shape = tuple(s if isinstance(s, int) else str(s) for s in value.shape)
    size = math.prod(size_hint(s) for s in value.shape) * value.element_size()
    return TensorRecord(dtype_name(value.dtype), shape, size)


def attributes_of(node: Node) -> dict[str, str]:
    """Arguments that hold no node, those with their defaults left out."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return {}
    defaults = {a.name: a.default_value for a in node.target._schema.arguments}
    found = {}
    for name, value in arguments(node).items():
        held = value if isinstance(value, (list, tuple)) else [value]
        if (
            value is not None
            and value != defaults.get(name)
            and not any(isinstance(item, Node) for item in held)
        ):
            found[name] = str(value).removeprefix("torch.")
    return found


def modules_of(node: Node) -> tuple[ModuleRecord, ...]:
    """The user's modules around the node, from the outermost."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    found = []
    for path, kind in stack.values():
        name = str(path).removeprefix("L['self'].").removeprefix("L['self']")
        text = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        if text.startswith(_EXPORT):
            continue
        found.append(ModuleRecord(name, text))
    return tuple(found)
