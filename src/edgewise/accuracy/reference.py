"""The float model's values: of its outputs, and of any node of its export."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from edgewise.edge.export import export_module


class Reference:
    """A module's export, run node by node.

    double: in float64, on a copy. like: a program with the same inputs, for which sizes
    may vary.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Sequence[Any],
        *,
        double: bool = False,
        like: ExportedProgram | None = None,
    ) -> None:
        self._double = double
        if double:
            model = copy.deepcopy(model).double()
        self.program = export_module(model, self._given(inputs), _sizes(inputs, like))
        self._module = self.program.module(check_guards=False)
        _copy_buffers(self._module)

    def run(self, inputs: Sequence[Any], names: set[str]) -> tuple[Any, dict[str, Any]]:
        """The outputs, in the model's structure, and the values of the nodes named."""
        recorder = _Recorder(self._module, names)
        with torch.no_grad():
            outputs = recorder.run(*self._given(inputs))
        return outputs, recorder.values

    def _given(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return cast(tuple(inputs), torch.float64) if self._double else tuple(inputs)


class _Recorder(Interpreter):
    def __init__(self, module: torch.fx.GraphModule, names: set[str]) -> None:
        super().__init__(module)
        self._names = names
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self._names:
            # A later node may write to it.
            self.values[n.name] = result.clone()
        return result


def _copy_buffers(module: torch.nn.Module) -> None:
    """The model may write to them, and its own must stay as they are."""
    copies: dict[int, torch.Tensor] = {}
    for one in module.modules():
        for name, buffer in one._buffers.items():
            if buffer is not None:
                one._buffers[name] = copies.setdefault(id(buffer), buffer.clone())


def cast(inputs: Any, dtype: torch.dtype) -> Any:
    """The structure with its float tensors in `dtype`."""
    return pytree.tree_map(
        lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x,
        inputs,
    )


def _sizes(inputs: Sequence[Any], like: ExportedProgram | None) -> Any:
    """Any size where the program's inputs have a symbol; None if none has."""
    if like is None:
        return None
    values = [_value(like, name) for name in like.graph_signature.user_inputs]
    free = [
        {i: Dim.AUTO for i, size in enumerate(value.shape) if not isinstance(size, int)}
        if isinstance(value, torch.Tensor)
        else {}
        for value in values
    ]
    leaves, spec = pytree.tree_flatten(tuple(inputs))
    if not any(free) or len(leaves) != len(free):
        return None
    return pytree.tree_unflatten([each or None for each in free], spec)


def _value(program: ExportedProgram, name: Any) -> Any:
    """An input's fake tensor; None for a number or the like."""
    nodes = (n for n in program.graph.nodes if n.op == "placeholder" and n.name == name)
    return next((n.meta.get("val") for n in nodes), None)
