"""The peer's files: lowering there takes seconds, so each is made once a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


@pytest.fixture(scope="session")
def peer_pte(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """`peer_pte(name, program, delegate=True) -> bytes`: lowered by ExecuTorch."""
    folder = tmp_path_factory.mktemp("peer")

    def make(name: str, program: torch.export.ExportedProgram, delegate: bool = True) -> bytes:
        path = folder / f"{name}-{'xnnpack' if delegate else 'portable'}.pte"
        if not path.exists():
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower

            partitioner = [XnnpackPartitioner()] if delegate else []
            edge = to_edge_transform_and_lower(program, partitioner=partitioner)
            path.write_bytes(edge.to_executorch().buffer)
        return path.read_bytes()

    return make
