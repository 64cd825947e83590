"""This project in the matrix: its files of the nets, and its runtime on files of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from nets import Variant
from worker import write_record

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.emit import ExecutorchBackendConfig
from edgewise.emit.data_file import DEFAULT_NAME


def write(variant: Variant, folder: Path) -> None:
    """The net's file, and what it must compute, into the folder."""
    program = lower(variant)
    program.save(folder / f"{variant.name}.pte")
    write_record(variant, folder)
    if variant.net.config == "external":
        program.write_tensor_data_to_file(folder)
        (folder / f"{DEFAULT_NAME}.ptd").rename(folder / f"{variant.name}.ptd")


def lower(variant: Variant) -> Any:
    model, net, inputs = variant.model(), variant.net, variant.calls()[0]
    if variant.quantize is not None:
        return edgewise.compile(
            model,
            inputs,
            quantize=variant.quantize,
            calibration=variant.calls() if variant.quantize == "int8" else None,
            group_size=32 if variant.quantize.startswith("int4") else None,
            dynamic_shapes=net.dynamic,
            verbose=False,
        )
    modules = model if isinstance(model, dict) else {"forward": model}
    with torch.no_grad():
        programs = {
            name: torch.export.export(module, inputs, dynamic_shapes=net.dynamic)
            for name, module in modules.items()
        }
    edge = edgewise.to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
    return edge.to_executorch(ExecutorchBackendConfig(external_constants=net.config == "external"))
