"""Code blocks of the pages, and how each kind is executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NOT_CODE = {"text", "json", "yaml", "js", "java", "{toctree}"}
"""Output, data, Sphinx's directives, and what tests/web runs in a browser, tests/java on a JVM."""
NATIVE = {"c", "cpp", "cmake"}
"""tests/package/test_package_pages.py builds and runs them against the installed package."""
NATIVE_PAGES = {"c.md", "cpp.md", "custom-operators.md", "native-backends.md", "runtime.md"}
"""Those that have some, and the only ones that may."""
NEEDS_LIBRARY = {"c.md"}
"""Pages whose Python needs the installed package: run there, too."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, and the line it starts at."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, those inside of lists included."""
    return list(_blocks(page.read_text().splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    begun: tuple[int, str, str] | None = None
    for number, line in enumerate(lines, 1):
        fence = re.fullmatch(r"(\s*)```(\S*)\s*", line)
        if fence is None:
            continue
        if begun is None:
            begun = (number, fence[1], fence[2])
        else:
            first, indent, language = begun
            text = "\n".join(inner.removeprefix(indent) for inner in lines[first : number - 1])
            yield Block(language, text, first)
            begun = None


def run_python(page: Path, block: Block, names: dict[str, object]) -> None:
    """Runs it with the names that the blocks before it left; errors show the page's lines."""
    source = "\n" * block.line + block.text
    exec(compile(source, str(page), "exec"), names)


def run_shell(page: Path, block: Block) -> None:
    """Runs it in the working directory, with this environment's commands."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{page.name}:{block.line}\n{done.stdout}\n{done.stderr}"
