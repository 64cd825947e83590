"""Pages that are made from tables are up to date."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from edgewise.compat.document import markdown as compat_markdown

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("backend", ["ethosu", "neutron", "xnnpack"])
def test_operator_table_is_fresh(backend: str) -> None:
    made = import_module(f"edgewise.backends.{backend}.lowering.document").DOCUMENT.markdown()
    page = f"{backend}-operators.md"
    assert (DOCS / page).read_text() == made, (
        f"stale: run python -m edgewise.backends.{backend}.lowering.document > docs/{page}"
    )


def test_runtime_operator_table_is_fresh() -> None:
    written = (DOCS / "operators.md").read_text()
    # In a process of its own: other tests add kernels to this one's.
    command = [sys.executable, "-m", "edgewise.emit.document"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert written == made, "stale: run python -m edgewise.emit.document > docs/operators.md"


def test_table_of_import_paths_is_fresh() -> None:
    written = (DOCS / "compat-imports.md").read_text()
    assert written == compat_markdown(), (
        "stale: run python -m edgewise.compat.document > docs/compat-imports.md"
    )


def test_table_of_layers_is_that_of_the_import_contract() -> None:
    page = (DOCS / "architecture.md").read_text().partition("## The layers")[2]
    rows = re.findall(r"^\| (`.*?`) \|", page.partition("\n## ")[0], re.MULTILINE)
    contracts = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["name"] == "layers"
    )
    assert [sorted(re.findall(r"`(.*?)`", row)) for row in rows] == [
        sorted(layer.split(" | ")) for layer in layers
    ]
