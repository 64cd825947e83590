"""Exporting a module as it is used: for inference."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from edgewise.errors import ExportError

_HINTS = {
    "GuardOnDataDependentSymNode": "torch.cond for a branch that data decide, torch._check for a "
    "size (docs/control-flow.md)",
    "ConstraintViolationError": "a Dim with the bounds that it names, or Dim.AUTO",
}
"""By the name of torch's exception."""


def export_module(
    model: torch.nn.Module, inputs: Sequence[Any], dynamic_shapes: Any = None
) -> ExportedProgram:
    """In evaluation mode and without gradients; the module's own mode is as before.

    A graph module has its mode in its graph and stays as it is. ExportError if torch cannot
    export it, which says whether the model runs with these inputs at all.
    """
    has_mode = not isinstance(model, GraphModule)
    training = model.training
    try:
        if has_mode:
            model.eval()
        with torch.no_grad():
            try:
                return torch.export.export(model, tuple(inputs), dynamic_shapes=dynamic_shapes)
            except Exception as error:  # torch has no one class for it
                raise ExportError(_reason(model, inputs, error)) from error
    finally:
        if has_mode:
            model.train(training)


def _reason(model: torch.nn.Module, inputs: Sequence[Any], error: Exception) -> str:
    try:
        model(*inputs)
    except Exception as plain:
        return (
            f"[export] the model must run with its example inputs; got {_told(plain)}; "
            f"try model(*example_inputs) first{_order_hint(inputs)}"
        )
    hint = _HINTS.get(type(error).__name__, "torch.export.export(model, example_inputs) alone")
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
    return f"{type(error).__name__}: {lines[0] if lines else '(no message)'}{_place(error)}"


def _place(error: Exception) -> str:
    torch_itself = str(Path(torch.__file__).parent)
    # What torch traces is not on Python's stack: its message quotes the lines.
    quoted = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    frames = [(f.filename, str(f.lineno)) for f in traceback.extract_tb(error.__traceback__)]
    for file, line in (*reversed(quoted), *reversed(frames)):
        if not file.startswith((torch_itself, "<")) and file != __file__:
            return f", at {file}:{line}"
    return ""
