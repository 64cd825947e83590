"""The archive for Android, of libraries that this machine's compilers and Debian's cross compilers
make with the same options: its layout, what CMake makes of it, and libraries that it refuses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import aar  # noqa: E402
import elf  # noqa: E402
import java_classes  # noqa: E402

JNI = [
    f"Java_org_edgewise_Native_{name}" for name in ("freeProgram", "methodName", "run_1", "n_000e4")
]
NATIVE = """package org.edgewise;
final class Native {
  static native void freeProgram(long program);
  static native byte[] methodName(long program, int index);
  native double run_(double[] of, String with);
  static native void n\\u00e4();
  static final long BIG = 1L << 40;
  static double called(double x) { return x * 2.5 + BIG; }
}
"""
COMPILERS = {
    "x86_64": "gcc",
    "arm64-v8a": "aarch64-linux-gnu-gcc",
    "armeabi-v7a": "arm-linux-gnueabihf-gcc",
}
LINUX = {"libc.so.6", "ld-linux-x86-64.so.2"}
PAGES = "-Wl,-z,max-page-size=16384"
SMALL = "-Wl,-z,max-page-size=4096"


def library(folder: Path, abi: str, *flags: str, functions: list[str], code: str = "") -> Path:
    """A shared library that exports the functions."""
    compiler = shutil.which(COMPILERS[abi])
    if compiler is None:
        pytest.skip(f"needs {COMPILERS[abi]}: tools/install_cross.sh")
    source, made = folder / f"{abi}.c", folder / abi / aar.LIBRARY
    source.write_text("\n".join([*(f"void {one}(void) {{}}" for one in functions), code]))
    made.parent.mkdir(exist_ok=True)
    command = [compiler, "-shared", "-fPIC", source, "-o", made, "-nostdlib"]
    subprocess.run([*command, f"-Wl,-soname,{aar.LIBRARY}", *flags], check=True)
    return made


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a class with native methods."""
    if shutil.which("javac") is None:
        pytest.skip("needs javac: tools/install_cross.sh java")
    folder = tmp_path_factory.mktemp("jar")
    (folder / "Native.java").write_text(NATIVE)
    command = ["javac", "--release", "8", "-Xlint:-options", "-d", folder, folder / "Native.java"]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(folder / "edgewise.jar", "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        archive.write(folder / "org/edgewise/Native.class", "org/edgewise/Native.class")
    return folder / "edgewise.jar"


def test_names_of_native_methods(jar: Path) -> None:
    assert java_classes.jni_functions(jar) == {*JNI}


def test_the_header_names_its_functions() -> None:
    found = aar.c_functions()
    assert {"edgewise_program_load_file", "edgewise_make_tensor", "edgewise_version"} <= found
    assert len(found) == aar.HEADER.read_text().count("\nEDGEWISE_API")


ALL = ["edgewise_version", *JNI]
# What is wrong | further flags | functions | code | what is told.
REFUSED: dict[str, tuple[list[str], list[str], str, list[str]]] = {
    "nothing": ([PAGES], ALL, "", []),
    "larger pages": (["-Wl,-z,max-page-size=65536"], ALL, "", []),
    "small pages": ([SMALL], ALL, "", ["segments must be aligned to 16384"]),
    "a function is missing": (
        [PAGES],
        ALL[:-1],
        "",
        [f"all functions must be exported; got none named {JNI[-1]}"],
    ),
    "one is hidden": (
        [PAGES, "-Wl,--version-script={folder}/map"],
        ALL,
        "",
        ["all functions must be exported; got none named edgewise_version"],
    ),
    "one more": (
        [PAGES],
        [*ALL, "zlibVersion"],
        "",
        ["no more may be exported than edgewise.h and the classes name; got zlibVersion"],
    ),
    "another library": (
        [PAGES, "-Wl,--no-as-needed", "-lm"],
        ALL,
        "",
        ["the library may need libc.so, libdl.so, liblog.so, libm.so; got libm.so.6"],
    ),
    "another name": (
        [PAGES, "-Wl,-soname,libother.so"],
        ALL,
        "",
        ["the library must be named libedgewise_jni.so; got libother.so"],
    ),
    "a stack with code": (
        [PAGES, "-Wl,-z,execstack"],
        ALL,
        "",
        ["the stack must not be executable"],
    ),
    "relocated code": (
        [PAGES, "-Wl,-z,notext"],
        ALL,
        'static int here; asm(".text\\n.quad edgewise_version\\n");',
        ["code must not be relocated"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_libraries_of_64_bits(case: str, tmp_path: Path) -> None:
    flags, functions, code, told = REFUSED[case]
    (tmp_path / "map").write_text("{ global: Java_*; local: *; };")
    flags = [flag.format(folder=tmp_path) for flag in flags]
    path = library(tmp_path, "x86_64", *flags, functions=functions, code=code)
    found = aar.problems(path, "x86_64", ALL)
    assert len({problem.split("; ")[0] for problem in found}) == len(told), found
    assert all(problem.startswith("[x86_64] ") for problem in found)
    for text in told:
        assert any(text in problem for problem in found), (text, found)


@pytest.mark.parametrize("flag", ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"])
@pytest.mark.parametrize("abi", COMPILERS)
def test_each_machine_and_kind_of_hash_table(abi: str, flag: str, tmp_path: Path) -> None:
    path = library(tmp_path, abi, PAGES, flag, functions=ALL)
    assert aar.problems(path, abi, ALL) == []
    for other in {*COMPILERS} - {abi}:
        assert "the library must be for" in aar.problems(path, other, ALL)[0]


PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(pages C)
include({ROOT}/cmake/page_size.cmake)
add_library(pages SHARED pages.c)
edgewise_page_size(pages)
"""


@pytest.mark.parametrize(("given", "found"), [("", None), ("16384", 16384), ("65536", 65536)])
@pytest.mark.parametrize("toolchain", ["", "linux-aarch64.cmake"])
def test_the_option_of_cmake(toolchain: str, given: str, found: int | None, tmp_path: Path) -> None:
    """Without it the linker's own: 4096 on x86-64, 65536 on 64-bit Arm Linux."""
    if toolchain and shutil.which(COMPILERS["arm64-v8a"]) is None:
        pytest.skip("needs a cross compiler: tools/install_cross.sh aarch64")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "pages.c").write_text("int x = 1;\n")
    command = ["cmake", "-S", tmp_path, "-B", tmp_path, "-G", "Ninja"]
    command.append(f"-DEDGEWISE_MAX_PAGE_SIZE={given}")
    if toolchain:
        command.append(f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/toolchains/{toolchain}")
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True, capture_output=True)
    segments = elf.read(tmp_path / "libpages.so").segments
    own = 65536 if toolchain else 4096
    assert {segment.align for segment in segments} == {found or own}


def test_32_bits_may_have_small_pages(tmp_path: Path) -> None:
    path = library(tmp_path, "armeabi-v7a", SMALL, functions=ALL)
    assert {segment.align for segment in elf.read(path).segments} == {4096}
    assert aar.problems(path, "armeabi-v7a", ALL) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\2\1\1" + bytes(99)])
def test_what_is_no_library(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    (problem,) = aar.problems(tmp_path / "file", "x86_64", ALL)
    assert problem.startswith("[elf] ")


# ---- the whole


def arguments(folder: Path, jar: Path, libraries: dict[str, Path]) -> list[str]:
    licences = folder / "licences"
    licences.mkdir(exist_ok=True)
    for name in ("edgewise", "xnnpack", "nanobind"):
        (licences / f"{name}.txt").write_text(f"terms of {name}\n")
    (folder / "parts.txt").write_text("XNNPACK=1=ab\nlibc++=18.0.1\n")
    return [
        "--out", str(folder / "out"), "--jar", str(jar), "--licences", str(licences),
        "--parts", str(folder / "parts.txt"), "--ndk", "27", "--api", "24",
        *(f"--library={abi}={path}" for abi, path in libraries.items()),
        *(f"--needs={name}" for name in sorted(LINUX)),
    ]  # fmt: skip


def test_layout(jar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    functions = sorted(aar.c_functions() | {*JNI})
    libraries = {
        abi: library(tmp_path, abi, PAGES, functions=functions)
        for abi, compiler in COMPILERS.items()
        if shutil.which(compiler)
    }
    given = arguments(tmp_path, jar, libraries)
    assert aar.main(given) == 0, capsys.readouterr().err
    made, folder = tmp_path / "out" / "edgewise.aar", tmp_path / "out" / "edgewise"
    first = made.read_bytes()
    assert aar.main(given) == 0
    assert made.read_bytes() == first  # the same bytes
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    on_disk = [path for path in folder.rglob("*") if path.is_file()]
    assert {str(path.relative_to(folder)): path.read_bytes() for path in on_disk} == files
    module = "prefab/modules/edgewise"
    assert {*files} == {
        "AndroidManifest.xml", "R.txt", "classes.jar", "proguard.txt", "edgewise.cdx.json",
        "cmake/edgewise-config.cmake", "cmake/edgewise-config-version.cmake",
        "licenses/edgewise.txt", "licenses/xnnpack.txt",
        "prefab/prefab.json", f"{module}/module.json", f"{module}/include/edgewise.h",
        *(f"{module}/libs/android.{abi}/abi.json" for abi in libraries),
        *(f"{module}/libs/android.{abi}/{aar.LIBRARY}" for abi in libraries),
        *(f"jni/{abi}/{aar.LIBRARY}" for abi in libraries),
    }  # fmt: skip
    manifest = ElementTree.fromstring(files["AndroidManifest.xml"])
    assert manifest.get("package") == "org.edgewise"
    uses = manifest.find("uses-sdk")
    assert uses is not None
    assert uses.get("{http://schemas.android.com/apk/res/android}minSdkVersion") == "24"
    assert json.loads(files["prefab/prefab.json"])["schema_version"] == 2
    assert json.loads(files[f"{module}/module.json"])["library_name"] + ".so" == aar.LIBRARY
    assert json.loads(files[f"{module}/libs/android.x86_64/abi.json"]) == {
        "abi": "x86_64", "api": 24, "ndk": 27, "stl": "none", "static": False,
    }  # fmt: skip
    names = {part["name"] for part in json.loads(files["edgewise.cdx.json"])["components"]}
    assert names == {"XNNPACK", "libc++"}
    assert java_classes.jni_functions(folder / "classes.jar") == {*JNI}
    for abi, path in libraries.items():
        assert files[f"jni/{abi}/{aar.LIBRARY}"] == path.read_bytes()


def test_nothing_is_written_for_a_wrong_library(
    jar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    functions = sorted((aar.c_functions() | {*JNI}) - {JNI[0]})
    path = library(tmp_path, "x86_64", SMALL, functions=functions)
    assert aar.main(arguments(tmp_path, jar, {"x86_64": path})) == 1
    told = capsys.readouterr().err
    assert "[x86_64] segments must be aligned to 16384 bytes" in told
    assert f"got none named {JNI[0]}" in told
    assert not (tmp_path / "out").exists()


def test_a_part_without_its_terms(
    jar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = library(tmp_path, "x86_64", PAGES, functions=sorted(aar.c_functions() | {*JNI}))
    given = arguments(tmp_path, jar, {"x86_64": path})
    (tmp_path / "licences" / "xnnpack.txt").unlink()
    assert aar.main(given) == 1
    assert "[licences] each part must have its terms" in capsys.readouterr().err


def test_cmake_without_gradle(jar: Path, tmp_path: Path) -> None:
    """examples/c, linked with a library of this machine as if it were Android's."""
    path = library(tmp_path, "x86_64", PAGES, functions=sorted(aar.c_functions() | {*JNI}))
    assert aar.main(arguments(tmp_path, jar, {"x86_64": path})) == 0
    build = tmp_path / "build"
    command = ["cmake", "-S", ROOT / "examples/c", "-B", build, "-G", "Ninja"]
    command.append(f"-Dedgewise_DIR={tmp_path}/out/edgewise/cmake")
    done = subprocess.run([*command, "-DANDROID_ABI=x86"], capture_output=True, text=True)
    assert "the archive has no library for the ABI 'x86'" in done.stderr
    subprocess.run([*command, "-DANDROID_ABI=x86_64"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    (program,) = (one for one in build.glob("*") if one.is_file() and os.access(one, os.X_OK))
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    assert f"[{aar.LIBRARY}]" in needed.stdout


# ---- with what was built here


BUILD = ROOT / "build" / "dev" / "native" / "java"


@pytest.mark.parametrize(("flags", "small"), [([], True), ([PAGES], False)], ids=["as is", "pages"])
def test_the_real_library(flags: list[str], small: bool, tmp_path: Path) -> None:
    """As it was linked here, and linked again for large pages: it exports what the classes and the
    header name, and differs from Android's in what it needs."""
    if not (BUILD / "edgewise.jar").exists():
        pytest.skip("nothing built for Java: make java")
    command = ["ninja", "-C", ROOT / "build/dev", "-t", "commands", f"native/java/{aar.LIBRARY}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    link = said.splitlines()[-1].replace(f"-o native/java/{aar.LIBRARY}", f"-o {tmp_path}/made")
    assert f"{tmp_path}/made" in link
    script = " ".join([link.removesuffix(" && :"), *flags])
    subprocess.run(["sh", "-c", script], cwd=ROOT / "build/dev", check=True)
    functions = aar.c_functions() | java_classes.jni_functions(BUILD / "edgewise.jar")
    assert len(functions) > 50
    found = aar.problems(tmp_path / "made", "x86_64", functions)
    rules = {problem.split("; ")[0].partition("] ")[2].split(" (")[0] for problem in found}
    pages = {"segments must be aligned to 16384 bytes"} if small else set()
    assert rules == {"the library may need libc.so, libdl.so, liblog.so, libm.so"} | pages


# ---- the NDK


@pytest.mark.parametrize(
    ("revision", "told"),
    [
        (None, "[android] ANDROID_NDK_HOME or ANDROID_NDK_ROOT must be the folder of an NDK"),
        ("25.2.9519653", "[android] the NDK must be r26 or later; got r25"),
    ],
)
def test_without_an_ndk_that_will_do(revision: str | None, told: str, tmp_path: Path) -> None:
    if revision is not None:
        (tmp_path / "build/cmake").mkdir(parents=True)
        (tmp_path / "build/cmake/android.toolchain.cmake").touch()
        (tmp_path / "source.properties").write_text(f"Pkg.Revision = {revision}\n")
    environment = {"PATH": os.environ["PATH"], "ANDROID_NDK_ROOT": str(tmp_path)}
    command = [ROOT / "tools/android.sh", "24", "x86_64"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert "; got " in done.stderr
    assert "; try " in done.stderr
