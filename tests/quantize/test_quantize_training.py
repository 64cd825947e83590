"""Training with simulated rounding: the file computes what was simulated."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import disable_observer
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

from edgewise.backends.neutron import NeutronQuantizer
from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from examples.quantization_aware_training import main

NETS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(3, 6, 2, 2), nn.ReLU()),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Linear(16, 4)),
}


@pytest.mark.parametrize("bits", [8, 3])
@pytest.mark.parametrize("name", NETS)
def test_what_is_simulated_is_what_is_computed(name: str, bits: int) -> None:
    torch.manual_seed(0)
    model, x = NETS[name](), torch.randn(8, 3, 6, 6)
    most = 2 ** (bits - 1) - 1
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_qat=True, weight_qmin=-most, weight_qmax=most
    )
    quantizer = XNNPACKQuantizer().set_global(config)
    _trained_alike(model, quantizer, x)


def test_what_is_simulated_for_neutron() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 13), nn.GELU(), nn.Softmax(-1), nn.Linear(13, 4))
    _trained_alike(model, NeutronQuantizer(is_qat=True), torch.randn(8, 8))


def _trained_alike(model: nn.Module, quantizer: object, x: torch.Tensor) -> None:
    graph = torch.export.export(model, (x,)).module()
    prepared = prepare_qat_pt2e(graph, quantizer)
    optimizer = torch.optim.SGD(prepared.parameters(), 0.05)
    for _ in range(4):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    prepared(x)
    prepared.apply(disable_observer)
    with torch.no_grad():
        simulated = prepared(x)
        computed = convert_pt2e(copy.deepcopy(prepared))(x)
    step = float(simulated.max() - simulated.min()) / 255
    off = (simulated - computed).abs()
    assert float((off > step / 2).double().mean()) < 0.01  # ties
    assert float(off.max()) < 1.5 * step


def test_training_brings_accuracy_back(capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["--weight-bits", "2", "--steps", "150", "--epochs", "4"])
    assert found["QAT"] > found["PTQ"] + 0.2
    assert "digits, weights of 2 bits" in capsys.readouterr().out
