"""Runs a suite's tests, and says what stopped them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mutation.reach import Reach
from mutation.suites import ROOT, Suite

BUILD = ROOT / "build" / "dev"
_NOTES = ROOT / "build" / "mutation"
_LIMIT = 900.0  # seconds for one step of a mutant's tests
_WHOLE = 3600.0  # for all tests as they are
_FAILED, _UNKNOWN_TEST = 1, 4
_NOT_BEGUN = (2, 3, 4, 5)  # pytest: no test could begin


@dataclass(frozen=True)
class Verdict:
    """kind: killed, survived, or stillborn (it does not compile). by: the test that failed."""

    kind: str
    by: str = ""


def measure(group: str, suite: Suite, *, again: bool = False) -> Reach | None:
    """Runs the tests as they are; for Python also which of them run which line.

    again: takes the notes of the run before. Raises SystemExit if the tests fail without a fault.
    """
    if suite.native:
        verdict = native(suite)
        if verdict.kind != "survived":
            sys.exit(f"[mutation] tests must pass without a fault; got {verdict}; try `make test`")
        return None
    notes = _NOTES / f"{group.replace(' ', '-')}.json"
    if not again or not notes.exists():
        _NOTES.mkdir(parents=True, exist_ok=True)
        watched = [f"--reach-of={path}" for path in suite.paths()]
        options = ["-p", "mutation.reach", f"--reach={notes}", *watched]
        code, output = _pytest([*options, *suite.tests], _WHOLE)
        if code != 0:
            sys.exit(f"[mutation] tests must pass without a fault; got\n{output[-2000:]}")
    return Reach.load(notes)


def python(suite: Suite, tests: Sequence[str]) -> Verdict:
    """The tests that run a faulty line, until one fails."""
    if not tests:
        return Verdict("survived", "no test runs the line")
    chosen = _NOTES / "tests.txt"
    chosen.write_text("\n".join(tests))
    verdict, code = _tested([f"@{chosen}"])
    # A fault can change which tests a table makes.
    return _tested(suite.tests)[0] if code == _UNKNOWN_TEST else verdict


def native(suite: Suite) -> Verdict:
    """Builds and runs the programs, then what Python tests of the module."""
    if not build(suite.programs):
        return Verdict("stillborn")
    for program in suite.programs:
        command = [str(BUILD / "native" / "tests" / program), "--gtest_brief=1"]
        code, output = _run(command)
        if code != 0:
            failed = re.search(r"\[  FAILED  \] (\S+)", output)
            return Verdict("killed", failed[1] if failed else f"{program}: exit code {code}")
    if not suite.tests:
        return Verdict("survived")
    if not install():
        return Verdict("stillborn")
    return _tested(suite.tests)[0]


def build(targets: Sequence[str]) -> bool:
    """Whether it compiles."""
    return _run(["cmake", "--build", str(BUILD), "--target", *targets])[0] == 0


def install() -> bool:
    """Builds the Python module and puts it beside the sources."""
    command = ["cmake", "--install", str(BUILD), "--component", "python", "--prefix", "src"]
    return build(["_native"]) and _run(command)[0] == 0


def _tested(arguments: Sequence[str]) -> tuple[Verdict, int]:
    code, output = _pytest(["-x", *arguments])
    if code in _NOT_BEGUN:
        return Verdict("stillborn"), code
    if code == 0:
        return Verdict("survived"), code
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    return Verdict("killed", failed[1] if failed else f"exit code {code}"), code


def _pytest(arguments: Sequence[str], limit: float = _LIMIT) -> tuple[int, str]:
    return _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], limit)


def _run(command: Sequence[str], limit: float = _LIMIT) -> tuple[int, str]:
    """The exit code and what it said; 1 for what does not end."""
    path = os.pathsep.join([str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return _FAILED, f"[  FAILED  ] nothing after {limit:.0f} s"
    return done.returncode, done.stdout.decode(errors="replace")
