"""Small files that releases of ExecuTorch lowered (`matrix.py --record`) compute here what eager
PyTorch did, or are said not to run here, and are said to run on the release that made them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgewise.inspect.needs import beyond, needs_of, runs_on
from edgewise.releases import target_of
from edgewise.runtime.errors import UnsupportedError

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
    needs = needs_of(file.read_bytes())
    assert beyond(needs, target_of(f"executorch>={file.parent.name}")) == []
    if all(need.is_ours for need in needs):
        result, detail = run_file(file)
        assert result == "ok", detail
    else:
        with pytest.raises(UnsupportedError):
            run_file(file)


def test_what_only_a_later_release_runs_is_told() -> None:
    needs = needs_of((RECORDED / "1.5.1" / "linear_bfloat16.pte").read_bytes())
    assert [str(n) for n in needs] == ["bfloat16 in XNNPACK (from 1.5 on)"]
    assert runs_on(needs) == "ExecuTorch 1.5 and later, edgewise"


def test_packed_embeddings_and_branches_are_recorded() -> None:
    names = {file.stem for file in FILES}
    assert {"bag_4", "bag_8", "cond"} <= names
