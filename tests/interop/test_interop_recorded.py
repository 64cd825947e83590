"""Small files that releases of ExecuTorch lowered (`matrix.py --record`) compute here what eager
PyTorch did, and are said to run on the release that made them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgewise.inspect.needs import beyond, needs_of
from edgewise.releases import target_of

sys.path.insert(0, str(Path(__file__).parent / "releases"))
from ours import run_file

pytestmark = pytest.mark.matrix

RECORDED = Path(__file__).parents[1] / "data" / "releases"
FILES = sorted(RECORDED.glob("*/*.pte"))
RELEASES = ("1.0.1", "1.1.0", "1.2.0", "1.3.1", "1.4.1", "1.5.1")


def test_each_release_has_files() -> None:
    for release in RELEASES:
        assert sum(file.parent.name == release for file in FILES) >= 10
    assert sum(file.stat().st_size for file in RECORDED.rglob("*.p*")) < 1_500_000


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_recorded_file_runs(file: Path) -> None:
    result, detail = run_file(file)
    assert result == "ok", detail
    target = target_of(f"executorch>={file.parent.name}")
    assert beyond(needs_of(file.read_bytes()), target) == []


def test_packed_embeddings_and_branches_are_recorded() -> None:
    names = {file.stem for file in FILES}
    assert {"bag_4", "bag_8", "cond"} <= names
