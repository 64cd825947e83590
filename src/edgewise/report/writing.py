"""The page's text: data, scripts and styles in one file."""

from __future__ import annotations

import errno
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgewise.files import write_text
from edgewise.report.page_data import program_data
from edgewise.report.policy import content_policy
from edgewise.report.subject import Subject

_SCRIPTS = (
    "vendor/dagre.min.js",
    "format.js",
    "model.js",
    "layout.js",
    "graph.js",
    "tree.js",
    "details.js",
    "charts.js",
    "accuracy.js",
    "npu.js",
    "sections.js",
    "main.js",
)
_LIVE = ("tensors.js", "run.js")
"""Of a page that can run its programs."""


def write(
    output: str | Path,
    programs: Sequence[str | Path | Subject] | str | Path | Subject,
    *,
    profiles: Sequence[str | Path | None] = (),
    comparisons: Sequence[str | Path | None] = (),
    title: str | None = None,
) -> Path:
    """Writes a page about one or several programs side by side; returns its path.

    programs: `.pte` files, or `Subject`s; one may be given alone. Of a file that was saved with
    its record (`program.save(path, record=True)`) all is told; of any other what it holds.
    profiles, comparisons: files for each program in turn, None for none (see `Subject.open`).
    """
    target = Path(output)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "[report] no such folder; try making it first", str(target.parent)
        )
    write_text(target, render(opened(programs, profiles, comparisons), title))
    return target


def opened(
    programs: Sequence[str | Path | Subject] | str | Path | Subject,
    profiles: Sequence[str | Path | None] = (),
    comparisons: Sequence[str | Path | None] = (),
) -> list[Subject]:
    """What `write` takes, read. ValueError, TypeError or OSError where that is not possible."""
    programs = [programs] if isinstance(programs, (str, Path, Subject)) else list(programs)
    if not programs:
        raise ValueError("[report] programs must be one or more files; got none; try 'model.pte'")
    for one in programs:
        if not isinstance(one, (str, Path, Subject)):
            raise TypeError(
                f"[report] programs must be files; got {type(one).__name__}; "
                f"try its save('model.pte', record=True), then 'model.pte'"
            )
    for name, given in (("profiles", profiles), ("comparisons", comparisons)):
        if len(given) > len(programs):
            raise ValueError(
                f"[report] {name} must be at most one for each program; "
                f"got {len(given)} for {len(programs)}"
            )
    subjects = []
    for number, one in enumerate(programs):
        profile = profiles[number] if number < len(profiles) else None
        comparison = comparisons[number] if number < len(comparisons) else None
        subjects.append(one if isinstance(one, Subject) else Subject.open(one, profile, comparison))
    return subjects


def render(
    subjects: Sequence[Subject],
    title: str | None = None,
    *,
    live: Mapping[str, Any] | None = None,
) -> str:
    """The page as text. live: where a served page finds the runtime and its programs."""
    name = title or ", ".join(subject.name for subject in subjects)
    data: dict[str, Any] = {
        "title": name,
        "programs": [program_data(subject) for subject in subjects],
    }
    if live is not None:
        data["live"] = live
    script = _scripts(live is not None)
    parts = {
        "POLICY": content_policy(script, live=live is not None),
        "TITLE": html.escape(name),
        "STYLE": _text("style.css"),
        "SCRIPT": script,
        "DATA": _embedded(data),
    }
    page = _text("index.html")
    for key, value in parts.items():
        before, _, after = page.partition(f"<!--{key}-->")
        page = before + value + after
    return page


def _embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


@cache
def _text(path: str) -> str:
    return (files("edgewise.report") / "page" / path).read_text(encoding="utf-8")


@cache
def _scripts(live: bool) -> str:
    parts = (*_SCRIPTS[:-1], *(_LIVE if live else ()), _SCRIPTS[-1])
    text = "\n".join(_script(path) for path in parts)
    return f'\n(function () {{\n"use strict";\n{text}\n}})();\n'


@cache
def _script(path: str) -> str:
    text = _text(path).replace("//# sourceMappingURL=dagre.min.js.map", "")
    if path.startswith("vendor/"):
        licence = _text(path.removesuffix(".min.js") + ".LICENSE").strip()
        return f"/*! {path}\n{licence}\n*/\n{text}"
    return text
