"""`make check` finds the tests of what changed."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "check", Path(__file__).resolve().parents[1] / "tools" / "check.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
check = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check)

# What changed | tests among those that are found.
CHANGED = {
    "a module": ("src/edgewise/passes.py", "tests/test_passes.py"),
    "a module of a package": (
        "src/edgewise/backends/xnnpack/passes/drop_dead.py",
        "tests/backends/xnnpack/test_xnnpack_passes.py",
    ),
    "by its name": ("src/edgewise/emit/needs.py", "tests/inspect/test_inspect_needs.py"),
    "a test": ("tests/test_files.py", "tests/test_files.py"),
}


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """Of what other tests left: finalizers that parse something make CPython 3.11's `ast.parse`
    fail if they run amid one ("AST constructor recursion depth mismatch")."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("changed", "test"), CHANGED.values(), ids=CHANGED)
def test_tests_of_what_changed(changed: str, test: str) -> None:
    assert test in check.tests_of([Path(changed)])


ROWS = "tests/backends/xnnpack/test_xnnpack_rows.py"
# A file | how it differs | names of cases.
DIFFERENCES = {
    "a definition": (
        "src/edgewise/backends/xnnpack/operators/elementwise.py",
        '@@ -99,0 +100 @@\n+_unary("cosh", "Cosh", aten.cosh.default)\n',
        ["cosh"],
    ),
    "what it is lowered to": (
        "src/edgewise/backends/xnnpack/operators/elementwise.py",
        "@@ -140 +140 @@ def _neg(to: Lowering, node: Node) -> None:\n+    to.b.copy()\n",
        ["neg"],
    ),
    "a case": (
        "tests/backends/xnnpack/xnnpack_cases.py",
        '@@ -47,0 +48 @@\n+    "cosh": {"": unary(torch.cosh)},\n',
        ["cosh"],
    ),
    "a comment": (
        "src/edgewise/backends/xnnpack/operators/elementwise.py",
        "@@ -1 +1 @@\n+# All of one operand.\n",
        None,
    ),
    "elsewhere": ("src/edgewise/passes.py", '@@ -1 +1 @@ def run\n+    "abs",\n', None),
}


@pytest.mark.parametrize(("path", "difference", "names"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_cases_of_what_changed(path: str, difference: str, names: list[str] | None) -> None:
    assert check.cases_of({Path(path): difference}).get(ROWS) == names


def test_native_tests_of_what_changed() -> None:
    pattern = check.native_tests_of([Path("native/kernels/activation.cpp"), Path("docs/index.md")])
    assert "/aten_relu$" in pattern.split("|")
    assert "/aten_abs$" not in pattern.split("|")
    assert check.native_tests_of([Path("native/core/program.cpp")]) == "^core[.]"
    assert check.native_tests_of([Path("src/edgewise/passes.py")]) == ""


def test_nothing_for_a_page() -> None:
    assert check.tests_of([Path("docs/index.md")]) == []


def test_what_pytest_was_not_through_with() -> None:
    told = "tests/a.py::test_one PASSED\ntests/b.py::test_two PASSED\n"
    assert check.through(["tests/a.py", "tests/b.py", "tests/c.py"], told) == 1
