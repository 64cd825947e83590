"""`edgewise run` of a bundled program: its own calls, and whether they give what they shall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from edgewise.cli.output import Output
from edgewise.cli.tables import table


def is_bundled_file(file: Path) -> bool:
    """Whether a regular file is a bundled program."""
    from edgewise.files import is_special
    from edgewise.format.bundled_program import is_bundled

    if is_special(file) or not file.is_file():
        return False
    with file.open("rb") as opened:
        return is_bundled(opened.read(8))


def run_bundled(file: Path, out: Output, rtol: float, atol: float, **options: Any) -> None:
    """Shows each call. Ends with `CHECK` if one gives something else than the file expects."""
    from edgewise.inspect.bundles import check_bundled_program

    with out.progress(f"running {file}"):
        found = check_bundled_program(file, rtol=rtol, atol=atol, **options)
    cases = [vars(one) for one in found]
    wrong = sum(one.matches is False for one in found)
    told = {"file": str(file), "rtol": rtol, "atol": atol, "cases": cases}
    out.result(told, lambda console: _show(console, cases))
    if wrong:
        out.fail(
            f"[{file}] outputs must be within {atol:g} + {rtol:g} of the expected ones; got "
            f"{wrong} of {len(found)} calls that are not; try --rtol and --atol"
        )


def _show(console: Console, cases: Sequence[dict[str, Any]]) -> None:
    words = {True: "yes", False: "no", None: "nothing expected"}
    rows = [
        (c["method"], c["index"], words[c["matches"]], f"{c['difference']:.3g}", c["problem"])
        for c in cases
    ]
    console.print(table(["method", ">call", "as expected", ">largest difference", ""], rows))
