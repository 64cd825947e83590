"""Damages files of the kinds that are read in Python, and prints what came of it:
`python tests/fuzz KIND... [--seconds S] [--count N] [--seed K] [--found FOLDER]`.

Exit code 1 if a file made a reader raise what it does not promise, take more than 5 s or 512 MiB.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # of `forked`

from fuzzing import fuzz
from kinds import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, default=Path("build/fuzz/found"))
    given = parser.parse_args()
    failed = False
    for name in given.kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            report = fuzz(
                name, Path(folder), seed=given.seed, count=given.count, seconds=given.seconds
            )
        today = datetime.datetime.now(datetime.timezone.utc).date()
        print(
            f"{name}: {today}, {report.executions} executions in {report.seconds:.0f} s, "
            f"{len(report.outcomes)} different outcomes, {report.outcomes.get('read', 0)} read",
            flush=True,
        )
        for what, failure in report.failures.items():
            failed = True
            given.found.mkdir(parents=True, exist_ok=True)
            path = given.found / f"{name}-{hashlib.sha256(failure.data).hexdigest()[:16]}"
            path.write_bytes(failure.data)
            print(f"{name}: {what}: {path}\n{failure.told[-1500:]}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
