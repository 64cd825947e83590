"""The ahead-of-time half of the Ethos-U backend: a partition becomes an NPU program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from torch.export import ExportedProgram

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.lower import build
from edgewise.backends.ethosu.lowering.trial import compiled, refusal
from edgewise.backends.ethosu.lowering.vela import VelaRefusal
from edgewise.backends.ethosu.lowering.verify import LOWERED
from edgewise.backends.ethosu.payload import to_bytes
from edgewise.partition.spec import (
    BackendDetails,
    CompileSpec,
    Estimates,
    PartitionRefused,
    PreprocessResult,
)


class EthosUBackend(BackendDetails):
    """Id `EthosUBackend`, as in files of ExecuTorch."""

    backend_id: ClassVar[str] = "EthosUBackend"

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        spec = EthosUCompileSpec.from_list(compile_specs)
        graph = build(edge_program, spec.processor.family)
        LOWERED(graph)
        tosa = graph.serialize()
        folder = _folder(spec, tosa)
        if folder is not None:
            (folder / "graph.tosa").write_bytes(tosa)
        try:
            made = compiled(tosa, spec)
        except VelaRefusal as error:  # of a partition that another partitioner made
            raise PartitionRefused(refusal(spec, error)) from error
        if folder is not None:
            figures = asdict(made.figures)
            (folder / "vela.json").write_text(json.dumps(figures, indent=1) + "\n")
        return PreprocessResult(
            to_bytes(made.program), estimates=estimates(made.figures, graph.origins)
        )


def _folder(spec: EthosUCompileSpec, tosa: bytes) -> Path | None:
    """Where artifacts of this partition go: named by its contents."""
    if spec.path_for_intermediates is None:
        return None
    name = hashlib.sha256(tosa).hexdigest()[:12]
    folder = Path(spec.path_for_intermediates) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def estimates(figures: vela.VelaFigures, origins: Mapping[str, str]) -> Estimates:
    """Vela's figures, for the delegation report. origins: by tensor, the node it was made for."""
    known: dict[str, float] = {
        "cycles": figures.total_cycles,
        "NPU cycles": figures.npu_cycles,
        "MACs": figures.macs,
        "inferences per second": figures.inferences_per_second,
        "encoded weight bytes": figures.encoded_weight_bytes,
    }
    for name, memory in figures.memories.items():
        if memory.peak_bytes or memory.read_bytes or memory.written_bytes:
            known[f"{name} bytes used"] = memory.peak_bytes
            known[f"{name} bytes read"] = memory.read_bytes
            known[f"{name} bytes written"] = memory.written_bytes
    layers: list[dict[str, str | int]] = [
        {
            "name": layer.name,
            "operator": layer.operator,
            "cycles": layer.cycles,
            "NPU cycles": layer.npu_cycles,
            "MACs": layer.macs,
            "node": origins.get(layer.name, ""),
        }
        for layer in figures.layers
    ]
    return Estimates(f"Vela {vela.VERSION}", known, layers)
