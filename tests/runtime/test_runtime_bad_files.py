"""Damaged files: refused with an error of the runtime's, or run; never a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.runtime import InvalidProgramError, Runtime, Verification

WORKER = Path(__file__).with_name("bad_files_worker.py")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", ""),
        (lambda data: b"\0", ""),
        (lambda data: data[:3], ""),
        (lambda data: data[:8], ""),
        (lambda data: data[:32], ""),
        (lambda data: data[:100], ""),
        (lambda data: data[: len(data) // 2], ""),
        (lambda data: bytes(len(data)), ""),
        (lambda data: data[:4] + b"XX12" + data[8:], "ET"),
        (lambda data: b"PK\3\4" + bytes(100), ""),
        (lambda data: b"text, not a program. " * 20, ""),
        (lambda data: b"\xff" * len(data), ""),
    ],
)
def test_no_program(add_pte: bytes, tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    data = damage(add_pte)
    path = tmp_path / "bad.pte"
    path.write_bytes(data)
    for source in (data, path):
        for verification in Verification:
            with pytest.raises(InvalidProgramError, match=rf"(?s)^\[.*{message}"):
                Runtime.get().load_program(source, verification=verification)


@pytest.mark.parametrize("kind", ["truncated", "flipped", "head"])
@pytest.mark.parametrize("file", ["add_pte", "two_methods_pte", "delegated_pte"])
def test_damaged_programs(
    file: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = tmp_path / "whole.pte"
    path.write_bytes(request.getfixturevalue(file))
    count = 200 if kind == "truncated" else 400
    result = subprocess.run(
        [sys.executable, str(WORKER), str(path), kind, "0", str(count)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, "\n".join(result.stderr.splitlines()[-12:])
    ran, refused = map(int, result.stdout.split())
    assert ran + refused == count
    assert refused > 0
