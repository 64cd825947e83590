"""Puts small faults into the sources, one at a time, and runs the tests of the file.

    python tools/mutation                        # 75 mutants over all groups: `make mutation`
    python tools/mutation --group kernels --count 20 --seed 3

A fault that the tests notice is killed; one that they do not is printed with its line, and with
the reason why it changes nothing if equivalent.py has one. Files are changed where they are and
put back; a file with changes that are not committed is left alone, and the tool stops.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutation.drawing import Mutant, changed_words, draw
from mutation.equivalent import EQUIVALENT
from mutation.suites import ROOT, SUITES, Suite

_BUILD = ROOT / "build" / "dev"
_LIMIT = 900.0  # seconds for one step of a mutant's tests
_REQUIRED = 0.9
_NO_TESTS = (2, 3, 4, 5)  # pytest: the tests could not begin


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. kind: killed, survived, or stillborn (it does not compile)."""

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
    options = parser.parse_args()
    groups = options.group or [*SUITES]
    if options.list:
        for group in groups:
            for mutant in islice(draw(SUITES[group], options.seed), options.count):
                print(mutant.diff())
        return
    outcomes: list[Outcome] = []
    for group in groups:
        suite = SUITES[group]
        _must_be_committed(suite)
        if suite.native and not (_BUILD / "build.ninja").exists():
            sys.exit("[mutation] native files need the development build; try `make setup`")
        found: list[Outcome] = []
        for mutant in draw(suite, options.seed):
            if sum(o.kind != "stillborn" for o in found) == options.count:
                break
            outcome = _try(suite, mutant)
            found.append(outcome)
            print(
                f"{group}: {outcome.kind:9} {outcome.seconds:5.0f} s  "
                f"{mutant.path}:{mutant.number}  {changed_words(mutant)}  {outcome.by}",
                flush=True,
            )
        outcomes += [o for o in found if o.kind != "stillborn"]
    if any(SUITES[group].native for group in groups):
        _build(["_native"])
        _install()
    _report(outcomes)


def _report(outcomes: Sequence[Outcome]) -> None:
    survivors = [o for o in outcomes if o.kind == "survived"]
    for outcome in survivors:
        print(f"\nsurvived: {outcome.mutant.diff()}")
        print(f"  {outcome.reason or 'no reason known: add a test, or say why it is equivalent'}")
    count = len(outcomes) - sum(o.reason is not None for o in survivors)
    killed = len(outcomes) - len(survivors)
    print(
        f"\n{killed} of {count} mutants killed ({killed / max(count, 1):.1%}); "
        f"{len(outcomes) - count} more are equivalent"
    )
    if killed < _REQUIRED * count:
        sys.exit(1)


def _try(suite: Suite, mutant: Mutant) -> Outcome:
    """Runs the tests with the fault in its place, and takes it out again."""
    path = ROOT / mutant.path
    original = path.read_text()
    started = time.monotonic()
    try:
        path.write_text(mutant.text())
        kind, by = _tests(suite, mutant)
    finally:
        path.write_text(original)
    return Outcome(mutant, kind, by, time.monotonic() - started)


def _tests(suite: Suite, mutant: Mutant) -> tuple[str, str]:
    if suite.native:
        if not _build(suite.programs):
            return "stillborn", ""
        for program in suite.programs:
            if _run([str(_BUILD / "native" / "tests" / program), "--gtest_brief=1"]) != 0:
                return "killed", program
        if not _build(["_native"]):
            return "stillborn", ""
        _install()
    base = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    for test in suite.tests:
        code = _run([*base, test])
        if code in _NO_TESTS:
            return "stillborn", ""
        if code != 0:
            return "killed", test
    return "survived", ""


def _run(command: Sequence[str]) -> int:
    """The exit code; 1 for what does not end."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return 1
    return done.returncode


def _build(targets: Sequence[str]) -> bool:
    return _run(["cmake", "--build", str(_BUILD), "--target", *targets]) == 0


def _install() -> None:
    _run(["cmake", "--install", str(_BUILD), "--component", "python", "--prefix", "src"])


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
