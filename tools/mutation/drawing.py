"""Draws mutants of a suite's files, the same ones for the same seed."""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutation.rules import BOTH, NATIVE, PYTHON
from mutation.suites import ROOT, Suite

_RULES = {".py": [*BOTH, *PYTHON], ".cpp": [*BOTH, *NATIVE]}
# Lines without behaviour of their own, or whose text only a person reads.
_IGNORED = {
    ".py": [r"^\s*#", r"^\s*(from|import|@|raise|assert|def|class)\b", r"^\s*[\"'f]"],
    ".cpp": [
        r"^\s*//",
        r"^\s*#",
        r"^\s*(namespace|using|template|struct|static_assert)\b",
        r"^\s*}",
    ],
}


@dataclass(frozen=True)
class Mutant:
    """One line of a file, written differently. number: of the line, from 1."""

    path: Path
    number: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines above it come and go."""
        return str(self.path), self.before.strip(), self.after.strip()

    def text(self) -> str:
        """The whole file with the fault."""
        lines = (ROOT / self.path).read_text().splitlines(keepends=True)
        lines[self.number - 1] = self.after
        return "".join(lines)

    def diff(self) -> str:
        """The fault as a person reads it."""
        return f"{self.path}:{self.number}\n  - {self.before.strip()}\n  + {self.after.strip()}"


def draw(suite: Suite, seed: int) -> Iterator[Mutant]:
    """A mutant of each line that can have one, the lines of all files shuffled."""
    chance = random.Random(seed)
    lines = {path: (ROOT / path).read_text().splitlines(keepends=True) for path in suite.paths()}
    places = [(path, i) for path, found in lines.items() for i in range(len(found))]
    chance.shuffle(places)
    for path, i in places:
        mutants = _mutants(path, i + 1, lines[path][i])
        chance.shuffle(mutants)
        possible = _possible_python if path.suffix == ".py" else _possible_native
        mutant = next((m for m in mutants if possible(m)), None)
        if mutant is not None:
            yield mutant


def _mutants(path: Path, number: int, line: str) -> list[Mutant]:
    if any(re.search(pattern, line) for pattern in _IGNORED[path.suffix]):
        return []
    text = line.rstrip("\n")
    found = [
        text[: match.start()] + match.expand(replacement) + text[match.end() :]
        for pattern, replacement in _RULES[path.suffix]
        for match in re.finditer(pattern, text)
    ]
    return [Mutant(path, number, line, after + "\n") for after in dict.fromkeys(found)]


def _possible_native(mutant: Mutant) -> bool:
    """Whether the code differs; that it compiles is seen by compiling it."""
    lines = (ROOT / mutant.path).read_text().splitlines()
    return not _ends_a_message(lines, mutant.number) and _without_comment(
        mutant.before
    ) != _without_comment(mutant.after)


def _ends_a_message(lines: list[str], number: int) -> bool:
    """Whether the line has values of an error's text, which begins on a line above it."""
    for line in reversed(lines[max(0, number - 6) : number - 1]):
        if re.search(r"[;{}]\s*$", line):
            return False
        if re.search(r"\b(fail|error|corrupt|unsupported)\w*\(", line, re.IGNORECASE):
            return True
    return False


def _possible_python(mutant: Mutant) -> bool:
    """Whether it is Python, and another program."""
    source = (ROOT / mutant.path).read_text()
    if mutant.number in _lines_of_texts(source):
        return False
    try:
        return ast.dump(ast.parse(mutant.text())) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _lines_of_texts(source: str) -> set[int]:
    """The lines of docstrings, annotations and messages."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.AnnAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _without_comment(line: str) -> str:
    """Without strings either, which are messages."""
    return re.sub(r"\s+", "", re.sub(r"//.*|/\*.*?\*/|\"[^\"]*\"", "", line))


def changed_words(mutant: Mutant) -> str:
    """What differs in the line, for a table."""
    matcher = difflib.SequenceMatcher(None, mutant.before, mutant.after)
    return " ".join(
        f"{mutant.before[a:b]!r} -> {mutant.after[c:d]!r}"
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    )
