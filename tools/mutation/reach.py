"""Which test runs which line: a pytest plugin that notes it, and what is asked of its notes.

`python -m pytest -p mutation.reach --reach NOTES --reach-of FILE ...` writes NOTES as JSON. The
files are compiled with a note before each statement of each function. What runs when they are
imported, such as a table's rows, belongs to all tests; what a test runs in another process to none.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

_NOTE = "__reached__"
_ENOUGH = 300.0
"""Seconds of tests for one mutant; only one that survives takes them all."""


@dataclass(frozen=True)
class Reach:
    """Notes of one run. tests: [seconds, {file: lines}] of each, by its name for pytest.
    imported: of functions, {file: lines} that ran as a file was imported."""

    tests: dict[str, tuple[float, dict[str, list[int]]]]
    imported: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> Reach:
        """As the plugin wrote them."""
        return Reach(**json.loads(path.read_text()))

    def of(self, path: Path, source: str, number: int) -> list[str]:
        """The tests that run the line, the shortest first; of one that runs at import, all.

        Those that run other lines of the file come before the rest; of a line that runs at import
        the suite's first file comes before, which may read what the line defines. At most five
        minutes of them.
        """
        lines = _statement(ast.parse(source), number)
        if lines.intersection(self.imported.get(str(path), ())):
            lines = set()
        reached = [
            (seconds, test)
            for test, (seconds, files) in self.tests.items()
            if not lines or lines.intersection(files.get(str(path), ()))
        ]
        near = {test for test, (_, files) in self.tests.items() if str(path) in files}
        first = "" if lines else next(iter(self.tests)).partition("::")[0]
        ordered = sorted(
            reached, key=lambda r: (not (first and r[1].startswith(first)), r[1] not in near, *r)
        )
        ends = accumulate(seconds for seconds, _ in ordered)
        return [test for (_, test), end in zip(ordered, ends, strict=True) if end <= _ENOUGH]


def _statement(tree: ast.Module, number: int) -> set[int]:
    """The lines of the innermost statement of a function there; of an `if`, its condition's."""
    found: set[int] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function:
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
                if node.lineno <= number <= max(last, node.lineno):
                    found = {node.lineno}
    return found


class _Noted:
    """What notes of the sources call. now: of the test that runs; imported: while a file is."""

    def __init__(self) -> None:
        self.now: set[tuple[str, int]] = set()
        self.imported: set[tuple[str, int]] = set()
        self.importing = 0

    def add(self, line: tuple[str, int]) -> None:
        (self.imported if self.importing else self.now).add(line)


def _by_file(lines: set[tuple[str, int]]) -> dict[str, list[int]]:
    files: dict[str, list[int]] = {}
    for name, line in sorted(lines):
        files.setdefault(name, []).append(line)
    return files


@dataclass(eq=False)  # pytest keeps plugins in sets
class _Plugin:
    """Notes the lines of each test as it runs."""

    notes: Path
    root: Path
    files: set[str]
    noted: _Noted = field(default_factory=_Noted)
    shared: dict[pytest.FixtureDef[Any], set[tuple[str, int]]] = field(default_factory=dict)
    """What ran to set up each fixture that several tests have."""
    tests: dict[str, tuple[float, dict[str, list[int]]]] = field(default_factory=dict)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of a file that is watched: what loads it with notes."""
        if not name.startswith("edgewise"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not self._watched(spec.origin):
            return None
        spec.loader = _Loader(name, spec.origin, self._name(spec.origin), self.noted)
        return spec

    def _watched(self, origin: str) -> bool:
        return self._name(origin) in self.files

    def _name(self, origin: str) -> str:
        path = Path(origin).resolve()
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Begins a test's notes."""
        self.noted.now.clear()
        result = yield
        for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            for fixture in fixtures:
                self.noted.now |= self.shared.get(fixture, set())
        seconds = self.tests.get(item.nodeid, (0.0, {}))[0]
        self.tests[item.nodeid] = (seconds, _by_file(self.noted.now))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Notes what is set up once for all tests that have it, whichever runs first."""
        before = set(self.noted.now)
        self.noted.now.clear()
        result = yield
        if fixturedef.scope != "function":
            self.shared.setdefault(fixturedef, set()).update(self.noted.now)
        self.noted.now |= before
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up set-up, test and clean-up; what was skipped is not worth a run."""
        seconds, files = self.tests.get(report.nodeid, (0.0, {}))
        self.tests[report.nodeid] = (seconds + report.duration, files)

    def pytest_sessionfinish(self) -> None:
        """Writes the notes."""
        imported = _by_file(self.noted.imported)
        self.notes.write_text(json.dumps({"tests": self.tests, "imported": imported}))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, short: str, noted: _Noted) -> None:
        super().__init__(name, path)
        self._short, self._noted = short, noted

    def get_code(self, fullname: str) -> CodeType:
        """Compiled each time: what is stored has no notes, or another's."""
        tree = ast.parse(Path(self.path).read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                function.body = _noted(function.body, self._short, first=True)
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        setattr(module, _NOTE, self._noted)
        self._noted.importing += 1
        try:
            super().exec_module(module)
        finally:
            self._noted.importing -= 1


def _noted(body: Sequence[ast.stmt], name: str, *, first: bool = False) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for i, statement in enumerate(body):
        for part in ("body", "orelse", "finalbody"):
            inner = getattr(statement, part, None)
            if inner and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                setattr(statement, part, _noted(inner, name))
        for handler in getattr(statement, "handlers", ()):
            handler.body = _noted(handler.body, name)
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (first and i == 0 and text):
            note = ast.parse(f"{_NOTE}.add(({name!r}, {statement.lineno}))").body[0]
            found.append(ast.copy_location(note, statement))
        found.append(statement)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the notes go, and of which files they are."""
    parser.addoption("--reach", type=Path)
    parser.addoption("--reach-of", action="append", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Before any file of the project is imported."""
    notes = config.getoption("--reach")
    if notes is None:
        return
    files = set(config.getoption("--reach-of"))
    plugin = _Plugin(notes, Path(str(config.rootpath)), files)
    sys.meta_path.insert(0, plugin)
    config.pluginmanager.register(plugin)
