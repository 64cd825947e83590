"""The runtime's import: no torch, and soon done."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_imports_no_torch(add_pte: bytes, tmp_path: object) -> None:
    path = f"{tmp_path}/add.pte"
    with open(path, "wb") as file:
        file.write(add_pte)
    loaded = run(
        "import sys, numpy as np, edgewise.runtime as r\n"
        f"x = np.ones((2, 3), np.float32); y = r.load({path!r})(x, x)\n"
        "assert (y == 2).all()\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ).split()
    assert "numpy" in loaded
    assert not {"torch", "torchao", "flatbuffers", "executorch"} & set(loaded)


def test_no_message_at_exit(add_pte: bytes, tmp_path: object) -> None:
    path = f"{tmp_path}/add.pte"
    with open(path, "wb") as file:
        file.write(add_pte)
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import numpy as np, edgewise.runtime as r\n"
            f"model = r.load({path!r}); x = np.ones((2, 3), np.float32); y = model(x, x)\n"
            "r.register_backend('Late', lambda *a: None)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
