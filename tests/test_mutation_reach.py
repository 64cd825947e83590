"""Which tests the mutation tool runs for a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from mutation.reach import Reach  # noqa: E402

SOURCE = "LIMIT = 3\n\n\ndef f(x):\n    return x + LIMIT\n"
PATH = Path("rows.py")
RAN = {
    "docs.py::table": (7.0, {}),
    "other.py::far": (1.0, {}),
    "rows.py::slow": (298.0, {"rows.py": [5]}),
    "rows.py::quick": (0.1, {"rows.py": [5]}),
}


def test_a_line_of_a_function_has_the_tests_that_run_it() -> None:
    assert Reach(RAN).of(PATH, SOURCE, 5) == ["rows.py::quick", "rows.py::slow"]


def test_a_line_that_runs_at_import_has_the_first_file_first() -> None:
    """It may read what the line defines, as the generated pages do. Not all fit in five minutes."""
    assert Reach(RAN).of(PATH, SOURCE, 1) == ["docs.py::table", "rows.py::quick"]


def test_a_line_of_a_function_that_runs_at_import_counts_as_such() -> None:
    assert Reach(RAN, {"rows.py": [5]}).of(PATH, SOURCE, 5) == Reach(RAN).of(PATH, SOURCE, 1)


def test_lines_are_noted_by_test_or_as_imported(tmp_path: Path) -> None:
    """The plugin, in a process of its own: edgewise is imported as the tests are collected."""
    test = tmp_path / "test_one.py"
    test.write_text(
        "import pytest\nfrom edgewise.quantize.transposed import polyphase\n\n\n"
        "@pytest.fixture(scope='module')\ndef made():\n    return polyphase(lambda geometry: True)"
        "\n\n\ndef test_one(made) -> None:\n    assert made\n"
        "\n\ndef test_two(made) -> None:\n    assert made\n"
    )
    names = {name: f"src/edgewise/quantize/{name}.py" for name in ("transposed", "schemes")}
    watched = [f"--reach-of={path}" for path in names.values()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "mutation.reach",
        "-p",
        "no:cacheprovider",
    ]
    notes = tmp_path / "notes.json"
    subprocess.run(
        [*command, f"--rootdir={ROOT}", f"--reach={notes}", *watched, str(test)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
    )
    found = Reach.load(notes)
    source = (ROOT / names["transposed"]).read_text().splitlines()
    assert len(found.tests) == 2
    for _, files in found.tests.values():  # both, though the fixture runs for the first
        lines = [source[number - 1] for number in files[names["transposed"]]]
        assert any("return" in line for line in lines)
        assert names["schemes"] not in files
