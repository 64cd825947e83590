"""The installed CMake package, used by a program outside of the tree."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from package_support import ROOT, configure_and_build, expected_top, run, top

# A user's own static library is linked between the program and edgewise: registrations survive it,
# and being linked twice.
STATIC_LIBRARY = """
cmake_minimum_required(VERSION 3.25)
project(in_between LANGUAGES CXX)
find_package(edgewise {version} REQUIRED)
add_library(names STATIC names.cpp)
target_link_libraries(names PRIVATE edgewise::kernels edgewise::xnnpack_backend)
add_executable(show main.cpp)
target_link_libraries(show PRIVATE names edgewise::kernels)
"""
NAMES = """
#include "edgewise/backend.h"
#include "edgewise/kernel.h"
size_t kernels() { return edgewise::kernel_names().size(); }
bool has_backend() { return edgewise::find_backend("XnnpackBackend") != nullptr; }
"""
MAIN = """
#include <cstdio>
size_t kernels();
bool has_backend();
int main() { std::printf("%zu %d\\n", kernels(), has_backend()); }
"""


@pytest.fixture(scope="module")
def program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("cpp")
    return configure_and_build(ROOT / "examples" / "cpp", build, prefix) / "run_model"


def test_the_example_runs_a_model(
    program: Path, files: Path, model: torch.nn.Module, image: torch.Tensor
) -> None:
    got = top(run(program, files / "model.pte", files / "input.bin"))
    want = expected_top(model, image)
    assert [place for place, _ in got] == [place for place, _ in want]
    assert [value for _, value in got] == pytest.approx([value for _, value in want], abs=1e-5)


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples/cpp/main.cpp").read_text().splitlines()) <= 40


def test_registrations_survive_a_static_library(prefix: Path, tmp_path: Path) -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    (tmp_path / "CMakeLists.txt").write_text(STATIC_LIBRARY.format(version=version[1]))
    (tmp_path / "names.cpp").write_text(NAMES)
    (tmp_path / "main.cpp").write_text(MAIN)
    build = configure_and_build(tmp_path, tmp_path / "build", prefix)
    count, has_backend = run(build / "show").split()
    # In a process of its own: other tests add kernels to this one's.
    names = "import edgewise.runtime as r; print(*r.Runtime.get().operator_registry.operator_names)"
    own = [n for n in run(sys.executable, "-c", names).split() if "edgewise_" not in n]
    assert int(count) == len(own) > 200
    assert has_backend == "1"
