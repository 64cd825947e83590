"""edgewise as a folder of another project, whose CMakeLists.txt names ExecuTorch's targets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from package_support import BUILD, ROOT, expected_top, run, top

# As ExecuTorch's page on XNNPACK prints it, with a C++ source of ours; then as its releases name
# the targets, linked whole by hand.
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES C CXX)
add_subdirectory("{ROOT}" executorch EXCLUDE_FROM_ALL)
add_executable(printed "{ROOT}/examples/cpp/main.cpp")
target_link_libraries(
    printed
    PRIVATE executorch
            executorch_module_static
            executorch_tensor
            optimized_native_cpu_ops_lib
            xnnpack_backend)
add_executable(released "{ROOT}/examples/cpp/main.cpp")
target_link_libraries(
    released
    PRIVATE executorch
            extension_module_static
            extension_tensor
            "$<LINK_LIBRARY:WHOLE_ARCHIVE,portable_ops_lib>"
            "$<LINK_LIBRARY:WHOLE_ARCHIVE,xnnpack_backend>")
add_executable(kernels EXCLUDE_FROM_ALL "{ROOT}/examples/cpp/main.cpp")
target_link_libraries(kernels PRIVATE executorch portable_ops_lib)
"""
# Compiled as build/dev is, so that most objects are those of that build, which ccache kept; and
# left there for the next run: from nothing it takes minutes.
AS_IN_DEV = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_POSITION_INDEPENDENT_CODE=ON")
FOLDER = ROOT / "build" / "subdirectory"


def configure(*options: str, build: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    """What CMake says of the project, configured with the compiler launcher of build/dev."""
    source = build.parent / f"{build.name}-source"
    source.mkdir(parents=True, exist_ok=True)
    file = source / "CMakeLists.txt"
    if not file.exists() or file.read_text() != PROJECT:
        file.write_text(PROJECT)
    launcher = shutil.which("ccache")
    kept = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else []
    known = (BUILD / "CMakeCache.txt").read_text()
    kept += [f"-D{line}" for line in known.splitlines() if line.startswith("EDGEWISE_WERROR")]
    command = ["cmake", "-S", source, "-B", build, "-G", "Ninja", *kept, *AS_IN_DEV, *options]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


@pytest.fixture(scope="module")
def built() -> Path:
    if not (BUILD / "build.ninja").exists():
        pytest.skip("the native build is not in build/dev: make native")
    done = configure("-DEXECUTORCH_BUILD_XNNPACK=ON")
    assert done.returncode == 0, done.stderr
    # As cmake/compiler_cache.cmake sets them.
    os.environ |= {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "true"}
    run("cmake", "--build", FOLDER)
    return FOLDER


@pytest.mark.slow
@pytest.mark.parametrize("name", ["printed", "released"])
def test_a_program_that_links_their_names_runs_a_model(
    name: str, built: Path, files: Path, model: torch.nn.Module, image: torch.Tensor
) -> None:
    got = top(run(built / name, files / "model.pte", files / "input.bin"))
    want = expected_top(model, image)
    assert [place for place, _ in got] == [place for place, _ in want]
    assert [value for _, value in got] == pytest.approx([value for _, value in want], abs=1e-5)


def test_only_libraries_are_made(built: Path) -> None:
    made = {file.name for file in (built / "executorch").rglob("*") if file.is_file()}
    assert "libedgewise_runtime.a" in made
    assert not {"edgewise_run", "libedgewise.so"} & made
    installed = (built / "cmake_install.cmake").read_text()
    assert "edgewise" not in installed.replace(str(ROOT), "")  # whatever the clone's folder is


def test_what_needs_the_backend_is_refused_without_it(tmp_path: Path) -> None:
    command = ["cmake", "-S", ROOT, "-B", tmp_path, "-DEXECUTORCH_BUILD_XNNPACK=OFF"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode != 0
    assert "EDGEWISE_BUILD_TOOLS needs the XNNPACK backend" in " ".join(done.stderr.split())
