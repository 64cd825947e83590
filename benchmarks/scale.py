"""What running tasks through edgewise.scale costs; writes the figures into docs/scale.md.

- Overhead: an empty task against the same function called directly, and the same for a lowering.
- Throughput: lowerings by two worker processes against one, alternating, several times.
- Scheduling: a sweep of 1,000 rows whose tasks compute nothing, on an engine that answers at
  once: seconds by the number of rows, and the driver's largest memory.

Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

from _common import ROOT, machine

sys.path.insert(0, str(ROOT))

LOWERINGS = 12
ROUNDS = 3
PAIRS = 8
EMPTY = 200
DOCUMENT = ROOT / "docs" / "scale.md"


def nothing(arguments: Any, context: Any) -> None:
    """A task that does nothing."""


def lower(arguments: Any, context: Any) -> int:
    """Exports and lowers a small model; the file's bytes."""
    sys.path.insert(0, str(ROOT))
    from edgewise.lowering.compiling import compile
    from examples.models import MODELS

    spec = MODELS["ds_cnn"]
    return len(compile(spec.build(), spec.example_inputs(0), verbose=False).buffer)


def seconds(engine: Any, name: str, count: int) -> float:
    """To run so many tasks, their workers being ready."""
    from edgewise.scale.engine import run_all
    from edgewise.scale.task import Task

    start = time.perf_counter()
    for outcome in run_all(engine, (Task(f"scale:{name}", {"x": x}) for x in range(count))):
        assert outcome.ok, outcome
    return time.perf_counter() - start


def processes() -> dict[str, float]:
    """Overhead and throughput of worker processes."""
    import torch

    from edgewise.scale.local import LocalEngine
    from edgewise.scale.sweeping import PRELOAD

    torch.set_num_threads(1)  # as in a worker
    lower({}, None)
    alone = median(_timed(lambda: lower({}, None)) for _ in range(5))
    with LocalEngine(1, preload=PRELOAD) as one, LocalEngine(2, preload=PRELOAD) as two:
        for engine in (one, two):
            seconds(engine, "nothing", 8)  # workers start
        overhead = min(seconds(one, "nothing", EMPTY) for _ in range(ROUNDS)) / EMPTY
        times = [_pair(one, two, turned=bool(i % 2)) for i in range(PAIRS)]
    return {
        "overhead_ms": 1e3 * overhead,
        "direct_ms": 1e3 * alone,
        "task_ms": 1e3 * median(a for a, _ in times) / LOWERINGS,
        "speedup": median(a / b for a, b in times),
        "one_s": median(a for a, _ in times),
        "two_s": median(b for _, b in times),
        "ceiling": median(_ceiling() for _ in range(2)),
    }


def _pair(one: Any, two: Any, turned: bool) -> tuple[float, float]:
    """Seconds of each engine; `turned`: the second one first."""
    if turned:
        later = seconds(two, "lower", LOWERINGS)
        return seconds(one, "lower", LOWERINGS), later
    return seconds(one, "lower", LOWERINGS), seconds(two, "lower", LOWERINGS)


def _ceiling() -> float:
    """What two plain processes that lower in a loop do by what one does."""

    def spent(count: int) -> float:
        command = [sys.executable, __file__, "--direct", str(LOWERINGS // 2)]
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        return max(float(one.communicate()[0]) for one in started)

    return 2 * spent(1) / spent(2)


def direct(count: int) -> float:
    """Seconds of so many lowerings here, on one thread, the first not counted."""
    import torch

    torch.set_num_threads(1)
    lower({}, None)
    return _timed(lambda: [lower({}, None) for _ in range(count)])


class AtOnce:
    """An engine that answers at once, with what stages would."""

    slots = 16

    def __init__(self) -> None:
        self._queue: deque[Any] = deque()

    def submit(self, task: Any) -> None:
        self._queue.append(task)

    def next(self) -> Any:
        from edgewise.scale.task import Outcome

        task = self._queue.popleft()
        stage = task.function.rpartition(":")[2]
        return Outcome(task.key, "ok", _answer(stage, task.key))

    def close(self) -> None:
        pass


def _answer(stage: str, key: str) -> dict[str, Any]:
    if stage == "load":
        return {"model": key, "parameters": 1}
    if stage == "data":
        return {"data": key, "batches": 1}
    if stage == "build":
        shares = dict.fromkeys(("delegated_nodes", "delegated_macs", "delegated_bytes"), 1.0)
        made = {"program": f"{key}.pte", "report": f"{key}.html", "refused": ""}
        return made | shares | {"size_bytes": 1, "delegates": 1, "lower_seconds": 0.1}
    if stage == "evaluate":
        return {"figures": {"top1 %": 90.0}}
    return {"latency_ms": 1.0, "latency_p90_ms": 1.0}


def schedule(rows: int) -> dict[str, float]:
    """A sweep of so many rows whose tasks take no time. In a process of its own."""
    from edgewise.scale import make_plan, sweep

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "zoo.py").write_text("")
        models = {
            f"m{i}": {"source": "zoo.py:f", "arguments": {"seed": i}} for i in range(rows // 2)
        }
        value = {
            "models": models,
            "quantize": ["none", "int8-dynamic"],
            "evaluation": "zoo.py:e",
            "metrics": ["top1"],
        }
        plan = make_plan(value, root=folder)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        result = sweep(plan, out=Path(folder, "out"), engine=AtOnce())  # type: ignore[arg-type]
        spent = time.perf_counter() - start
        assert len(result.rows) == rows
        assert not result.failed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": rows, "tasks": result.executed, "seconds": spent, "mb": peak / 1e3,
            "grown_mb": (peak - before) / 1e3}  # fmt: skip


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _text(costs: dict[str, float], schedules: list[dict[str, float]], where: dict[str, Any]) -> str:
    lines = [
        f"{where['cpu']}, {where['cores']} cores, {where['date']}:",
        "",
        f"- A task of its own process costs {costs['overhead_ms']:.1f} ms more than a call. "
        f"Lowering the keyword model (DS-CNN) takes {costs['task_ms']:.0f} ms as a task, "
        f"{costs['direct_ms']:.0f} ms called again and again in one process.",
        f"- Two workers lower {LOWERINGS} models in {costs['two_s']:.1f} s, one in "
        f"{costs['one_s']:.1f} s: "
        f"{costs['speedup']:.2f} x (median of {PAIRS} pairs). "
        f"Two plain processes that lower in a loop, without any engine, come to "
        f"{costs['ceiling']:.2f} x one here.",
        "- A sweep whose tasks take no time, with its tables written:",
        "",
        "| rows | tasks | seconds | ms a row | driver's memory, grown by |",
        "|---:|---:|---:|---:|---:|",
    ]
    for one in schedules:
        lines.append(
            f"| {one['rows']:.0f} | {one['tasks']:.0f} | {one['seconds']:.2f} | "
            f"{1e3 * one['seconds'] / one['rows']:.1f} | {one['mb']:.0f} MB, "
            f"{one['grown_mb']:.1f} MB |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, prints; with --write also into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name}")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--direct", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.direct:
        print(direct(options.direct))
        return
    if options.rows:
        print(json.dumps(schedule(options.rows)))
        return
    schedules = [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, "--rows", str(rows)],
                check=True, capture_output=True, text=True,
            ).stdout
        )
        for rows in (250, 500, 1000)
    ]  # fmt: skip
    text = _text(processes(), schedules, machine())
    print(text)
    if options.write:
        start, end = "<!-- figures -->\n", "<!-- end of figures -->\n"
        before, rest = DOCUMENT.read_text().split(start)
        DOCUMENT.write_text(before + start + "\n" + text + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
