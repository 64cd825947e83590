"""Lowers programs of random operators, and prints those that compute something else than eager
PyTorch: `python tests/random_programs [WAY...] [--seeds FIRST:LAST]`.

Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings

import torch
from random_ways import WAYS, fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(map(repr, WAYS)))
    parser.add_argument("--seeds", default="0:100", metavar="FIRST:LAST")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    bad = False
    for name in given.ways or WAYS:
        way, start, faults, left_out = WAYS[name](), time.perf_counter(), 0, 0
        for seed in range(first, last):
            found = fault(seed, way)
            left_out += found is None
            if found:
                print(f"{name}, {found}", flush=True)
                faults += 1
        seconds = time.perf_counter() - start
        count = last - first - left_out
        print(f"{name}: {count} programs in {seconds:.0f} s, {faults} wrong; {left_out} left out")
        bad |= faults > 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
