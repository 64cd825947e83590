"""The peer's Ethos-U files run in this project's simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ethosu", reason="extra [ethosu]")

import edgewise

pytestmark = [pytest.mark.peer, pytest.mark.slow]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1, stride=2),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 16, 3, padding=1, groups=16),
            torch.nn.ReLU6(),
            torch.nn.Conv2d(16, 24, 1),
            torch.nn.Hardswish(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(24, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(3 * self.layers(x), -1)


def lower(target: str, x: torch.Tensor) -> tuple[bytes, torch.nn.Module]:
    """The peer's file, and the quantized model that it was made from."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    spec = EthosUCompileSpec(target)
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    exported = torch.export.export(Net().eval(), (x,)).module(check_guards=False)
    prepared = prepare_pt2e(exported, quantizer)
    for _ in range(4):
        prepared(torch.randn_like(x))
    converted = convert_pt2e(prepared)
    edge = to_edge_transform_and_lower(
        torch.export.export(converted, (x,)), partitioner=[EthosUPartitioner(spec)]
    )
    return edge.to_executorch().buffer, converted


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_runs_the_peers_file(target: str, tmp_path: Path, capfd: Any) -> None:
    x = torch.randn(1, 3, 20, 20)
    pte, model = lower(target, x)
    loaded = edgewise.load(pte)
    delegates = [d.backend for d in loaded.metadata.delegates]
    assert delegates == ["EthosUBackend"]
    for _ in range(3):
        x = torch.randn_like(x)
        expected = model(x).numpy()
        # One step of the output, whose scale is that of a softmax: 1/256.
        np.testing.assert_allclose(loaded(x.numpy()), expected, rtol=0, atol=1.01 / 256)
        assert np.ptp(expected) > 10 / 256
