"""Runs every sample and prints passed/total for each operator: `make conformance`.

python tests/conformance --on executorch      our files on ExecuTorch's runtime, undelegated
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from exceptions import EXCEPTIONS, ON_EXECUTORCH
from on_executorch import Executorch
from suite import run, stale

from operators import BACKWARD, FORWARD

_MEMORY = 8 << 30
_REQUIRED = 0.98


def main() -> None:
    """Prints the table; fails below 98 % (on edgewise), on a failure without an entry, on a stale
    entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", help="names; none: all")
    parser.add_argument("--samples", type=int, default=8, help="of each operator and type")
    parser.add_argument("--on", choices=["edgewise", "executorch"], default="edgewise")
    parser.add_argument("--verbose", action="store_true", help="print what failed")
    options = parser.parse_args()
    # A sample that asks for the whole memory fails instead of taking the machine down.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    torch.set_num_threads(1)
    there = options.on == "executorch"
    execute = Executorch().run if there else None
    exceptions = ON_EXECUTORCH if there else EXCEPTIONS
    everything = []
    every = FORWARD if there else [*FORWARD, *BACKWARD]
    for name in options.operators or every:
        results = run(name, options.samples, execute=execute, exceptions=exceptions)
        everything += results
        passed = sum(r.outcome.kind == "passed" for r in results)
        print(f"{passed:5}/{len(results):<5} {name}", flush=True)
        for result in results:
            if result.outcome.kind == "failed" and (options.verbose or not result.excused):
                print(f"            {result.describe()}", flush=True)
    passed = sum(r.outcome.kind == "passed" for r in everything)
    unexplained = [r for r in everything if r.outcome.kind == "failed" and not r.excused]
    entries = [e for e in exceptions if not options.operators or e[0] in options.operators]
    old = stale(everything, entries)
    print(f"{passed}/{len(everything)} passed, {passed / max(len(everything), 1):.2%}")
    for operator, kind in entries:
        count = sum(
            r.outcome.kind == "failed"
            and r.operator == operator
            and kind in ("*", str(r.dtype)[6:])
            for r in everything
        )
        print(f"  {count} excepted: {operator}, {kind}: {exceptions[operator, kind]}")
    print(f"{len(unexplained)} failures without an entry; stale entries: {old or 'none'}")
    too_few = not there and passed < _REQUIRED * len(everything)
    if unexplained or old or too_few:
        sys.exit(1)


main()
