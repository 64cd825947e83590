"""The command `edgewise`, as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import edgewise


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgewise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"edgewise {edgewise.__version__}\n"
    for arguments in ((), ("--help",)):
        shown = run(*arguments)
        assert shown.returncode == 0
        assert "ethosu" in shown.stdout


def test_disassemble(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ethosu", reason="extra [ethosu]")
    model, x = torch.nn.Conv2d(3, 8, 3), (torch.randn(1, 3, 8, 8),)
    path = tmp_path / "model.pte"
    edgewise.compile(
        model, x, backend="ethos-u55-128", quantize="int8", calibration=[x], verbose=False
    ).save(path)
    shown = run("ethosu", "disassemble", str(path))
    assert shown.returncode == 0, shown.stderr
    for part in ("delegate 0:", "NPU_OP_CONV", "NPU_SET_KERNEL_HEIGHT_M1", "NPU_OP_STOP"):
        assert part in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("compiel",), 2, "No such command 'compiel'"),
        (("ethosu", "disassemble"), 2, "Missing argument 'FILE'"),
        (("ethosu", "disassemble", "missing.pte"), 1, "No such file"),
        (("ethosu", "disassemble", __file__), 1, "has no Ethos-U delegate"),
        (("llm", "run", "missing.pte", "--prompt-tokens", "1"), 1, "missing.pte"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], code: int, message: str) -> None:
    shown = run(*arguments)
    assert shown.returncode == code
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
