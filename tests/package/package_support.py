"""Building projects that use the installed package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "dev"
LIBRARIES = ("edgewise_runtime", "edgewise_kernels", "edgewise_xnnpack_backend", "edgewise_c")


def run(*command: object) -> str:
    """The command's standard output; it must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def configure_and_build(source: Path, build: Path, prefix: Path, *options: str) -> Path:
    """The folder of what CMake made of a project that uses the installed package."""
    run(
        "cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", *options
    )
    run("cmake", "--build", build)
    return build


def top(output: str) -> list[tuple[int, float]]:
    """What the example programs print: places and values."""
    return [(int(place), float(value)) for place, value in map(str.split, output.splitlines())]


def expected_top(model: torch.nn.Module, image: torch.Tensor) -> Sequence[tuple[int, float]]:
    """The five largest outputs of the model."""
    with torch.no_grad():
        values, places = model(image).reshape(-1).double().topk(5)
    return list(zip(places.tolist(), values.tolist(), strict=True))
