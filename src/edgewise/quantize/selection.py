"""Which configuration a node gets: by module name, module type, operator, or for all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from edgewise.quantize._torchao import QuantizationConfig

NodeFilter = Callable[[Node], bool]


@dataclass
class Selection:
    """The most specific setting wins: name (the longest), type, operator, then global.

    A setting of None keeps what it names in float.
    """

    for_all: QuantizationConfig | None = None
    by_name: dict[str, QuantizationConfig | None] = field(default_factory=dict)
    by_type: dict[str, QuantizationConfig | None] = field(default_factory=dict)
    by_operator: dict[Any, QuantizationConfig | None] = field(default_factory=dict)
    accepts: NodeFilter | None = None
    _used: set[Any] = field(default_factory=set)

    def of(self, node: Node) -> QuantizationConfig | None:
        """The node's configuration; None to keep it in float."""
        if self.accepts is not None and not self.accepts(node):
            return None
        found = self._specific(node)
        return self.for_all if found is None else found[0]

    @property
    def trains(self) -> bool:
        """Whether a setting is for training that simulates rounding."""
        settings = (
            self.for_all,
            *self.by_name.values(),
            *self.by_type.values(),
            *self.by_operator.values(),
        )
        return any(s is not None and s.is_qat for s in settings)

    def refuses(self, node: Node) -> bool:
        """Whether a setting keeps the node in float; False if there just is none for it."""
        if self.accepts is not None and not self.accepts(node):
            return True
        return self._specific(node) == (None,)

    def _specific(self, node: Node) -> tuple[QuantizationConfig | None] | None:
        """What the most specific setting but the global one says; None if there is none."""
        modules = module_stack(node)
        names = [n for n in self.by_name if any(is_within(path, n) for path, _ in modules)]
        if names:
            name = max(names, key=len)
            self._used.add(name)
            return (self.by_name[name],)
        for _, kind in reversed(modules):
            if kind in self.by_type:
                self._used.add(kind)
                return (self.by_type[kind],)
        if node.target in self.by_operator:
            self._used.add(node.target)
            return (self.by_operator[node.target],)
        return None

    def warn_of_unused(self, where: str) -> None:
        """A name that matches nothing is most often a slip."""
        for key in [*self.by_name, *self.by_type, *self.by_operator]:
            if key not in self._used:
                warnings.warn(
                    f"[{where}] a setting must match a node that can be quantized; {key} matches "
                    f"none; try names of model.named_modules()",
                    stacklevel=2,
                )


def type_name(module_type: type[torch.nn.Module] | str) -> str:
    """As exports write a module's class: `torch.nn.modules.conv.Conv2d`."""
    if isinstance(module_type, str):
        return module_type
    if not isinstance(module_type, type):
        raise TypeError(
            f"[set_module_type] module_type must be a class; got an instance of "
            f"{type(module_type).__name__}; try {type(module_type).__name__}, or set_module_name"
        )
    return f"{module_type.__module__}.{module_type.__qualname__}"


def module_stack(node: Node) -> list[tuple[str, str]]:
    """Qualified name and type of each module that the node comes from, outermost first."""
    found = []
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        path = path.removeprefix("L['self']").removeprefix("L__self__").lstrip("._")
        found.append((path, type_name(kind)))
    return found


def is_within(path: str, name: str) -> bool:
    """Whether the module at a path is the named one, or one of those inside of it."""
    return path == name or path.startswith(f"{name}.")
