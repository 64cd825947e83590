"""Exporting a module as it is used: for inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule


def export_module(
    model: torch.nn.Module, inputs: Sequence[Any], dynamic_shapes: Any = None
) -> ExportedProgram:
    """In evaluation mode and without gradients; the module's own mode is as before.

    A graph module has its mode in its graph and stays as it is.
    """
    has_mode = not isinstance(model, GraphModule)
    training = model.training
    try:
        if has_mode:
            model.eval()
        with torch.no_grad():
            return torch.export.export(model, tuple(inputs), dynamic_shapes=dynamic_shapes)
    finally:
        if has_mode:
            model.train(training)
