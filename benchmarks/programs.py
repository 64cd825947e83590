"""Several programs at once: what a call takes when 1, 2 or 4 processes run the model in turns of
their own, and when another process keeps a core busy. With --one-process the programs are loaded by
one process, and each is called by a thread of its own.

Each process has its own library and its threads (2), calls the model without a pause for some
seconds, and tells its calls' times; those of all processes are put together. The frameworks take
turns. "fair" is the time that 1 process takes, times the load: processes, or 1.5 beside a busy
neighbour on two cores; a framework whose threads wait for each other takes a multiple of that.

Exit code 1 if ours, by the median, takes more than --allow times what is fair.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from _common import add_cache_options, add_common_options, quantile, ratio, report
from _frameworks import SESSIONS, ensure, load_arrays, model_file
from _worker import Worker, serve

LOADS = ((1, False), (2, False), (4, False), (1, True), (2, True))
"""Processes, and whether a neighbour is busy."""
_NEIGHBOUR = "while True: pass"


def worker(framework: str) -> None:
    """A process: loads, then runs for as long as it is told from a time on."""
    state: dict[str, Any] = {}

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        if "file" in request:
            inputs = load_arrays(Path(request["inputs"]))
            state["sessions"] = [
                SESSIONS[framework](Path(request["file"]), inputs, request["threads"])
                for _ in range(request["programs"])
            ]
            for session in state["sessions"]:
                session.run()
            return {}
        times: list[float] = []

        def call(run: Callable[[], object]) -> None:
            end = time.perf_counter() + request["seconds"]
            while (now := time.perf_counter()) < end:
                run()
                times.append(1e3 * (time.perf_counter() - now))

        time.sleep(max(0.0, request["start"] - time.time()))
        sessions = state["sessions"][: request["programs"]]
        threads = [threading.Thread(target=call, args=(one.run,)) for one in sessions[1:]]
        for thread in threads:
            thread.start()
        call(sessions[0].run)
        for thread in threads:
            thread.join()
        return {"times": times}

    serve(handle)


def times_of(workers: list[Worker], programs: int, seconds: float) -> list[float]:
    """Milliseconds of all calls of so many programs of each of the workers, which run at once."""
    request = {"start": time.time() + 0.3, "seconds": seconds, "programs": programs}
    for one in workers:
        one.send(**request)
    return [each for one in workers for each in one.receive()["times"]]


def measure(model: str, frameworks: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a load."""
    ensure(frameworks, model, options.cache, options.refresh)
    most = max(count for count, _ in LOADS)
    processes, programs = (1, most) if options.one_process else (most, 1)
    workers = {
        framework: [Worker(Path(__file__), framework) for _ in range(processes)]
        for framework in frameworks
    }
    for framework, group in workers.items():
        for one in group:
            one.ask(
                file=str(model_file(framework, model, options.cache)),
                inputs=str(options.cache / f"{model}-inputs.npz"),
                threads=options.threads,
                programs=programs,
            )
    cores = len(os.sched_getaffinity(0))
    unit = "programs" if options.one_process else "processes"
    rows = []
    alone: dict[str, float] = {}
    for count, is_busy in LOADS:
        found: dict[str, list[list[float]]] = {framework: [] for framework in frameworks}
        neighbour = subprocess.Popen([sys.executable, "-c", _NEIGHBOUR]) if is_busy else None
        try:
            for i in range(options.repeats):
                for framework in frameworks if i % 2 == 0 else frameworks[::-1]:
                    used = (
                        (workers[framework], count)
                        if options.one_process
                        else (workers[framework][:count], 1)
                    )
                    found[framework].append(times_of(*used, options.seconds))
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
        row: dict[str, Any] = {"model": model, unit: count, "neighbour": int(is_busy)}
        # Beside a neighbour that has its share of one core of two.
        load = count * (cores / (cores - 0.5) if is_busy else 1)
        for framework in frameworks:
            middle = median(median(times) for times in found[framework])
            if (count, is_busy) == (1, False):
                alone[framework] = middle
            row[f"{framework} ms"] = middle
            row[f"{framework} 95 %"] = median(quantile(times, 0.95) for times in found[framework])
            row[f"{framework} / fair"] = middle / (alone[framework] * load)
        if len(frameworks) > 1:
            for other in frameworks[1:]:
                row[f"ours/{other}"] = ratio(
                    *(
                        [median(times) for times in found[framework]]
                        for framework in ("ours", other)
                    )
                )
        rows.append(row)
    for group in workers.values():
        for one in group:
            one.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, ("mobilenet_v2", "resnet18"))
    add_cache_options(parser)
    parser.add_argument("--onnx", action="store_true", help="ONNX Runtime, too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one-process", action="store_true", help="programs of one process")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--allow", type=float, default=2.0, metavar="TIMES")
    parser.add_argument("--worker", choices=tuple(SESSIONS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    frameworks = [options.only] if options.only else ["ours", "peer"]
    frameworks += ["onnx"] * options.onnx
    rows = [row for model in options.models for row in measure(model, frameworks, options)]
    notes = [
        f"{options.threads} threads a {'program' if options.one_process else 'process'}; "
        f"medians of {options.repeats} turns of "
        f"{options.seconds:g} s; 95 %: of the calls of a turn",
        "fair: alone, times their number; times 4/3 beside a neighbour on two cores",
    ]
    report("Programs at once", rows, notes, options.json)
    return int(any(row.get("ours / fair", 0) > options.allow for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
