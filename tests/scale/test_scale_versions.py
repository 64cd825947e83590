"""Which sources decide on kept results: a change of these makes another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.scale import stages
from edgewise.scale.versions import _DECISIVE, _code_digest

SOURCES = {
    "format/file.py": True,
    "runtime/_native.so": True,
    "scale/models.py": True,
    "scale/sources.py": True,
    "scale/observers.py": True,
    "scale/shards.py": True,
    "scale/plan.py": False,
    "scale/ray_engine.py": False,
    "cli/app.py": False,
    "report/page.py": False,
}


@pytest.mark.parametrize(("source", "decides"), SOURCES.items())
def test_a_changed_source(source: str, decides: bool, tmp_path: Path) -> None:
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    before = _code_digest(tmp_path)
    (tmp_path / source).write_text("2")
    assert (_code_digest(tmp_path) != before) == decides


def test_modules_that_stages_use_decide() -> None:
    used = {
        value.__module__.rpartition(".")[2]
        for value in vars(stages).values()
        if getattr(value, "__module__", "").startswith("edgewise.scale.")
    }
    # What only keeps results, and watches over processes.
    assert {f"{name}.py" for name in used - {"store", "supervisor", "task"}} <= set(_DECISIVE)
