"""One call from a model to a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from edgewise.lowering import ExecutorchProgramManager, to_edge_transform_and_lower
from edgewise.partition.spec import Partitioner

_BACKENDS = ("xnnpack", "none")


def compile(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any] | torch.Tensor | None = None,
    *,
    backend: str = "xnnpack",
    dynamic_shapes: Any = None,
) -> ExecutorchProgramManager:
    """Exports, lowers and writes a model.

    model: a module (put into evaluation mode for the export), or a program exported
    already. example_inputs: a tuple of inputs; needed for a module. backend: "xnnpack",
    or "none" for the runtime's own kernels alone. dynamic_shapes: as for
    `torch.export.export`. The result has `save`, `buffer` and `delegation_report`.
    """
    if backend not in _BACKENDS:
        raise ValueError(
            f"[compile] backend must be one of {', '.join(_BACKENDS)}; got {backend!r}"
        )
    if isinstance(model, ExportedProgram):
        exported = model
    elif isinstance(model, torch.nn.Module):
        if example_inputs is None:
            raise TypeError(
                "[compile] example_inputs must be given for a module; got None; "
                "try a tuple of tensors, one for each argument of forward"
            )
        if isinstance(example_inputs, torch.Tensor):
            example_inputs = (example_inputs,)
        training = model.training
        try:
            with torch.no_grad():
                exported = torch.export.export(
                    model.eval(), tuple(example_inputs), dynamic_shapes=dynamic_shapes
                )
        finally:
            model.train(training)
    else:
        raise TypeError(
            f"[compile] model must be a torch.nn.Module or an ExportedProgram; "
            f"got {type(model).__name__}"
        )
    partitioners: list[Partitioner] = []
    if backend == "xnnpack":
        from edgewise.backends.xnnpack import XnnpackPartitioner

        partitioners.append(XnnpackPartitioner())
    return to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
