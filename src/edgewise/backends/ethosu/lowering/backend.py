"""The ahead-of-time half of the Ethos-U backend: a partition becomes an NPU program."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from torch.export import ExportedProgram

from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.estimating import estimates
from edgewise.backends.ethosu.lowering.lower import build
from edgewise.backends.ethosu.lowering.trial import compiled, refusal
from edgewise.backends.ethosu.lowering.vela import VelaRefusal
from edgewise.backends.ethosu.lowering.verify import LOWERED
from edgewise.backends.ethosu.payload import to_bytes
from edgewise.partition.spec import (
    BackendDetails,
    CompileSpec,
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
            to_bytes(made.program), estimates=estimates(made, graph.origins, spec)
        )


def _folder(spec: EthosUCompileSpec, tosa: bytes) -> Path | None:
    """Where artifacts of this partition go: named by its contents."""
    if spec.path_for_intermediates is None:
        return None
    name = hashlib.sha256(tosa).hexdigest()[:12]
    folder = Path(spec.path_for_intermediates) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
