"""Time from an ExportedProgram to the bytes of a .pte file, ours and the peer's.

Imports and the export are not counted. Every repeat lowers a program that was exported for it, as
lowering may change the program it is given. The frameworks take turns, each in a process of its
own. The first repeat of a process pays for lazy imports and cold caches and is shown apart: it is
what a user's script pays.

With --backend vulkan, coreml or openvino, both lower for this backend of ExecuTorch's.

With --quantize N, from a module and N batches to a file in 8 bits: export, calibration, conversion
and lowering. Ours as `edgewise.compile(quantize="int8")` does it, with the methods that it applies
by itself; the peer's as its documentation does it, without any.
"""

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import _pte
from _common import add_common_options, report
from _frameworks import (
    exported_program,
    import_lowering,
    lowering_for,
    quantize_ours,
    quantize_peer,
)
from _worker import Handler, Worker, serve


def handler(framework: str) -> Handler:
    """Answer `model` requests: lower it once, write the bytes to `target`."""
    lower = None
    quantize = quantize_ours if framework == "ours" else quantize_peer

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal lower
        backend = request["backend"]
        if lower is None:
            lower = lowering_for(framework, backend) if backend else import_lowering(framework)
        answer: dict[str, Any] = {}
        batches = request["batches"]
        if not batches:
            start = time.perf_counter()
            program = exported_program(request["model"])
            answer["export_seconds"] = time.perf_counter() - start
        gc.collect()
        start = time.perf_counter()
        data = quantize(request["model"], batches) if batches else lower(program)
        answer["seconds"] = time.perf_counter() - start
        Path(request["target"]).write_bytes(data)
        return answer

    return handle


def measure(
    model: str, frameworks: list[str], repeats: int, batches: int, backend: str
) -> dict[str, Any]:
    """Lower `model` `repeats` times with each framework: a table row, and all times.

    batches: of calibration data; 0 for a program in floating point.
    """
    seconds: dict[str, list[float]] = {framework: [] for framework in frameworks}
    contents: dict[str, _pte.Contents] = {}
    workers = {framework: Worker(Path(__file__), framework) for framework in frameworks}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(repeats):
                for framework, worker in workers.items():
                    target = Path(folder) / f"{framework}.pte"
                    answer = worker.ask(
                        model=model, target=str(target), batches=batches, backend=backend
                    )
                    seconds[framework].append(answer["seconds"])
                    contents[framework] = _pte.read(target.read_bytes())
    finally:
        for worker in workers.values():
            worker.close()

    row: dict[str, Any] = {"model": model}
    for framework in frameworks:
        row[f"{framework} first s"] = seconds[framework][0]
        row[f"{framework} s"] = median(seconds[framework])
        row[f"{framework} min"] = min(seconds[framework])
    if len(frameworks) == 2:
        row["ours/peer"] = median(seconds["ours"]) / median(seconds["peer"])
    for framework in frameworks:
        row[f"{framework} MB"] = contents[framework].size / 1e6
        row[f"{framework} delegates+ops"] = (
            f"{contents[framework].delegate_count}+{contents[framework].operator_count}"
        )
    operators = {framework: dict(contents[framework].operators) for framework in frameworks}
    return {"row": row, "seconds": seconds, "operators": operators}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, ("mobilenet_v2", "resnet50", "vit_b_16"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--quantize", type=int, default=0, metavar="N", help="in 8 bits, calibrated on N batches"
    )
    parser.add_argument("--backend", default="", help="of ExecuTorch's; XNNPACK of either's own")
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(handler(options.worker))
        return 0

    frameworks = [options.only] if options.only else ["ours", "peer"]
    results = {}
    for model in options.models:
        print(f"{model} ...", file=sys.stderr, flush=True)
        results[model] = measure(
            model, frameworks, options.repeats, options.quantize, options.backend
        )
    backend = options.backend
    report(
        f"Quantizing, a module and {options.quantize} batches to .pte bytes"
        if options.quantize
        else f"Lowering, ExportedProgram to .pte bytes{f', {backend}' if backend else ''}",
        [result["row"] for result in results.values()],
        [f"median and minimum of {options.repeats}; first is the first in its process"],
        options.json,
        {
            "seconds": {model: result["seconds"] for model, result in results.items()},
            "operators": {model: result["operators"] for model, result in results.items()},
        },
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
