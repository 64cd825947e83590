"""How quick the report page is in Chromium: made-up programs of many nodes, and MobileNetV2.

Times are the browser's own (performance.now), each from the user's act to the drawn frame: loading
the page from disk, unfolding everything, searching, going to a node, moving the graph by a step.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import ROOT, report

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "report"), str(ROOT)]

_ACTS = {
    "unfold all": "document.getElementById('expand').click()",
    "go to a node": """
        const box = document.getElementById('search');
        box.value = NAME; box.dispatchEvent(new Event('input'));
        document.querySelector('#tree [data-key]').click()""",
    "search all": """
        const box = document.getElementById('search');
        box.value = 'linear'; box.dispatchEvent(new Event('input'))""",
    "fold all": "document.getElementById('collapse').click()",
    "move the graph": """
        const graph = document.querySelector('.graph');
        graph.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown' }))""",
}
_TIMED = """
const done = arguments[arguments.length - 1];
const start = performance.now();
ACT;
requestAnimationFrame(() => setTimeout(() => done(performance.now() - start), 0));
"""


def measure(driver: Any, page: Path, name: str, repeats: int) -> dict[str, float]:
    """Milliseconds of each act, the median of `repeats` loads of the page."""
    from browser_support import show

    times: dict[str, list[float]] = {"load": []}
    for _ in range(repeats):
        start = time.perf_counter()
        show(driver, page)
        times["load"].append(1e3 * (time.perf_counter() - start))
        for act, code in _ACTS.items():
            script = _TIMED.replace("ACT", code.strip()).replace("NAME", repr(name))
            times.setdefault(act, []).append(driver.execute_async_script(script))
    return {act: median(found) for act, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    from report_support import large

    import edgewise
    from browser_support import browser
    from edgewise.report import Subject, write
    from examples.models import MODELS

    model = MODELS["mobilenet_v2"]
    program = edgewise.compile(model.build(), model.example_inputs(0), verbose=False)
    cases = {
        "MobileNetV2": (program.record(), "hardtanh__9"),
        "5,000 nodes in blocks": (large(5000), "op_4321"),
        "5,000 nodes, no modules": (large(5000, flat=True), "op_4321"),
        "20,000 nodes in blocks": (large(20000), "op_4321"),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        for case, (record, name) in cases.items():
            page = write(Path(folder) / "page.html", [Subject(case, record)])
            found = measure(driver, page, name, options.repeats)
            size = page.stat().st_size
            times = {act: round(ms) for act, ms in found.items()}
            rows.append({"page": case, "kB": round(size / 1e3), **times})
    note = "milliseconds, medians; loading includes the browser's driver asking for it"
    report("The report page in Chromium", rows, [note], options.json)


if __name__ == "__main__":
    main()
