"""Every Python block of the pages on control flow and custom operators runs, in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["control-flow.md", "custom-operators.md"])
def test_blocks_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    module = ModuleType(page.replace("-", "_").removesuffix(".md"))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # torch looks functions up there
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec"), module.__dict__)
