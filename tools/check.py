"""What `make check` runs before a commit: lint of what changed, fast tests, tests of what changed.

Changed is what differs from `main` (or from --since), committed or not. Tests of a module are
those that import it, and those whose file has its name. Of an operator's definition or its cases,
the cases that changed lines name. Of native code, the tests of its library; of a file of kernels,
those of its operators. All of it has 60 seconds: tests that are not through by then are named, and
are for `make test`.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SECONDS = 60.0
FAST = ["tests/test_files.py", "tests/test_closeness.py", "tests/test_passes.py"]
NOT_HERE = "not slow and not cross and not matrix and not peer and not browser and not ray"


def changed_files(since: str) -> list[Path]:
    """Relative to the repository, those that still exist."""
    names = _git("diff", "--name-only", _base(since)).split()
    names += _git("ls-files", "--others", "--exclude-standard").split()
    return [Path(name) for name in dict.fromkeys(names) if (ROOT / name).is_file()]


def tests_of(changed: Sequence[Path]) -> list[str]:
    """Test files: changed ones, those that import a changed module, and those of its name."""
    modules = {_module(path) for path in changed if path.parts[0] == "src"}
    stems = {path.stem for path in changed if path.parts[0] == "src"} - {"__init__"}
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT)
        if name in changed or any(path.stem.endswith(f"_{stem}") for stem in stems):
            found.insert(0, str(name))
        elif modules & _imports(path):
            found.append(str(name))
    return found


def cases_of(differences: Mapping[Path, str]) -> dict[str, list[str]]:
    """By test file of a backend's operators, the names in changed lines of their definitions and
    cases, and of the functions around these lines. differences: by file, as `git diff` gives them.
    """
    found: dict[str, set[str]] = {}
    for path, difference in differences.items():
        is_definition = (
            path.parts[:3] == ("src", "edgewise", "backends") and "operators" in path.parts
        )
        is_case = path.parts[:2] == ("tests", "backends") and path.stem.endswith("_cases")
        if not is_definition and not is_case:
            continue
        backend = path.parts[3] if is_definition else path.parts[2]
        names = {name for hit in _NAMES.findall(difference) for name in hit if name}
        for test in sorted((ROOT / "tests" / "backends" / backend).glob("test_*_rows.py")):
            found.setdefault(str(test.relative_to(ROOT)), set()).update(names)
    return {test: sorted(names) for test, names in found.items() if names}


_NAMES = re.compile(
    r"""^@@.*?\bdef\ _*(\w+) | ^[+-].*?\baten\.(\w+) | ^[+-]\s*(?:_?\w*\()?"([a-z]\w*)"[:,]""",
    re.MULTILINE | re.VERBOSE,
)


def native_tests_of(changed: Sequence[Path]) -> str:
    """A pattern of the names of native tests, for ctest; empty if nothing of theirs changed."""
    found = []
    for path in changed:
        if path.parts[0] != "native":
            continue
        if path.parts[1] == "kernels" and path.suffix == ".cpp":
            named = re.findall(r'"(\w+)::(\w+)', (ROOT / path).read_text(encoding="utf-8"))
            found += [f"/{space}_{name}$" for space, name in named]
        found += [f"^{part}[.]" for part in ("core", "xnnpack") if part in path.parts]
    return "|".join(dict.fromkeys(found))


def _differences(since: str, changed: Sequence[Path]) -> dict[Path, str]:
    base = _base(since)
    return {path: _git("diff", "-U0", base, "--", str(path)) for path in changed}


def _base(since: str) -> str:
    """The commit that what changed is compared with."""
    return _git("merge-base", since, "HEAD").strip() or "HEAD"


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def lint(changed: Sequence[Path]) -> bool:
    """Whether it is clean."""
    python = [str(p) for p in changed if p.suffix == ".py"]
    native = [str(p) for p in changed if p.suffix in (".h", ".cpp") and p.parts[0] == "native"]
    good = True
    if python:
        good &= _run([str(BIN / "ruff"), "check", "--quiet", "--force-exclude", *python])
        good &= _run(
            [str(BIN / "ruff"), "format", "--quiet", "--check", "--force-exclude", *python]
        )
    if any(name.startswith("src/") for name in python):
        good &= _run([str(BIN / "lint-imports"), "--cache-dir", "build/imports"], quiet=True)
    if native:
        good &= _run(["clang-format", "--dry-run", "-Werror", *native])
    return good


def python_tests(files: Sequence[str], seconds: float, names: Sequence[str] = ()) -> bool:
    """Whether none failed in that time; files that were not through are told.

    names: of cases; none for all of them.
    """
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-m", NOT_HERE, *files]
    if names:
        command += ["-k", " or ".join(names)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=max(seconds, 0.1), capture_output=True, text=True
        )
    except subprocess.TimeoutExpired as late:
        begun = through(files, (late.stdout or b"").decode(errors="replace"))
        print(f"check: no time for {', '.join(files[begun:])}; try make test")
        return True
    if done.returncode not in (0, 5):  # 5: every test was left out
        print(done.stdout + done.stderr)
        return False
    return True


def native_tests(pattern: str, seconds: float) -> bool:
    """Whether none of ctest's tests with such a name failed in that time."""
    command = ["ctest", "--test-dir", "build/dev", "--output-on-failure", "-j", "2", "-R", pattern]
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=max(seconds, 0.1), capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        print("check: no time for all native tests; try make ctest")
        return True
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def through(files: Sequence[str], told: str) -> int:
    """How many of the files pytest has left behind it, by what it told with -v."""
    begun = [number for number, file in enumerate(files) if f"{file}::" in told]
    return max(begun, default=0)


def _run(command: Sequence[str], quiet: bool = False) -> bool:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        print(f"check: {command[0]} must be installed; try make setup")
        return False
    if done.returncode:
        print(done.stdout + done.stderr)
    elif not quiet and done.stdout.strip():
        print(done.stdout)
    return done.returncode == 0


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="main", help="a commit or branch (main)")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    arguments = parser.parse_args()
    start = time.monotonic()
    changed = changed_files(arguments.since)
    files = list(dict.fromkeys([*tests_of(changed), *FAST]))
    cases = cases_of(_differences(arguments.since, changed))
    native = native_tests_of(changed)
    if arguments.list:
        named = [f"{file} -k '{' or '.join(names)}'" for file, names in cases.items()]
        print("\n".join([*named, *files, *([f"ctest -R '{native}'"] if native else [])]))
        return 0

    def left() -> float:
        return SECONDS - (time.monotonic() - start)

    good = lint(changed)
    for file, names in cases.items():
        good = python_tests([file], left(), names) and good
    if native:
        good = native_tests(native, left()) and good
    good = python_tests(files, left()) and good
    taken = time.monotonic() - start
    print(f"check: {'clean' if good else 'failed'}, {len(changed)} files, {taken:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
