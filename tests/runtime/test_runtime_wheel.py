"""The runtime-only wheel: what it leaves out, and that the rest runs programs without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    tomllib = pytest.importorskip("tomli")


def left_out() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    overrides = settings["tool"]["scikit-build"]["overrides"]
    (patterns,) = [o["wheel"]["exclude"] for o in overrides if "exclude" in o.get("wheel", {})]
    return list(patterns)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("installed")
    for path in SOURCES.rglob("*"):
        name = path.relative_to(SOURCES).as_posix()
        if path.is_dir() or "__pycache__" in name:
            continue
        if not any(fnmatch(name, pattern.replace("**", "*")) for pattern in left_out()):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return folder


def run(installed: Path, code: str) -> str:
    # Python's own finders are classes; an editable installation's is not, and would come first.
    blocked = (
        "import sys; sys.modules['torch'] = None\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]\n"
    )
    env = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", blocked + code]
    done = subprocess.run(command, env=env, cwd=installed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_pattern_leaves_something_out() -> None:
    names = [p.relative_to(SOURCES).as_posix() for p in SOURCES.rglob("*.py")]
    for pattern in left_out():
        assert any(fnmatch(name, pattern.replace("**", "*")) for name in names), pattern


def test_programs_run(installed: Path, tmp_path: Path) -> None:
    import torch

    import edgewise

    x = torch.rand(2, 4)
    model = torch.nn.Linear(4, 3).eval()
    program = edgewise.compile(model, (x,), verbose=False)
    program.save(tmp_path / "model.pte", record=True)
    code = (
        "import numpy, edgewise\n"
        f"model = edgewise.load({str(tmp_path / 'model.pte')!r})\n"
        f"print(model(numpy.array({x.tolist()}, numpy.float32)).tolist())\n"
        f"assert edgewise.__file__.startswith({str(installed)!r})\n"
    )
    found = torch.tensor(json.loads(run(installed, code)))
    torch.testing.assert_close(found, model(x).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("command", ["inspect", "explain", "run"])
def test_commands_run(installed: Path, tmp_path: Path, command: str) -> None:
    pytest.importorskip("typer")
    import torch

    import edgewise

    edgewise.compile(torch.nn.Linear(4, 3).eval(), (torch.rand(2, 4),), verbose=False).save(
        tmp_path / "model.pte", record=True
    )
    code = (
        "from edgewise.cli import main\n"
        f"raise SystemExit(main([{command!r}, {str(tmp_path / 'model.pte')!r}]))\n"
    )
    assert run(installed, code)


def test_lowering_says_that_it_is_not_there(installed: Path) -> None:
    code = "import edgewise\ntry:\n    edgewise.compile\nexcept ImportError as e:\n    print(e)\n"
    assert "only runs programs" in run(installed, code)
