"""What `edgewise.profile()` costs, and whether its figures add up.

One loaded model is run without and with a profile in turn, in blocks of some calls; the order
within a pair changes every time. The figure is the median over the pairs of (profiled / plain),
each block standing for its median call, less one. Beside it: how much of the wall time of a
profiled call lies in operators, and what one event costs in a loop of nothing else.

Before the first profile the model was run as well: after it, a profiled runtime of XNNPACK's stays
(it reads its clock for each operator), and `after` says what that costs.

Fails if the overhead of MobileNetV2 is above --limit, or its operators have less than 90 % of the
wall time.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from _common import add_common_options, add_timing_options, quantile, report
from _sides import ROOT, SEED

LIMIT = 3.0  # percent
LEAST_SHARE = 0.9  # of the wall time, in operators


def load(model: str, quantize: str | None, threads: int) -> tuple[Any, list[Any]]:
    """The model compiled here and its inputs as numpy arrays."""
    sys.path.insert(0, str(ROOT))
    import edgewise
    from edgewise.runtime import Runtime
    from examples.models import MODELS

    spec = MODELS[model]
    inputs = spec.example_inputs(SEED)
    calibration = [inputs] if quantize else None
    program = edgewise.compile(
        spec.build(SEED), inputs, quantize=quantize, calibration=calibration, verbose=False
    )
    runtime = Runtime.get().load_program(bytes(program.buffer), threads=threads)
    return runtime.load_method("forward"), [x.numpy() for x in inputs]


def block(run: Callable[[], object], calls: int) -> list[float]:
    """Milliseconds of each call, after one that is not counted."""
    run()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(model: str, quantize: str | None, options: argparse.Namespace) -> dict[str, Any]:
    """One row."""
    import edgewise
    from edgewise.runtime import _native

    method, inputs = load(model, quantize, options.threads)

    def run() -> object:
        return method.execute(inputs)

    first = median(block(run, 5))
    calls = max(5, round(options.block / first))
    never = [median(block(run, calls)) for _ in range(options.pairs)]
    shares: list[float] = []
    plain: list[float] = []
    profiled: list[float] = []
    events = 0

    def profiled_block() -> None:
        nonlocal events
        with edgewise.profile() as profile:
            times = block(run, calls)
        profiled.append(median(times))
        (summary,) = profile.summaries()
        events = len(summary.runs.runs[-1].events)
        inside = [sum(r.totals[1:]) for rows in summary.parts.values() for r in rows]
        shares.append(sum(inside) / 1e6 / sum(times))

    with edgewise.profile():
        run()
    for pair in range(options.pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            time.sleep(options.settle / 1e3)
            if side:
                profiled_block()
            else:
                plain.append(median(block(run, calls)))
    ratios = [a / b for a, b in zip(profiled, plain, strict=True)]
    return {
        "model": model + (f" {quantize}" if quantize else ""),
        "plain ms": median(plain),
        "profiled ms": median(profiled),
        "overhead %": (median(ratios) - 1) * 100,
        "quartiles %": " .. ".join(f"{(quantile(ratios, q) - 1) * 100:.2f}" for q in (0.25, 0.75)),
        "after %": (median(plain) / median(never) - 1) * 100,
        "in operators %": median(shares) * 100,
        "events": events,
        "ns an event": min(_native.profile_cost() for _ in range(20)),
    }


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common_options(parser, ("mobilenet_v2", "mobilenet_v2:int8"))
    add_timing_options(parser)
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="PERCENT")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        model, _, quantize = name.partition(":")
        rows.append(measure(model, quantize or None, options))
    notes = [
        f"{options.threads} threads, {options.pairs} pairs of blocks of about {options.block:g} ms",
        "overhead: median over pairs of profiled / plain, less one",
        "after: plain calls after a first profile, against those before it",
        "in operators: of the profiled calls' wall time, inputs and outputs included",
    ]
    report("Profiling", rows, notes, options.json)
    wrong = [
        row["model"]
        for row in rows
        if row["overhead %"] > options.limit or row["in operators %"] < LEAST_SHARE * 100
    ]
    if wrong:
        print(f"\nABOVE {options.limit:g} % or not in operators: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
