"""Which tests the mutation tool runs for a line."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from mutation.reach import Reach

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
