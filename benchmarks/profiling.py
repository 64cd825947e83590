"""What `edgewise.profile()` costs, and whether its figures add up.

Two instances of a method take turns in blocks of some calls: one that never was profiled, one
without and one with a profile; the order changes every time. The figure is the median over the
rounds of (profiled / plain), each block standing for its median call, less one. Beside it: how much
of the wall time of a profiled call lies in operators, and what one event costs in a loop of nothing
else. `after`: the plain calls of the instance that was profiled, against the other one's: it keeps
a runtime of XNNPACK's that reads the clock for each operator.

Fails if the overhead of MobileNetV2 is above --limit, or its operators have less than 90 % of the
wall time.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from _common import add_timing_options, quantile, report
from _frameworks import ROOT, SEED

MODELS = ("mobilenet_v2", "mobilenet_v2:int8")
LIMIT = 3.0  # percent
LEAST_SHARE = 0.9  # of the wall time, in operators


def load(model: str, quantize: str | None, threads: int) -> tuple[list[Any], list[Any]]:
    """The model compiled here, twice, and its inputs as numpy arrays."""
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
    methods = [runtime.load_method("forward") for _ in range(2)]
    return methods, [x.numpy() for x in inputs]


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

    (untouched, method), inputs = load(model, quantize, options.threads)

    def run() -> object:
        return method.execute(inputs)

    calls = max(5, round(options.block / median(block(run, 5))))
    never: list[float] = []
    shares: list[float] = []
    plain: list[float] = []
    profiled: list[float] = []
    fastest = [float("inf"), float("inf")]  # plain, profiled
    events = 0

    def plain_block() -> None:
        times = block(run, calls)
        plain.append(median(times))
        fastest[0] = min(fastest[0], *times)

    def profiled_block() -> None:
        nonlocal events
        with edgewise.profile() as profile:
            times = block(run, calls)
        profiled.append(median(times))
        fastest[1] = min(fastest[1], *times)
        (summary,) = profile.summaries()
        events = len(summary.runs.runs[-1].events)
        inside = [sum(r.totals[1:]) for rows in summary.parts.values() for r in rows]
        shares.append(sum(inside) / 1e6 / sum(times))

    with edgewise.profile():
        run()
    frameworks: list[Callable[[], object]] = [
        lambda: never.append(median(block(lambda: untouched.execute(inputs), calls))),
        plain_block,
        profiled_block,
    ]
    for pair in range(options.pairs):
        for framework in frameworks if pair % 2 else frameworks[::-1]:
            time.sleep(options.settle / 1e3)
            framework()
    ratios = [a / b for a, b in zip(profiled, plain, strict=True)]
    after = [a / b for a, b in zip(plain, never, strict=True)]
    return {
        "model": model + (f" {quantize}" if quantize else ""),
        "plain ms": median(plain),
        "profiled ms": median(profiled),
        "overhead %": (median(ratios) - 1) * 100,
        "quartiles %": " .. ".join(f"{(quantile(ratios, q) - 1) * 100:.2f}" for q in (0.25, 0.75)),
        "fastest %": (fastest[1] / fastest[0] - 1) * 100,
        "after %": (median(after) - 1) * 100,
        "in operators %": median(shares) * 100,
        "events": events,
        "ns an event": min(_native.profile_cost() for _ in range(20)),
    }


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME[:QUANTIZE]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
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
        "fastest: the same of the fastest call of each, for machines that are never quiet",
        "after: plain calls of the instance that was profiled, against one that never was",
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
