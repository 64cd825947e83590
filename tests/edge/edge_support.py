"""Making edge programs and asking what is in them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram

import edgewise
from edgewise.edge.graph import calls, op_name
from support import assert_close, eager, export


def edge(module: torch.nn.Module, inputs: tuple[Any, ...], **options: Any) -> ExportedProgram:
    return edgewise.to_edge(export(module, inputs, **options)).exported_program()


def spelling(program: ExportedProgram) -> list[str]:
    """The calls in order, without `aten.` and without elements taken out of tuples."""
    names = [op_name(n).removeprefix("aten.") for n in calls(program.graph)]
    return [n for n in names if n != "getitem"]


def assert_equals_eager(
    program: ExportedProgram, module: torch.nn.Module, inputs: tuple[Any, ...], rel: float = 1e-6
) -> None:
    """Computes what the module does, in PyTorch, in the same type."""
    expected = eager(copy.deepcopy(module), inputs)
    with torch.no_grad():
        got = program.module()(*copy.deepcopy(inputs))
    assert_close(torch.utils._pytree.tree_leaves(got), expected, rel)


class _AsSaid(torch.fx.Interpreter):
    def run_node(self, n: torch.fx.Node) -> Any:
        found = super().run_node(n)
        said = n.meta.get("val")
        if isinstance(said, torch.Tensor):
            assert (said.shape, said.dtype) == (found.shape, found.dtype), n.format_node()
        return found


def assert_values_are_as_said(program: ExportedProgram, inputs: tuple[Any, ...]) -> None:
    """What each node computes has the sizes and the type that later passes take it to have."""
    with torch.no_grad():
        flat = program._graph_module_flat_inputs(copy.deepcopy(inputs), {})
        _AsSaid(program.graph_module).run(*flat)
