"""What `make check` runs before a commit: lint of what changed, fast tests, tests of what changed.

Changed is what differs from `main` (or from --since), committed or not. Tests of a module are
those that import it, and those whose file has its name. All of it has 60 seconds: tests that are
not through by then are named, and are for `make test`.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SECONDS = 60.0
FAST = ["tests/test_files.py", "tests/test_closeness.py", "tests/test_passes.py"]
NOT_HERE = "not slow and not cross and not matrix and not peer and not browser and not ray"


def changed_files(since: str) -> list[Path]:
    """Relative to the repository, those that still exist."""
    base = _git("merge-base", since, "HEAD").strip() or "HEAD"
    names = _git("diff", "--name-only", base).split()
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


def test(files: Sequence[str], seconds: float) -> bool:
    """Whether none failed in that time; files that were not through are told."""
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-m", NOT_HERE, *files]
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
    if arguments.list:
        print("\n".join(files))
        return 0
    good = lint(changed)
    good = test(files, SECONDS - (time.monotonic() - start)) and good
    taken = time.monotonic() - start
    print(f"check: {'clean' if good else 'failed'}, {len(changed)} files, {taken:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
