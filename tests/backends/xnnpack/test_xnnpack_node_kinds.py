"""What follows from the declarations of node kinds in other languages is up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from edgewise.backends.xnnpack.node_kinds import NODE_KINDS, Bounds, NodeKind, TypeRule
from edgewise.backends.xnnpack.payload import KINDS

ROOT = Path(__file__).parents[3]
GENERATED = runpy.run_path(str(ROOT / "tools/generate_node_kinds.py"))["files"]()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run tools/generate_node_kinds.py"


@pytest.mark.parametrize("kind", NODE_KINDS, ids=lambda kind: kind.name)
def test_declarations_agree_with_themselves(kind: NodeKind) -> None:
    fields = KINDS[kind.name].__dataclass_fields__  # type: ignore[attr-defined]
    assert list(fields) == list(kind.layout.fields)
    assert {*kind.input_fields, *kind.unused_fields, *kind.layout.outputs} <= set(fields)
    assert set(kind.layout.open_sizes) <= set(fields)
    assert bool(kind.operator) == (kind.rule in (TypeRule.UNARY, TypeRule.BINARY))
    if kind.rule == TypeRule.FILTERED:
        assert kind.input_fields[1:] == ("filter_id", "bias_id")
        assert kind.bounds == Bounds.ALWAYS
