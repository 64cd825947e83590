"""Whole architectures of `transformers`, small and random: delegates, lowering, latency, error.

For each: exported once, in a process of its own, and saved; lowered from there by each framework in
a process of its own; run by each framework in turns as `latency.py` does; compared with eager
PyTorch in float64. The seconds to lower are those of the first program in a fresh process, from an
ExportedProgram to the bytes of a .pte; imports are not counted.

The peer is slow to lower: its files and figures are kept in --cache and used again. Ours are
lowered anew every time. --count lowers and counts without timing inferences.
"""

import argparse
import copy
import importlib.metadata
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import _pte
from _common import (
    add_cache_options,
    add_common_options,
    add_timing_options,
    number,
    quantile,
    report,
)
from _frameworks import SESSIONS, Session, import_lowering, load_arrays
from _worker import Handler, Worker, serve

TOLERANCE = 1e-4  # float32 sums in another order, over two layers
TARGETS = (
    "to reach: on average 2 delegates, 6 other operators, 0.7 s; total latency 0.6 of the peer's"
)
PACKAGES = {"ours": "edgewise", "peer": "executorch"}


# ---- steps, each in a process of its own


def export(name: str, folder: Path) -> dict[str, Any]:
    """Write the exported program, the inputs and the outputs of eager in float64."""
    import numpy as np
    import torch
    from _architectures import ARCHITECTURES

    architecture = ARCHITECTURES[name]
    model, inputs = architecture.build(), architecture.example_inputs()
    with torch.no_grad():
        start = time.perf_counter()
        program = torch.export.export(model, inputs)
        seconds = time.perf_counter() - start
        wide = (x.double() if x.is_floating_point() else x for x in inputs)
        outputs = copy.deepcopy(model).double()(*wide)  # the program shares the model's weights
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    np.savez(folder / f"{name}-inputs.npz", *(x.numpy() for x in inputs))
    np.savez(folder / f"{name}-eager.npz", *(y.numpy() for y in outputs))
    partial = folder / f"{name}.partial"
    torch.export.save(program, partial)
    partial.rename(folder / f"{name}.pt2")
    return {"export_seconds": seconds}


def lower(framework: str, name: str, folder: Path) -> dict[str, Any]:
    """Write the framework's .pte and what is known about it."""
    import torch

    logging.disable(logging.WARNING)
    lowering = import_lowering(framework)
    program = torch.export.load(folder / f"{name}.pt2")
    start = time.perf_counter()
    data = lowering(program)
    seconds = time.perf_counter() - start
    _file(framework, name, folder).write_bytes(data)
    contents = _pte.read(data)
    return {
        "seconds": seconds,
        "delegates": contents.delegate_count,
        "others": contents.operator_count,
        "operators": dict(contents.operators),
        "size": contents.size,
    }


def _file(framework: str, name: str, folder: Path) -> Path:
    return folder / f"{name}-{framework}-{importlib.metadata.version(PACKAGES[framework])}.pte"


def step(folder: Path, *command: str) -> dict[str, Any]:
    """Run a step in a fresh process and return its answer, or its error under "error"."""
    script = [sys.executable, "-W", "ignore", str(Path(__file__)), "--step", *command]
    done = subprocess.run([*script, str(folder)], capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line]
        return {"error": (said or [f"ended with {done.returncode}"])[-1][:300]}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def prepared(name: str, frameworks: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Each framework's figures of lowering; the peer's from the cache if they are there."""
    if not (folder / f"{name}.pt2").exists():
        failed = step(folder, "export", name).get("error")
        if failed:
            raise SystemExit(f"[{name}] could not be exported: {failed}")
    found = {}
    for framework in frameworks:
        kept = _file(framework, name, folder).with_suffix(".json")
        if framework == "peer" and kept.exists():
            found[framework] = json.loads(kept.read_text())
            continue
        found[framework] = step(folder, "lower", framework, name)
        if framework == "peer" and "error" not in found[framework]:
            kept.write_text(json.dumps(found[framework]))
    return found


# ---- running


def handler(framework: str) -> Handler:
    """Answer `load` and `calls` requests for one framework."""
    session: Session | None = None

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal session
        if "load" in request:
            session = SESSIONS[framework](
                Path(request["load"]), load_arrays(Path(request["inputs"])), request["threads"]
            )
            expected = load_arrays(Path(request["expected"]))
            return {"error_": _error(session.outputs(), expected)}
        assert session is not None
        session.run()
        times = []
        for _ in range(request["calls"]):
            start = time.perf_counter()
            session.run()
            times.append((time.perf_counter() - start) * 1e3)
        return {"ms": times}

    return handle


def _error(outputs: list[Any], expected: list[Any]) -> float:
    if [y.shape for y in outputs] != [y.shape for y in expected]:
        raise ValueError(f"shapes must be eager's; got {[y.shape for y in outputs]}")
    pairs = zip(outputs, expected, strict=True)
    return max(float(abs(y - e).max() / abs(e).max()) for y, e in pairs)


def run(name: str, frameworks: list[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Error and block medians of each framework, or its failure under "error"."""
    workers = {framework: Worker(Path(__file__), framework) for framework in frameworks}
    found: dict[str, dict[str, Any]] = {framework: {} for framework in frameworks}
    try:
        calls: dict[str, int] = {}
        for framework, worker in workers.items():
            try:
                answer = worker.ask(
                    load=str(_file(framework, name, options.cache)),
                    inputs=str(options.cache / f"{name}-inputs.npz"),
                    expected=str(options.cache / f"{name}-eager.npz"),
                    threads=options.threads,
                )
                found[framework]["error_"] = answer["error_"]
                typical = median(worker.ask(calls=5)["ms"])
                calls[framework] = max(3, min(200, round(options.block / typical)))
            except RuntimeError as error:
                found[framework]["error"] = str(error).splitlines()[0]
        blocks: dict[str, list[float]] = {framework: [] for framework in calls}
        for i in range(0 if options.count else options.pairs):
            for framework in list(calls) if i % 2 == 0 else list(reversed(calls)):
                time.sleep(options.settle / 1e3)
                blocks[framework].append(
                    median(workers[framework].ask(calls=calls[framework])["ms"])
                )
        for framework, times in blocks.items():
            found[framework]["blocks"] = times
    finally:
        for worker in workers.values():
            worker.close()
    return found


# ---- the table


def measure(name: str, frameworks: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """A row of the table, and every figure behind it."""
    lowered = prepared(name, frameworks, options.cache)
    able = [framework for framework in frameworks if "error" not in lowered[framework]]
    ran = run(name, able, options)
    row: dict[str, Any] = {"model": name}
    for framework in frameworks:
        figures = {**lowered[framework], **ran.get(framework, {})}
        row[f"{framework} delegates"] = figures.get("delegates")
        row[f"{framework} others"] = figures.get("others")
        row[f"{framework} s"] = figures.get("seconds")
        if figures.get("blocks"):
            row[f"{framework} ms"] = median(figures["blocks"])
        row[f"{framework} error"] = figures.get("error_")
    blocks = [ran.get(framework, {}).get("blocks") for framework in ("ours", "peer")]
    if all(blocks):
        ratios = [a / b for a, b in zip(*blocks, strict=True)]
        row["ours/peer"] = median(ratios)
        row["25-75%"] = f"{quantile(ratios, 0.25):.2f}-{quantile(ratios, 0.75):.2f}"
    return {"row": row, "lowered": lowered, "ran": ran}


def averages(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the models that both frameworks have; of latencies the sum, and the sums'
    ratio."""
    result: dict[str, Any] = {"model": "average"}
    columns = dict.fromkeys(column for row in rows for column in row)
    for column in columns:
        values = [row[column] for row in rows if isinstance(row.get(column), (int, float))]
        if not values or column == "ours/peer":
            continue
        result[column] = max(values) if column.endswith(" error") else mean(values)
    both = [row for row in rows if row.get("ours ms") and row.get("peer ms")]
    if both:
        result["ours/peer"] = sum(r["ours ms"] for r in both) / sum(r["peer ms"] for r in both)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if "--step" in sys.argv:
        kind, *arguments, folder = sys.argv[sys.argv.index("--step") + 1 :]
        steps = {"export": export, "lower": lower}
        print(json.dumps(steps[kind](*arguments, Path(folder))))
        return 0
    from _architectures import ARCHITECTURES

    add_common_options(parser, tuple(ARCHITECTURES))
    add_cache_options(parser)
    add_timing_options(parser, pairs=9, block=50)
    parser.add_argument("--count", action="store_true", help="lower, count and check only")
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(handler(options.worker))
        return 0
    unknown = sorted(set(options.models) - set(ARCHITECTURES))
    if unknown:
        parser.error(f"--models must be of {', '.join(ARCHITECTURES)}; got {', '.join(unknown)}")
    options.cache = options.cache / "architectures"
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.refresh:
        for file in options.cache.glob("*.pt2"):
            file.unlink()

    frameworks = [options.only] if options.only else ["ours", "peer"]
    results = {}
    for name in options.models:
        results[name] = measure(name, frameworks, options)
        shown = (f"{key} {number(value)}" for key, value in results[name]["row"].items())
        print(", ".join(shown), file=sys.stderr, flush=True)
    rows = [result["row"] for result in results.values()]
    report(
        "Architectures of transformers, two layers, random weights",
        [*rows, averages(rows)],
        [
            f"{len(rows)} models; the last line holds means, of errors the largest, and the ratio "
            "of the summed latencies",
            f"ms: medians over {options.pairs} alternating blocks of about {options.block:g} ms, "
            f"{options.threads} threads, {options.settle:g} ms apart; s: the first in its process",
            "error: against eager in float64, relative to the largest output",
            TARGETS,
        ],
        options.json,
        {"results": results},
    )
    return 1 if _failures(results, frameworks) else 0


def _failures(results: dict[str, Any], frameworks: list[str]) -> list[str]:
    """Says which models failed or are wrong. Only ours decide over the exit code."""
    found = []
    for name, result in results.items():
        for framework in frameworks:
            figures = {**result["lowered"][framework], **result["ran"].get(framework, {})}
            message = figures.get("error")
            if message is None and not figures["error_"] <= TOLERANCE:
                message = f"error {figures['error_']:.1e} above {TOLERANCE:g}"
            if message is not None:
                print(f"\nFAILED {name} ({framework}): {message}")
                found += [name] if framework == "ours" else []
    return found


if __name__ == "__main__":
    raise SystemExit(main())
