"""`make matrix`: the oldest and the newest Python and torch that pyproject.toml allows.

    python tests/versions/matrix.py [oldest] [newest]

For each pair: an environment in ~/.cache/edgewise/matrix, made once; a wheel of this tree, made by
that Python or, from 3.12 on, by any later one (the stable ABI); the tests marked `matrix`, and the
nets of tests/interop/releases lowered, run and compared with eager PyTorch. Interpreters are looked
for on PATH and among pyenv's; Debian's newest is unpacked beside (tools/debian_python.sh).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from edgewise.files import own_folder

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from pythons import builder, interpreter  # noqa: E402

CACHE = Path.home() / ".cache" / "edgewise" / "matrix"


@dataclass(frozen=True)
class Pair:
    python: str
    torch: str
    torchao: str


PAIRS = {
    "oldest": Pair("3.10", "2.12.0", "0.17.0"),
    "newest": Pair("3.14", "2.15.0", "0.18.0"),
}
PACKAGES = (
    "numpy>=1.26,<3", "flatbuffers>=25,<26", "rich>=13.8,<16", "sympy>=1.13,<2", "networkx>=3,<4",
    "jinja2>=3.1,<4", "filelock>=3,<5", "fsspec>=2024.6,<2027", "typing_extensions>=4.12,<5",
    "setuptools>=70,<90", "pytest>=9,<10", "hypothesis>=6,<7",
)  # fmt: skip
"""What torch, this package and its tests import."""
BUILD_PACKAGES = ("pip>=23,<30", "scikit-build-core>=1.1,<2", "nanobind>=3.1,<4", "numpy>=1.26,<3")


def run(*command: str | Path, **more: str) -> None:
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **more})


def debian_folder(version: str) -> Path:
    """Where tools/debian_python.sh unpacks that version."""
    return CACHE / f"debian-python{version}"


def debian_bin(version: str) -> Path:
    return debian_folder(version) / "usr" / "bin"


def environment(pair: Pair) -> Path:
    """The pair's Python, with torch and what else is needed."""
    folder = own_folder(CACHE) / f"py{pair.python}-torch{pair.torch}"
    python = folder / "bin" / "python"
    if (folder / ".complete").exists():
        return python
    base = interpreter(pair.python, [debian_bin(pair.python)])
    if base is None:
        run(ROOT / "tools" / "debian_python.sh", pair.python, debian_folder(pair.python))
        base = interpreter(pair.python, [debian_bin(pair.python)])
    if base is None:
        raise SystemExit(f"[matrix] needs Python {pair.python}; try putting it on PATH")
    print(f"environment: Python {pair.python}, torch {pair.torch}", flush=True)
    run(base, "-m", "venv", "--clear", "--without-pip", folder)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
    run(*pip, "--no-cache-dir", "--no-deps", f"torch=={pair.torch}", f"torchao=={pair.torchao}")
    run(*pip, *PACKAGES)
    (packages,) = folder.glob("lib/python*/site-packages")
    if (packages / "torch" / "lib" / "libtorch_cuda.so").exists():
        run(sys.executable, ROOT / "tools" / "cuda_stubs.py", packages)
    (folder / ".complete").touch()
    return python


def wheel(version: str) -> Path:
    """A wheel of this tree for that Python, in build/matrix."""
    python = builder(version)
    folder = ROOT / "build" / "matrix" / python.name
    tools = folder.with_name(f"tools-{python.name}")
    if not (tools / ".complete").exists():
        run(python, "-m", "venv", "--clear", "--without-pip", tools)
        pip = [sys.executable, "-m", "pip", "--python", str(tools / "bin" / "python")]
        run(*pip, "install", "-q", *BUILD_PACKAGES)
        (tools / ".complete").touch()
    shutil.rmtree(folder, ignore_errors=True)
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", folder]
    run(tools / "bin" / "python", "-m", "pip", "wheel", *options, ROOT)
    (made,) = folder.glob("*.whl")
    print(f"wheel: {made.name}", flush=True)
    return made


def marked() -> list[Path]:
    """Files with tests that are marked `matrix`: others may import what is not there."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file for file in files if "mark.matrix" in file.read_text()]


def check(pair: Pair) -> bool:
    """Whether all tests of the pair pass."""
    python = environment(pair)
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "-q", "--no-deps", "--force-reinstall", wheel(pair.python))
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "matrix", *marked()]
    nets = [python, "-W", "ignore", HERE / "nets_here.py"]
    codes = [subprocess.run(list(map(str, c)), cwd=ROOT).returncode for c in (tests, nets)]
    return not any(codes)


def main() -> int:
    names = sys.argv[1:] or list(PAIRS)
    passed = {}
    for name in names:
        pair = PAIRS[name]
        print(f"{name}: Python {pair.python}, torch {pair.torch}", flush=True)
        passed[name] = check(pair)
    print(", ".join(f"{name} {'passed' if good else 'failed'}" for name, good in passed.items()))
    return int(not all(passed.values()))


if __name__ == "__main__":
    sys.exit(main())
