"""EDGEWISE_CPU: what this CPU would compute if it had fewer vector instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import lesser_cpu
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.runtime import _native


class Net(torch.nn.Module):
    """What fused kernels, small loops and portable kernels compute."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.expand = torch.nn.Conv2d(16, 64, 1)
        self.depthwise = torch.nn.Conv2d(64, 64, 5, padding=2, groups=64)
        self.project = torch.nn.Conv2d(64, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        inner = F.hardswish(self.depthwise(F.relu6(self.expand(x))))
        x = x + self.project(inner)
        return torch.erf(x.half().float().transpose(2, 3)).sigmoid()


Made = tuple[bytes, torch.Tensor, np.ndarray]


@pytest.fixture(scope="module")
def made(make_pte: Callable[..., bytes]) -> Made:
    """The program, its input, and what is right."""
    torch.manual_seed(0)
    net = Net().eval()
    x = torch.randn(1, 3, 32, 32)
    pte = make_pte(net, (x,), partitioner=[XnnpackPartitioner()])
    with torch.no_grad():
        return pte, x, net.double()(x.double()).numpy()


@pytest.mark.parametrize("level", _native.cpu_levels())
def test_each_level_computes_the_same(level: str, made: Made, tmp_path: Path) -> None:
    pte, x, right = made
    (y,) = lesser_cpu.run(level, tmp_path, [(pte, [x.numpy()])])  # which asserts the level
    # A float16 may round to its neighbour.
    np.testing.assert_allclose(y, right, atol=5e-4)


@pytest.mark.parametrize("level", ["avx9", "AVX2"])
def test_a_level_that_there_is_not_is_refused(level: str, made: Made, tmp_path: Path) -> None:
    pte, x, _ = made
    lesser_cpu.write(tmp_path, [(pte, [x.numpy()])])
    done = lesser_cpu.start(level, tmp_path)
    assert done.returncode != 0
    names = ", ".join(_native.cpu_levels())
    assert (
        f"[cpu] EDGEWISE_CPU must be a level that this CPU has: {names}; got '{level}'; "
        "try one of them, or unset it"
    ) in done.stderr
