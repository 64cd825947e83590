"""EDGEWISE_CPU: what this CPU would compute if it had fewer vector instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.runtime import _native

CHILD = """
import sys
import numpy as np
from edgewise.runtime import Runtime, _native
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
np.save(sys.argv[3], method.execute([np.load(sys.argv[2])])[0])
print(_native.cpu_level())
"""


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


def run(level: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, *(str(a) for a in arguments)],
        env=os.environ | {"EDGEWISE_CPU": level},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def files(make_pte: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("level")
    torch.manual_seed(0)
    net = Net().eval()
    x = torch.randn(1, 3, 32, 32)
    (folder / "net.pte").write_bytes(make_pte(net, (x,), partitioner=[XnnpackPartitioner()]))
    np.save(folder / "x.npy", x.numpy())
    with torch.no_grad():
        np.save(folder / "right.npy", net.double()(x.double()).numpy())
    return folder


@pytest.mark.parametrize("level", _native.cpu_levels())
def test_each_level_computes_the_same(level: str, files: Path, tmp_path: Path) -> None:
    done = run(level, files / "net.pte", files / "x.npy", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == level
    # A float16 may round to its neighbour.
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.load(files / "right.npy"), atol=5e-4)


@pytest.mark.parametrize("level", ["avx9", "AVX2"])
def test_a_level_that_there_is_not_is_refused(level: str, files: Path, tmp_path: Path) -> None:
    done = run(level, files / "net.pte", files / "x.npy", tmp_path / "y.npy")
    assert done.returncode != 0
    names = ", ".join(_native.cpu_levels())
    assert (
        f"[cpu] EDGEWISE_CPU must be a level that this CPU has: {names}; got '{level}'; "
        "try one of them, or unset it"
    ) in done.stderr
