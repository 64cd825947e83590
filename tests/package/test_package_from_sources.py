"""`pip install .` where something is missing: what is wrong and what to do, in two lines; and what
a source distribution holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("cmake", "ninja", "git", "find", "awk", "sh", "id", "touch")
COMPILERS = ("cc", "c++", "gcc", "g++", "as", "ld", "ar", "ranlib")
FLATC = ("flatc",)
BROKEN_APT = "#!/bin/sh\necho 'Could not resolve host' >&2\nexit 100\n"
ADVICE = "`pip install --only-binary edgewise edgewise`"


def configure(
    folder: Path,
    programs: tuple[str, ...],
    *options: str,
    apt: str = "",
    source: Path = ROOT,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Configures a build with these programs on PATH and no others."""
    path = folder / "path"
    path.mkdir()
    for name in (*TOOLS, *programs):
        # The machine's own before an environment's, which may have another flatc.
        found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") or shutil.which(name)
        if found is None:
            pytest.skip(f"needs {name}")
        (path / name).symlink_to(found)
    if apt:
        (path / "apt-get").write_text(apt)
        (path / "apt-get").chmod(0o755)
    known = {"PATH": str(path), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    known |= more
    words = ["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", *options]
    words += ["-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
    return subprocess.run(list(map(str, words)), env=known, capture_output=True, text=True)


def highway_stub(folder: Path) -> str:
    """The option that names sources in place of Highway's."""
    headers = folder / "highway" / "hwy"
    headers.mkdir(parents=True)
    version = "#define HWY_MAJOR 1\n#define HWY_MINOR 2\n#define HWY_PATCH 0\n"
    (headers / "base.h").write_text(version)
    for name in ("highway.h", "targets.cc", "abort.cc", "per_target.cc"):
        (headers / name).write_text("")
    return f"-DEDGEWISE_HIGHWAY_SOURCE_DIR={folder / 'highway'}"


CASES = {
    "no compiler": (FLATC, (), "", "needs compilers for C and C++20; got none of", ADVICE),
    "no flatbuffers": (COMPILERS, (), "", "the flatbuffers compiler and headers", "apt-get"),
    "no Highway": (
        (*COMPILERS, *FLATC),
        (),
        "",
        "Google Highway 1.2.0 or later is needed; got none (source directory: EDGEWISE_HIGHWAY_",
        ADVICE,
    ),
    "no XNNPACK": (
        (*COMPILERS, *FLATC),
        ("-DEDGEWISE_XNNPACK_PROVIDER=system",),
        "",
        "XNNPACK of November 2024 or later is needed; got none (installed library: none is",
        ADVICE,
    ),
    "no apt-get": (
        (*COMPILERS, *FLATC),
        (),
        "",
        "got none (source directory: EDGEWISE_XNNPACK_SOURCE_DIR is not set; installed library: "
        "none is installed; Debian's source package: this machine has no apt-get)",
        ADVICE,
    ),
    "no network": (
        (*COMPILERS, *FLATC),
        (),
        BROKEN_APT,
        "Debian's source package: apt has no repository",
        ADVICE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_told_in_two_lines(case: str, tmp_path: Path) -> None:
    programs, options, apt, problem, advice = CASES[case]
    headers = "-DEDGEWISE_FLATBUFFERS_INCLUDE_DIR=/usr/include"
    options = options if case == "no flatbuffers" else (*options, headers)
    if case != "no Highway":
        options = (*options, highway_stub(tmp_path))
    done = configure(tmp_path, programs, *options, apt=apt)
    assert done.returncode != 0, done.stdout
    told = [line.strip() for line in done.stderr.partition("Call Stack")[0].splitlines()]
    told = [line for line in told if line and not line.startswith("CMake Error")]
    assert len(told) == 2, done.stderr
    assert told[0].startswith("[edgewise] ")
    assert problem in told[0]
    assert told[1].startswith("try ")
    assert advice in told[1]


def test_the_compiler_that_pip_asks_for_is_missing(tmp_path: Path) -> None:
    """scikit-build-core sets what Python itself was built with."""
    done = configure(tmp_path, FLATC, CC="gcc -pthread", CXX="g++ -pthread")
    assert "got none of gcc on PATH" in done.stderr
    assert ADVICE in done.stderr


def other_flatc(file: Path) -> Path:
    """One of another version than the headers."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\necho 'flatc version 99.1.0'\n")
    file.chmod(0o755)
    return file


def test_a_flatbuffers_compiler_of_another_version_is_passed_by(tmp_path: Path) -> None:
    """As ExecuTorch's Python package puts one into its environment."""
    other = other_flatc(tmp_path / "environment" / "flatc")
    headers = "-DEDGEWISE_FLATBUFFERS_INCLUDE_DIR=/usr/include"
    path = f"{other.parent}:{tmp_path / 'path'}"
    done = configure(tmp_path, (*COMPILERS, *FLATC), headers, PATH=path)
    cache = (tmp_path / "build" / "CMakeCache.txt").read_text()
    assert f"EDGEWISE_FLATC:FILEPATH={tmp_path / 'path' / 'flatc'}" in cache, done.stderr
    assert "[edgewise] Google Highway" in done.stderr  # the next thing that is missing


def test_a_flatbuffers_compiler_that_does_not_fit_is_told(tmp_path: Path) -> None:
    other = other_flatc(tmp_path / "flatc")
    headers = "-DEDGEWISE_FLATBUFFERS_INCLUDE_DIR=/usr/include"
    done = configure(tmp_path, COMPILERS, headers, f"-DEDGEWISE_FLATC={other}")
    assert f"of one version are needed; got flatc: {other}, headers: /usr/include (" in done.stderr


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, without what is not in it."""
    folder = tmp_path_factory.mktemp("sdist")
    make = "from scikit_build_core.build import build_sdist as b; import sys; print(b(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", make, folder], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    return tree


def test_a_source_distribution_holds_what_builds(unpacked: Path) -> None:
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    kept = ("native/", "cmake/", "schema/", "src/", "licenses/", "tools/")
    missing = [f for f in listed if f.startswith(kept) and not (unpacked / f).exists()]
    assert missing == []
    assert not [*unpacked.rglob("_native*.so")]
    assert not (unpacked / "tests").exists()


XNNPACK_STUB = """
cmake_minimum_required(VERSION 3.16)
project(XNNPACK LANGUAGES C)
foreach(name XNNPACK microkernels-prod pthreadpool cpuinfo)
  file(WRITE "${CMAKE_BINARY_DIR}/${name}.c" "int edgewise_stub;")
  add_library(${name} STATIC "${CMAKE_BINARY_DIR}/${name}.c")
  install(TARGETS ${name} DESTINATION lib)
endforeach()
foreach(name CPUINFO PTHREADPOOL FXDIV)
  if(NOT EXISTS "${${name}_SOURCE_DIR}/CMakeLists.txt")
    message(FATAL_ERROR "${name}_SOURCE_DIR is not handed on")
  endif()
endforeach()
"""


def test_it_is_configured_offline_from_source_directories(unpacked: Path, tmp_path: Path) -> None:
    """Sources in place of XNNPACK's, of the form that its build has; nothing is asked of apt."""
    given = []
    for name in ("xnnpack", "cpuinfo", "pthreadpool", "fxdiv"):
        folder = tmp_path / name
        (folder / "include").mkdir(parents=True)
        (folder / "LICENSE").write_text("text")
        (folder / "CMakeLists.txt").write_text(XNNPACK_STUB)
        (folder / "include" / f"{name}.h").write_text("")
        given.append(f"-D{name.upper()}_SOURCE_DIR={folder}")
    given[0] = f"-DEDGEWISE_XNNPACK_SOURCE_DIR={tmp_path / 'xnnpack'}"
    given.append(highway_stub(tmp_path))
    given.append("-DEDGEWISE_FLATBUFFERS_INCLUDE_DIR=/usr/include")
    fails = "#!/bin/sh\ntouch $HOME/asked\nexit 100\n"
    done = configure(tmp_path, (*COMPILERS, *FLATC), *given, apt=fails, source=unpacked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"XNNPACK: {tmp_path / 'cache'}" in done.stdout
    assert not (tmp_path / "asked").exists()
    assert (tmp_path / "build" / "build.ninja").exists()
    assert os.listdir(tmp_path / "cache" / "edgewise")
