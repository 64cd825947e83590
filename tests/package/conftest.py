"""The development files, installed once for all tests of the C++ and C package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from package_support import BUILD, LIBRARIES, run

from support import Fn, lower


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that was moved after it was made."""
    if not (BUILD / "build.ninja").exists():
        pytest.skip("the native build is not in build/dev: make native")
    folder = tmp_path_factory.mktemp("package")
    run("cmake", "--build", BUILD, "--target", *LIBRARIES)
    run("cmake", "--install", BUILD, "--component", "devel", "--prefix", folder / "first")
    (folder / "first").rename(folder / "edgewise")
    return folder / "edgewise"


@pytest.fixture(scope="session")
def library(prefix: Path) -> Path:
    """The shared library of the C interface."""
    (found,) = prefix.glob("lib*/**/libedgewise.so")
    return found


class Counter(torch.nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def scores(images: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (images.mean((2, 3)) @ weights).softmax(-1).cumsum(-1)


@pytest.fixture(scope="session")
def model() -> torch.nn.Module:
    """Delegated to XNNPACK but for its last operator, which is a kernel's."""
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 8, 3, stride=2)
    return torch.nn.Sequential(convolution, torch.nn.ReLU(), Fn(scores, weights=torch.randn(8, 10)))


@pytest.fixture(scope="session")
def image() -> torch.Tensor:
    return torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def files(
    tmp_path_factory: pytest.TempPathFactory, model: torch.nn.Module, image: torch.Tensor
) -> Path:
    """A folder with model.pte, input.bin, state.pte, written.pte and kinds.pte."""
    folder = tmp_path_factory.mktemp("models")
    lower(model, (image,)).save(folder / "model.pte")
    (folder / "input.bin").write_bytes(image.numpy().tobytes())
    lower(Counter(), (torch.zeros(2),)).save(folder / "state.pte")
    lower(Fn(lambda x: x.add_(1) * 2), (torch.zeros(2),)).save(folder / "written.pte")
    rows = torch.export.Dim("rows", min=1, max=4)
    lower(
        Fn(lambda x, n: (x * 2, n, None)),
        (torch.zeros(3, 2), 5),
        dynamic_shapes=(({0: rows}, None),),
    ).save(folder / "kinds.pte")
    return folder
