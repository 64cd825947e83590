"""Exporting a module as it is used: for inference."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from edgewise.errors import ExportError

_HINTS = {
    "GuardOnDataDependentSymNode": "torch.cond for a branch that data decide, torch._check for a "
    "size (docs/control-flow.md)",
    "ConstraintViolationError": "a Dim with the bounds that it names, or Dim.AUTO",
}
"""By the name of torch's exception."""
_TORCHAO_HINT = (
    "quantize='int8-dynamic' or 'int4-weight': torchao's scales at run time need a number of rows "
    "that data do not decide"
)


def export_module(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    dynamic_shapes: Any = None,
    keywords: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """In evaluation mode and without gradients; the modules' own modes are as before.

    ExportError if torch cannot export it, which says whether the model runs with these inputs at
    all.
    """
    with evaluating(model), torch.no_grad(), warnings.catch_warnings():
        # Recurrent layers hold their weights twice, which changes nothing here.
        warnings.filterwarnings("ignore", r"The tensor attributes? \S+\._flat_weights\[0\]")
        try:
            return torch.export.export(
                model, tuple(inputs), dict(keywords or {}), dynamic_shapes=dynamic_shapes
            )
        except Exception as error:  # torch has no one class for it
            raise ExportError(_reason(model, inputs, keywords or {}, error)) from error


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """A module and those in it in evaluation mode, and behind it each in its own again: in a module
    that trains there may be one that does not. A graph module has its mode in its graph and stays
    as it is."""
    if isinstance(model, GraphModule):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def open_sizes(program: ExportedProgram) -> Any:
    """`dynamic_shapes` with which the program's own module is exported with the same sizes open;
    None if none is. By name where there are keywords, else by position."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    dims: dict[str, Any] = {}
    leaves = []
    for name in program.graph_signature.user_inputs:
        value = values.get(str(name))
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        found = {i: _open(program, size, dims) for i, size in enumerate(sizes)}
        leaves.append({i: dim for i, dim in found.items() if dim is not None} or None)
    entry = program.module_call_graph[0].signature
    if not any(leaves) or entry is None:
        return None
    inputs, keywords = pytree.tree_unflatten(leaves, entry.in_spec)
    if not keywords:
        return tuple(inputs)
    return dict(zip(entry.forward_arg_names or (), [*inputs, *keywords.values()], strict=True))


def _open(program: ExportedProgram, size: Any, dims: dict[str, Any]) -> Any:
    """The Dim of a size that is a symbol; Dim.AUTO for what is computed from one."""
    if isinstance(size, int):
        return None
    expression = size.node.expr
    bounds = program.range_constraints.get(expression)
    if not expression.is_symbol or bounds is None:
        return Dim.AUTO
    most = int(bounds.upper) if bounds.upper.is_Integer and int(bounds.upper) < 1 << 60 else None
    return dims.setdefault(str(expression), Dim(str(expression), min=int(bounds.lower), max=most))


def _reason(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    error: Exception,
) -> str:
    try:
        model(*inputs, **keywords)
    except Exception as plain:
        return (
            f"[export] the model must run with its example inputs; got {_told(plain)}; "
            f"try model(*example_inputs{', **example_kwargs' if keywords else ''}) first"
            f"{_order_hint([*inputs, *keywords.values()])}"
        )
    hint = _HINTS.get(type(error).__name__, "torch.export.export(model, example_inputs) alone")
    if type(error).__name__ == "GuardOnDataDependentSymNode" and "torchao/" in str(error):
        hint = _TORCHAO_HINT
    return f"[export] torch.export must be able to trace the model; got {_told(error)}; try {hint}"


def _order_hint(inputs: Sequence[Any]) -> str:
    """Pictures that are read from files have their channels last."""
    for one in inputs:
        is_picture = isinstance(one, torch.Tensor) and one.dim() == 4 and one.shape[3] in (1, 3, 4)
        if is_picture and one.shape[1] not in (1, 3, 4):
            return "; if that is a picture [N, H, W, C]: x.permute(0, 3, 1, 2)"
    return ""


def _told(error: Exception) -> str:
    """The exception's name and first line, and the line of the user's where it came up."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else '(no message)'}{_location(error)}"


def _location(error: Exception) -> str:
    torch_itself = str(Path(torch.__file__).parent)
    # What torch traces is not on Python's stack: its message quotes the lines.
    quoted = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    frames = [(f.filename, str(f.lineno)) for f in traceback.extract_tb(error.__traceback__)]
    for file, line in (*reversed(quoted), *reversed(frames)):
        if not file.startswith((torch_itself, "<")) and file != __file__:
            return f", at {file}:{line}"
    return ""
