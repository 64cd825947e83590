"""Pages that are made from tables are up to date."""

import subprocess
import sys
from pathlib import Path

from edgewise.backends.ethosu.lowering.document import markdown as ethosu_markdown
from edgewise.backends.neutron.lowering.document import markdown as neutron_markdown
from edgewise.backends.xnnpack.lowering.document import markdown
from edgewise.compat.document import markdown as compat_markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_operator_table_is_fresh() -> None:
    written = (DOCS / "xnnpack-operators.md").read_text()
    assert written == markdown(), (
        "stale: run python -m edgewise.backends.xnnpack.lowering.document "
        "> docs/xnnpack-operators.md"
    )


def test_runtime_operator_table_is_fresh() -> None:
    written = (DOCS / "operators.md").read_text()
    # In a process of its own: other tests add kernels to this one's.
    command = [sys.executable, "-m", "edgewise.emit.document"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert written == made, "stale: run python -m edgewise.emit.document > docs/operators.md"


def test_ethosu_operator_table_is_fresh() -> None:
    written = (DOCS / "ethosu-operators.md").read_text()
    assert written == ethosu_markdown(), (
        "stale: run python -m edgewise.backends.ethosu.lowering.document > docs/ethosu-operators.md"
    )


def test_neutron_operator_table_is_fresh() -> None:
    written = (DOCS / "neutron-operators.md").read_text()
    assert written == neutron_markdown(), (
        "stale: run python -m edgewise.backends.neutron.lowering.document "
        "> docs/neutron-operators.md"
    )


def test_table_of_import_paths_is_fresh() -> None:
    written = (DOCS / "compat-imports.md").read_text()
    assert written == compat_markdown(), (
        "stale: run python -m edgewise.compat.document > docs/compat-imports.md"
    )
