"""Wheels for macOS 11 and later on 64-bit Arm, in dist/wheels/macos; to be run on such a Mac.

    python tools/macos_wheels.py SOURCES [--python 3.10 3.11 3.12]

SOURCES is what cmake/fetch_sources.cmake made on a Debian; a folder `kleidiai` in it, a clone of
Arm's project, is used as well. Each wheel is made by its own Python
(from 3.12 on one serves all that follow), may need nothing but the system's libraries, and is
installed with torch into an environment of its own, where a model is lowered and run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from pythons import STABLE, builder
from wheels import BUILD_PACKAGES, LARGEST, OUT, WORK, run, time_of_commit, tools

CHECK_PACKAGES = ("delocate>=0.13,<0.14", "abi3audit>=0.0.22,<0.1")
OLDEST = "11.0"
FOLDERS = {"EDGEWISE_XNNPACK": "xnnpack", "CPUINFO": "cpuinfo", "PTHREADPOOL": "pthreadpool",
           "FXDIV": "fxdiv", "EDGEWISE_HIGHWAY": "highway"}  # fmt: skip
"""What CMake calls a source directory, and its folder."""
TRY = """
import tempfile, torch, edgewise
torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(2), torch.nn.Linear(36, 10)
model, x = torch.nn.Sequential(*layers, torch.nn.Softmax(-1)).eval(), torch.rand(1, 3, 8, 8)
with tempfile.TemporaryDirectory() as folder:
    edgewise.compile(model, (x,), verbose=False).save(folder + "/model.pte")
    got = torch.as_tensor(edgewise.load(folder + "/model.pte")(x.numpy()))
torch.testing.assert_close(got, model(x).detach(), rtol=1e-5, atol=1e-6)
"""


def build(version: str, sources: Path) -> Path:
    python = tools(version, builder(version), BUILD_PACKAGES)
    folder, native = WORK / f"macos-{version}", WORK / "native-macos"
    for old in (folder, native):
        shutil.rmtree(old, ignore_errors=True)
    settings = [f"cmake.define.{name}_SOURCE_DIR={sources / at}" for name, at in FOLDERS.items()]
    settings += [f"build-dir={native}", "cmake.define.XNNPACK_ENABLE_KLEIDIAI=OFF"]
    if (kleidiai := sources / "kleidiai").is_dir():
        settings.append(f"cmake.define.EDGEWISE_KLEIDIAI_SOURCE_DIR={kleidiai}")
    options = [part for setting in settings for part in ("-C", setting)]
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", *options,
        "-w", folder, Path(__file__).parents[1], SOURCE_DATE_EPOCH=time_of_commit(),
        MACOSX_DEPLOYMENT_TARGET=OLDEST)  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def check(version: str, made: Path) -> Path:
    """The wheel, in OUT."""
    python = tools("check-macos", Path(sys.executable), CHECK_PACKAGES)
    wanted = f"macosx_{OLDEST.replace('.', '_')}_arm64"
    if wanted not in made.name:
        raise SystemExit(f"[macos_wheels] {made.name} must be {wanted}")
    needed = run(python.with_name("delocate-listdeps"), "--all", made).split()
    others = [name for name in needed if not name.startswith("/usr/lib/")]
    if others:
        raise SystemExit(f"[macos_wheels] {made.name} may need the system alone; got {others}")
    if tuple(map(int, version.split("."))) >= STABLE:
        run(python, "-m", "abi3audit", "--strict", made)
    size = made.stat().st_size
    if size > LARGEST["full"]:
        raise SystemExit(f"[macos_wheels] {made.name} may have {LARGEST['full']} bytes; got {size}")
    folder = OUT / "macos"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(made, folder / made.name))


def attempt(version: str, wheel: Path) -> None:
    folder = WORK / "tried-macos" / version
    shutil.rmtree(folder, ignore_errors=True)
    run(builder(version), "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", f"edgewise[export] @ {wheel.as_uri()}")
    run(python, "-c", TRY)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=Path, help="folders of cmake/fetch_sources.cmake")
    parser.add_argument("--python", nargs="+", default=["3.10", "3.11", "3.12"])
    given = parser.parse_args()
    if sys.platform != "darwin":
        raise SystemExit(f"[macos_wheels] this runs on a Mac; got {sys.platform}")
    WORK.mkdir(parents=True, exist_ok=True)
    for version in given.python:
        wheel = check(version, build(version, given.sources.resolve()))
        attempt(version, wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB; ran here", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
