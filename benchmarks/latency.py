"""Time of one inference, ours and the peer's (and ONNX Runtime's, OpenVINO's), side by side.

Each framework runs in a process of its own (`_worker.py` says why) and they take turns in short
blocks: a pause in which thread pools fall asleep, one call that is not counted, then calls for
about --block milliseconds. A pair is one block of each; the order within a pair changes every time.
The figure is the median over the pairs of ours / other, each block standing for its median call;
"ours/best" is to the framework that was fastest in the pair. OpenVINO is in an environment of its
own, made at the first run.

--same-process puts all frameworks into one process instead. Both were tried, four runs of each,
with ExecuTorch and ONNX Runtime on two cores that other programs were using too (MobileNetV2,
ExecuTorch's median): 3.6-4.0 ms in processes of their own and 3.6-4.1 ms in one, with pauses;
4.4-10.6 and 4.1-10.7 ms without. So the pause is what matters; no difference between one process
and several was seen; several are the default because they keep torch out of ours.

Correctness is printed beside: the largest absolute error against eager PyTorch in float32, divided
by the largest absolute output. Above 1e-4 the script says so and fails.
"""

import argparse
import math
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import (
    IMAGE_MODELS,
    add_cache_options,
    add_common_options,
    add_timing_options,
    quantile,
    ratio,
    report,
    report_wrong,
)
from _environments import python_of
from _frameworks import OTHERS, SESSIONS, Session, ensure, load_arrays, model_file
from _worker import Asked, Handler, Local, Worker, serve

TOLERANCE = 1e-4  # float32 sums in another order, over at most some hundred layers


def handler(framework: str) -> Handler:
    """Answer `load` and `block` requests for one framework."""
    session: Session | None = None

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal session
        if "load" in request:
            inputs = load_arrays(Path(request["inputs"]))
            session = SESSIONS[framework](Path(request["load"]), inputs, request["threads"])
            expected = load_arrays(Path(request["expected"]))
            outputs = session.outputs()
            return {
                "threads": session.threads,
                "error_": _error(outputs, expected),
                "dB_": decibels(outputs, expected),
            }
        assert session is not None
        return {"ms": _block(session, request["calls"])}

    return handle


def decibels(outputs: list[Any], expected: list[Any]) -> float:
    """Signal to noise of the outputs, the expected ones being the signal."""
    import numpy as np

    pairs = [
        (y.astype(np.float64), z.astype(np.float64)) for y, z in zip(outputs, expected, strict=True)
    ]
    signal = sum(float((z**2).sum()) for _, z in pairs)
    noise = sum(float(((y - z) ** 2).sum()) for y, z in pairs)
    return 10 * math.log10(signal / max(noise, 1e-30 * signal))


def _error(outputs: list[Any], expected: list[Any]) -> float:
    if [y.shape for y in outputs] != [y.shape for y in expected]:
        raise ValueError(
            f"outputs have the shapes of eager's; got {[y.shape for y in outputs]}, "
            f"not {[y.shape for y in expected]}"
        )
    pairs = zip(outputs, expected, strict=True)
    return max(float(abs(y - e).max() / abs(e).max()) for y, e in pairs)


def _block(session: Session, calls: int) -> list[float]:
    session.run()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        session.run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(model: str, frameworks: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """All pairs for one model: a table row, and the block medians under "blocks"."""
    ensure(frameworks, model, options.cache, options.refresh)
    workers: dict[str, Asked] = {
        framework: Local(handler(framework))
        if options.same_process
        else Worker(Path(__file__), framework, python_of(framework, options.cache))
        for framework in frameworks
    }
    try:
        loaded = {
            framework: worker.ask(
                load=str(model_file(framework, model, options.cache)),
                inputs=str(options.cache / f"{model}-inputs.npz"),
                expected=str(options.cache / f"{model}-eager.npz"),
                threads=options.threads,
            )
            for framework, worker in workers.items()
        }
        blocks, least = alternate(workers, options)
    finally:
        for worker in workers.values():
            worker.close()

    row: dict[str, Any] = {"model": model, "threads": options.threads}
    row |= compared(blocks, least)
    for framework in frameworks:
        row[f"{framework} error"] = loaded[framework]["error_"]
    for framework in frameworks:
        if loaded[framework]["threads"] != options.threads:
            row["threads"] = f"{options.threads} ({framework} says {loaded[framework]['threads']})"
    return {"row": row, "blocks": blocks}


def alternate(
    workers: dict[str, Asked], options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Blocks of calls of the loaded frameworks in turn: each block's median, each framework's least
    (ms)."""
    frameworks = list(workers)
    calls: dict[str, int] = {}
    for framework, worker in workers.items():
        typical = median(worker.ask(calls=5)["ms"])
        calls[framework] = max(3, min(200, round(options.block / typical)))
    blocks: dict[str, list[float]] = {framework: [] for framework in frameworks}
    least: dict[str, float] = dict.fromkeys(frameworks, float("inf"))
    for i in range(options.pairs):
        for framework in frameworks if i % 2 == 0 else reversed(frameworks):
            time.sleep(options.settle / 1e3)
            times = workers[framework].ask(calls=calls[framework])["ms"]
            blocks[framework].append(median(times))
            least[framework] = min(least[framework], *times)
    return blocks, least


def compared(blocks: dict[str, list[float]], least: dict[str, float]) -> dict[str, Any]:
    """Cells of a row: times of each framework, and ours in relation to each other framework."""
    row: dict[str, Any] = {}
    for framework in blocks:
        row[f"{framework} ms"] = median(blocks[framework])
        row[f"{framework} min"] = least[framework]
    others = [framework for framework in OTHERS if framework in blocks]
    for other in (*others, "xnnpack"):
        if "ours" in blocks and other in blocks:
            ratios = [a / b for a, b in zip(blocks["ours"], blocks[other], strict=True)]
            row[f"ours/{other}"] = ratio(blocks["ours"], blocks[other])
            row[f"of min, {other}"] = least["ours"] / least[other]
            row[f"25-75%, {other}"] = f"{quantile(ratios, 0.25):.3f}-{quantile(ratios, 0.75):.3f}"
    if "ours" in blocks and len(others) > 1:
        best = [min(times) for times in zip(*(blocks[other] for other in others), strict=True)]
        row["ours/best"] = ratio(blocks["ours"], best)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, IMAGE_MODELS)
    add_cache_options(parser)
    add_timing_options(parser)
    parser.add_argument("--onnx", action="store_true", help="ONNX Runtime, too")
    parser.add_argument("--openvino", action="store_true", help="OpenVINO, too")
    parser.add_argument("--xnnpack", action="store_true", help="ours without fused kernels, too")
    parser.add_argument("--same-process", action="store_true")
    parser.add_argument("--worker", choices=tuple(SESSIONS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(handler(options.worker))
        return 0

    frameworks = [options.only] if options.only else ["ours", "peer"]
    frameworks += [
        framework for framework in ("onnx", "openvino", "xnnpack") if getattr(options, framework)
    ]
    if options.same_process and options.openvino:
        parser.error("--same-process cannot have --openvino: it is in another environment")
    results = {}
    for model in options.models:
        print(f"{model} ...", file=sys.stderr, flush=True)
        results[model] = measure(model, frameworks, options)
    report(
        "Latency of one inference",
        [result["row"] for result in results.values()],
        [
            "one process for all frameworks"
            if options.same_process
            else "a process for each framework",
            f"medians over {options.pairs} alternating blocks of about {options.block:g} ms, "
            f"{options.settle:g} ms apart; min is the fastest call, 'of min' the ratio of those",
            "25-75% is the spread of the ratio over the pairs; error is relative to the largest "
            "output of eager float32",
        ],
        options.json,
        {"block_medians_ms": {model: result["blocks"] for model, result in results.items()}},
    )
    errors = {
        f"{model} ({framework})": result["row"][f"{framework} error"]
        for model, result in results.items()
        for framework in frameworks
    }
    return report_wrong(errors, TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
