"""This project in the matrix: its files of the nets, and its runtime on files of releases."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from nets import Variant
from worker import compare, in_children, write_record

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.emit import ExecutorchBackendConfig
from edgewise.format.data_file import DEFAULT_NAME
from edgewise.runtime import Runtime


def write_all(
    variants: Iterable[Variant], folder: Path, runtime: str | None = None
) -> list[dict[str, str]]:
    """Every net's file into the folder. Returns a row for each that is refused."""
    rows = []
    for variant in variants:
        try:
            write(variant, folder, runtime)
        except Exception as cause:
            detail = f"{type(cause).__name__}: {cause}"
            rows.append(
                {"name": variant.name, "how": "make", "result": "refused", "detail": detail}
            )
    return rows


def write(variant: Variant, folder: Path, runtime: str | None = None) -> None:
    """The net's file, and what it must compute, into the folder."""
    program = lower(variant, runtime)
    program.save(folder / f"{variant.name}.pte")
    write_record(variant, folder)
    if variant.net.config == "external":
        program.write_tensor_data_to_file(folder)
        (folder / f"{DEFAULT_NAME}.ptd").rename(folder / f"{variant.name}.ptd")


def lower(variant: Variant, runtime: str | None = None) -> Any:
    model, net, inputs = variant.model(), variant.net, variant.calls()[0]
    if variant.quantize is not None:
        return edgewise.compile(
            model,
            inputs,
            quantize=variant.quantize,
            calibration=variant.calls() if variant.quantize == "int8" else None,
            group_size=32 if variant.quantize.startswith("int4") else None,
            dynamic_shapes=net.dynamic,
            runtime=runtime,
            verbose=False,
        )
    modules = model if isinstance(model, dict) else {"forward": model}
    with torch.no_grad():
        programs = {
            name: torch.export.export(module, inputs, dynamic_shapes=net.dynamic)
            for name, module in modules.items()
        }
    edge = edgewise.to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
    external = net.config == "external"
    return edge.to_executorch(ExecutorchBackendConfig(external_constants=external, runtime=runtime))


def run_all(folder: Path) -> list[dict[str, str]]:
    """Every file of a release on this project's runtime, as `worker.py run` tells it."""
    files = sorted(folder.glob("*.pte"))
    results = in_children([partial(run_file, pte) for pte in files])
    return [
        {"name": pte.stem, "how": "here", "result": result, "detail": detail}
        for pte, (result, detail) in zip(files, results, strict=True)
    ]


def run_file(pte: Path) -> tuple[str, str]:
    """Every call of the file's record, once."""
    record = torch.load(pte.with_suffix(".pt"), weights_only=True)
    data = pte.with_suffix(".ptd")
    program = Runtime.get().load_program(pte, data_path=data if data.exists() else None)
    methods: dict[str, Any] = {}
    worst = 0.0
    for call in record["calls"]:
        name = call["method"]
        if name not in methods:
            methods[name] = program.load_method(name)
        found = methods[name].execute(list(call["inputs"]))
        outputs = [_tensor(y, want) for y, want in zip(found, call["outputs"], strict=True)]
        worst = max(worst, compare(outputs, call["outputs"]))
    return ("ok" if worst <= record["tolerance"] else "wrong"), f"{worst:.2g}"


def _tensor(y: Any, want: Any) -> Any:
    if getattr(want, "dtype", None) == torch.bfloat16 and y.dtype == "float32":
        return torch.from_numpy(y.copy()).bfloat16()  # what numpy has without ml_dtypes
    if getattr(y, "dtype", None) == "bfloat16":
        return torch.from_numpy(y.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(y.copy()) if hasattr(y, "shape") else y
