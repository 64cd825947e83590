"""Whole models with the runtime's fused kernels between XNNPACK's operators, and without."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.runtime import Runtime


class Block(nn.Module):
    """A residual block as in ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.second(self.norm(self.first(x)).relu()) + x).relu()


class Encoder(nn.Module):
    """Self-attention and a wide layer, as in vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
        self.wide = nn.Linear(256, 1024)
        self.narrow = nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


@pytest.mark.parametrize("own_kernels", [True, False])
@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (lambda: Block(32), (1, 32, 29, 30)),
        (lambda: nn.Sequential(Block(64), nn.Conv2d(64, 128, 3), Block(128)), (2, 64, 14, 15)),
        (Encoder, (1, 197, 256)),
    ],
    ids=["block", "blocks", "encoder"],
)
def test_as_near_to_float64_as_eager(build, sizes: tuple[int, ...], own_kernels: bool) -> None:
    torch.manual_seed(0)
    model = build().eval()
    x = torch.randn(*sizes)
    data = edgewise.compile(model, (x,), backend="xnnpack").buffer
    program = Runtime.get().load_program(data, threads=2, own_kernels=own_kernels)
    (y,) = program.load_method("forward").execute([x])
    with torch.no_grad():
        expected = model.double()(x.double()).numpy()
    # Sums of some thousand products, each within 2^-24.
    assert np.abs(y - expected).max() <= 3e-6 * np.abs(expected).max()
