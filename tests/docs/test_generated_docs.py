"""Pages that are made from tables are up to date."""

from pathlib import Path

from edgewise.backends.xnnpack.document import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_operator_table_is_fresh() -> None:
    written = (DOCS / "xnnpack-operators.md").read_text()
    assert written == markdown(), (
        "stale: run python -m edgewise.backends.xnnpack.document > docs/xnnpack-operators.md"
    )
