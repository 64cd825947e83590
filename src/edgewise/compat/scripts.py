"""Helpers that ExecuTorch's examples are written with: `executorch.extension.export_util`, and
NXP's `calibrate_and_quantize`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.fx import GraphModule

from edgewise.compat.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchProgramManager,
    to_edge,
)
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

__all__ = ["calibrate_and_quantize", "export_to_edge", "export_to_exec_prog", "save_pte_program"]


def export_to_edge(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    edge_constant_methods: Mapping[str, Any] | None = None,
    edge_compile_config: EdgeCompileConfig | None = None,
    strict: bool = True,
    verbose: bool = True,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """A module's program in the edge dialect. verbose: of no effect."""
    program = export(
        model,
        example_inputs,
        dict(example_kwarg_inputs or {}),
        dynamic_shapes=dynamic_shapes,
        strict=strict,
    )
    config = edge_compile_config or EdgeCompileConfig(_check_ir_validity=False)
    return to_edge(program, edge_constant_methods, config, generate_etrecord)


def export_to_exec_prog(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    backend_config: Any = None,
    **options: Any,
) -> ExecutorchProgramManager:
    """A module's program as it is written to a file. options: as `export_to_edge`."""
    return export_to_edge(model.eval(), example_inputs, **options).to_executorch(backend_config)


def save_pte_program(
    prog: ExecutorchProgramManager, model_name: str, output_dir: str | os.PathLike[str] = ""
) -> str:
    """Writes `model_name.pte`, and data that is not in it, to the folder; the file's path.

    A name that ends in ".pte" is the path. Raises OSError, where ExecuTorch only logs it.
    """
    ends = model_name.endswith(".pte")
    path = Path(model_name) if ends else Path(output_dir, f"{model_name}.pte")
    prog.save(path)
    prog.write_tensor_data_to_file(Path(output_dir) if output_dir else path.parent)
    return str(path)


def calibrate_and_quantize(
    model: ExportedProgram | GraphModule,
    calibration_inputs: Iterable[tuple[torch.Tensor, ...]],
    quantizer: Any,
    is_qat: bool = False,
    train_fn: Callable[[GraphModule], None] | None = None,
) -> GraphModule:
    """PT2E's flow: prepared, trained or calibrated, converted."""
    module = model.module() if isinstance(model, ExportedProgram) else model
    prepared = (prepare_qat_pt2e if is_qat else prepare_pt2e)(module, quantizer)
    if is_qat and train_fn is not None:
        train_fn(prepared)
    else:
        with torch.no_grad():
            for inputs in calibration_inputs:
                prepared(*inputs)
    converted: GraphModule = convert_pt2e(prepared)
    return converted
