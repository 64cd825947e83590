"""Runs every sample and prints passed/total for each operator: `make conformance`."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import samples
import torch
from operators import BACKWARD, FORWARD, RANDOM
from runner import check


_MEMORY = 8 << 30


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="names; none: all")
    parser.add_argument("--samples", type=int, default=8, help="of each operator and type")
    parser.add_argument("--json")
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    # A sample that asks for the whole memory fails instead of taking the machine down.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    torch.set_num_threads(1)
    names = FORWARD + list(BACKWARD)
    if options.every:
        names = sorted(samples.table())
    total: Counter[str] = Counter()
    log = {}
    for name in options.operators or names:
        here: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for dtype in samples.DTYPES:
            try:
                if name in BACKWARD:
                    op = getattr(torch.ops.aten, name).default
                    calls = samples.backward_calls(op, BACKWARD[name], dtype, options.samples)
                else:
                    calls = samples.calls(name, dtype, options.samples)
            except Exception as e:
                reasons[f"SAMPLES {dtype} {type(e)} {e}"[:200]] += 1
                continue
            for call, outcome in zip(calls, check(calls, name in RANDOM), strict=True):
                here[outcome.kind] += 1
                if outcome.kind != "passed":
                    reasons[f"{str(dtype)[6:]} {outcome.reason} <- {call.describe()[:150]}"] += 1
        total += here
        log[name] = [here, reasons]
        print(f"{here['passed']:4}/{here['passed'] + here['failed']:<4} (+{here['not exported']}) {name}", flush=True)
        if here["passed"] < sum(here.values()):
            for r, n in list(reasons.items())[:3]:
                print("      ", n, r[:260], flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(log))
    tested = total["passed"] + total["failed"]
    print(f"{total['passed']}/{tested} passed, {total['not exported']} not exported by torch")


main()
