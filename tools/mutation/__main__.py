"""Puts small faults into the sources, one at a time, and runs the tests of the file.

    python tools/mutation                        # 75 mutants over all groups: `make mutation`
    python tools/mutation --group kernels --count 20 --seed 3

A fault that the tests notice is killed; one that they do not is printed with its line, and with
the reason why it changes nothing if equivalent.py has one. Files are changed where they are and
put back; a file with changes that are not committed is left alone, and the tool stops.

A group's tests run once without a fault. Of Python files that tells which tests run which line,
and a mutant is given those: what no test runs survives.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutation import running
from mutation.drawing import Mutant, changed_words, draw
from mutation.equivalent import EQUIVALENT
from mutation.reach import Reach
from mutation.running import Verdict
from mutation.suites import ROOT, SUITES, Suite

_REQUIRED = 0.9


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    kind: str
    by: str
    seconds: float

    @property
    def reason(self) -> str | None:
        """Why no test can notice it, if that was found."""
        return EQUIVALENT.get(self.mutant.key)


def main() -> None:
    """Exit code 1 if less than 90 % of the mutants that change something are killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--group", action="append", choices=[*SUITES], help="default: all")
    parser.add_argument("--count", type=int, default=15, help="mutants of each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument(
        "--again", action="store_true", help="as the last run found which test runs which line"
    )
    options = parser.parse_args()
    groups = options.group or [*SUITES]
    if options.list:
        for group in groups:
            for mutant in islice(draw(SUITES[group], options.seed), options.count):
                print(mutant.diff())
        return
    outcomes: dict[str, list[Outcome]] = {}
    for group in groups:
        suite = SUITES[group]
        _must_be_committed(suite)
        if suite.native and not (running.BUILD / "build.ninja").exists():
            sys.exit("[mutation] native files need the development build; try `make setup`")
        reach = running.measure(group, suite, again=options.again)
        mutants = draw(suite, options.seed)
        outcomes[group] = list(_outcomes(group, suite, reach, mutants, options.count))
        if suite.native:
            running.install()
    _report(outcomes)


def _outcomes(
    group: str, suite: Suite, reach: Reach | None, mutants: Iterator[Mutant], count: int
) -> Iterator[Outcome]:
    """Of `count` mutants that compile."""
    while count:
        mutant = next(mutants, None)
        if mutant is None:
            return
        outcome = _try(suite, reach, mutant)
        print(
            f"{group}: {outcome.kind:9} {outcome.seconds:5.0f} s  "
            f"{mutant.path}:{mutant.number}  {changed_words(mutant)}  {outcome.by}",
            flush=True,
        )
        if outcome.kind != "stillborn":
            count -= 1
            yield outcome


def _try(suite: Suite, reach: Reach | None, mutant: Mutant) -> Outcome:
    """Runs the tests with the fault in its place, and takes it out again."""
    path = ROOT / mutant.path
    original = path.read_text()
    started = time.monotonic()
    try:
        path.write_text(mutant.text())
        verdict = _tests(suite, reach, mutant, original)
    finally:
        path.write_text(original)
    return Outcome(mutant, verdict.kind, verdict.by, time.monotonic() - started)


def _tests(suite: Suite, reach: Reach | None, mutant: Mutant, original: str) -> Verdict:
    if reach is None:
        return running.native(suite)
    return running.python(suite, reach.of(mutant.path, original, mutant.number))


def _report(outcomes: dict[str, list[Outcome]]) -> None:
    for outcome in [o for found in outcomes.values() for o in found if o.kind == "survived"]:
        print(f"\nsurvived: {outcome.mutant.diff()}")
        print(f"  {outcome.reason or 'no reason known: add a test, or say why it is equivalent'}")
    print(f"\n{'':14}mutants  killed  equivalent  survived")
    for group, found in outcomes.items():
        _print_row(group, found)
    whole = [o for found in outcomes.values() for o in found]
    different, killed = _print_row("all", whole)
    print(f"{killed / max(different, 1):.1%} of those that change something are killed")
    if killed < _REQUIRED * different:
        sys.exit(1)


def _print_row(name: str, outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """How many change something, and how many of them were killed."""
    survived = [o for o in outcomes if o.kind == "survived"]
    equivalent = sum(o.reason is not None for o in survived)
    count, killed = len(outcomes), len(outcomes) - len(survived)
    print(f"{name:14}{count:7}{killed:8}{equivalent:12}{len(survived) - equivalent:10}")
    return count - equivalent, killed


def _must_be_committed(suite: Suite) -> None:
    """Nothing that exists only in the working tree is touched."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", *map(str, suite.paths())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if changed:
        sys.exit(
            f"[mutation] files that are mutated must be committed; got changes in\n{changed}"
            "try `git commit` or `git stash` before"
        )


main()
