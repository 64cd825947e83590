"""`edgewise report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import edgewise
from edgewise.cli import main


@pytest.fixture
def pte(tmp_path: Path) -> Path:
    path = tmp_path / "model.pte"
    edgewise.compile(torch.nn.Linear(4, 2), torch.zeros(1, 4), verbose=False).save(path)
    return path


def test_it_writes_a_page(pte: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = pte.with_name("page.html")
    assert main(["report", str(pte), str(pte), "-o", str(page), "--title", "Mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "page": str(page),
        "bytes": page.stat().st_size,
        "programs": [str(pte), str(pte)],
    }
    assert "<title>Mine</title>" in page.read_text()


def test_what_is_wrong_is_told(pte: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = pte.with_name("page.html")
    wrong = pte.with_name("profile.json")
    wrong.write_text("{}")
    assert main(["report", str(pte), "--profile", str(wrong), "-o", str(page)]) == 1
    assert "must have 'methods'" in capsys.readouterr().err
    assert main(["report", str(pte.with_name("no.pte"))]) == 1
    assert not page.exists()
