"""Every code block of the README and of docs/ runs, in order, in an empty folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs_blocks import (
    NATIVE,
    NATIVE_PAGES,
    NEEDS_LIBRARY,
    NOT_CODE,
    PAGES,
    ROOT,
    blocks,
    run_python,
    run_shell,
)
from docs_preludes import PRELUDES

RUN = {"python", "sh"}


def test_languages_are_known() -> None:
    found = {(page.name, b.line, b.language) for page in PAGES for b in blocks(page)}
    unknown = sorted(each for each in found if each[2] not in RUN | NATIVE | NOT_CODE)
    assert not unknown, "python and sh are run, text is not: which one is it?"
    assert {page for page, _, language in found if language in NATIVE} == NATIVE_PAGES


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if page.name not in NEEDS_LIBRARY and any(b.language in RUN for b in blocks(page))
    ],
    ids=lambda page: page.stem,
)
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))  # for examples/models
    module = ModuleType("docs_" + page.stem.replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # torch looks functions up there
    exec(PRELUDES.get(page.name, ""), module.__dict__)
    for block in blocks(page):
        if block.language == "python":
            run_python(page, block, module.__dict__)
        elif block.language == "sh":
            run_shell(page, block)
