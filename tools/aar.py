"""Android's archive of the runtime: Java's classes, a library for each ABI, a package for CMake.

    python tools/aar.py --out build/android --jar edgewise.jar --ndk 27 --api 24
        --library arm64-v8a=libedgewise_jni.so ... --licences DIR --parts FILE

writes edgewise.aar and, beside it, the folder it is made of:

    AndroidManifest.xml  classes.jar  R.txt  proguard.txt
    jni/ABI/libedgewise_jni.so            what an app carries
    prefab/                               the same library and edgewise.h, for CMake under Gradle
    cmake/edgewise-config.cmake           the same for CMake without Gradle
    licenses/  edgewise.cdx.json          what is inside, and on what terms

Nothing is written unless each library passes `problems`. The same libraries make the same bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import elf
import java_classes
import make_sbom

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "native" / "include" / "edgewise.h"
LIBRARY = "libedgewise_jni.so"
ABIS = {
    "arm64-v8a": ("aarch64", 64),
    "armeabi-v7a": ("arm", 32),
    "x86_64": ("x86_64", 64),
}
"""What Android calls a machine; x86 of 32 bits is left out, which no phone has."""

PAGE = 16384
"""The largest page of 64-bit Android, from version 15 on."""

SYSTEM = frozenset({"libc.so", "libdl.so", "liblog.so", "libm.so"})
"""What an app may take from Android."""

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="org.edgewise">
  <uses-sdk android:minSdkVersion="{api}" />
</manifest>
"""
# What the library looks for by name.
PROGUARD = """-keepclasseswithmembernames,includedescriptorclasses class org.edgewise.** {
  native <methods>;
}
-keep class org.edgewise.EdgewiseException { <init>(int, byte[]); }
"""
CMAKE = """# find_package(edgewise) with -Dedgewise_DIR of this folder: edgewise::edgewise, and
# edgewise::c as installations have it.
set(edgewise_abi "${ANDROID_ABI}")
if(NOT edgewise_abi)
  set(edgewise_abi "${CMAKE_ANDROID_ARCH_ABI}")
endif()
set(edgewise_module "${CMAKE_CURRENT_LIST_DIR}/../prefab/modules/edgewise")
set(edgewise_library "${edgewise_module}/libs/android.${edgewise_abi}/@LIBRARY@")
if(NOT EXISTS "${edgewise_library}")
  set(edgewise_FOUND FALSE)
  set(edgewise_NOT_FOUND_MESSAGE "the archive has no library for the ABI '${edgewise_abi}'")
  return()
endif()
foreach(edgewise_name edgewise c)
  if(NOT TARGET edgewise::${edgewise_name})
    add_library(edgewise::${edgewise_name} SHARED IMPORTED)
    set_target_properties(edgewise::${edgewise_name} PROPERTIES
      IMPORTED_LOCATION "${edgewise_library}"
      INTERFACE_INCLUDE_DIRECTORIES "${edgewise_module}/include")
  endif()
endforeach()
"""
VERSION = """set(PACKAGE_VERSION "@VERSION@")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"""


def c_functions(header: Path = HEADER) -> set[str]:
    """Those that edgewise.h declares."""
    return set(re.findall(r"\b(edgewise_\w+)\(", COMMENT.sub("", header.read_text())))


def problems(
    path: Path, abi: str, functions: Collection[str], allowed: Collection[str] = SYSTEM
) -> list[str]:
    """What would keep an app from using the library: one line each.

    functions: what it must export, and nothing else. allowed: the libraries that it may need.
    """
    try:
        library = elf.read(path)
    except ValueError as failure:
        return [str(failure)]
    found = []

    def expect(is_so: bool, rule: str, got: object) -> None:
        if not is_so:
            found.append(f"[{abi}] {rule}; got {got}")

    machine = (library.machine, library.bits)
    expect(machine == ABIS[abi], f"the library must be for {ABIS[abi][0]}", library.machine)
    for segment in library.segments:
        place = f"a segment at {segment.address:#x}"
        if library.bits == 64:
            expect(
                segment.align >= PAGE,
                f"segments must be aligned to {PAGE} bytes (-Wl,-z,max-page-size={PAGE})",
                f"{segment.align} for {place}",
            )
        expect(
            segment.align > 0 and (segment.address - segment.offset) % segment.align == 0,
            "addresses and places in the file must agree within a page",
            place,
        )
    expect(
        library.name == LIBRARY, f"the library must be named {LIBRARY}", library.name or "nothing"
    )
    others = sorted({*library.needed} - {*allowed})
    expect(not others, f"the library may need {', '.join(sorted(allowed))}", ", ".join(others))
    missing = sorted({*functions} - library.exported)
    expect(not missing, "all functions must be exported", f"none named {', '.join(missing)}")
    more = sorted(library.exported - {*functions})
    expect(
        not more, "no more may be exported than edgewise.h and the classes name", ", ".join(more)
    )
    expect(not library.executable_stack, "the stack must not be executable", "one that is")
    expect(not library.text_relocations, "code must not be relocated", "DT_TEXTREL")
    return found


@dataclass(frozen=True)
class Archive:
    libraries: Mapping[str, Path]
    """By ABI."""

    jar: Path
    licences: Path
    """A folder of texts."""

    parts: list[tuple[str, str, str]]
    """As make_sbom has them."""

    ndk: int
    api: int
    version: str


def entries(archive: Archive) -> dict[str, bytes]:
    """The files of the archive."""
    files = {
        "AndroidManifest.xml": MANIFEST.format(api=archive.api).encode(),
        "R.txt": b"",  # no resources
        "classes.jar": zipped(classes(archive.jar)),
        "proguard.txt": PROGUARD.encode(),
        "cmake/edgewise-config.cmake": CMAKE.replace("@LIBRARY@", LIBRARY).encode(),
        "cmake/edgewise-config-version.cmake": VERSION.replace(
            "@VERSION@", archive.version
        ).encode(),
        "edgewise.cdx.json": text(make_sbom.document(archive.version, archive.parts)),
        "prefab/prefab.json": text(
            {
                "schema_version": 2,
                "name": "edgewise",
                "version": archive.version,
                "dependencies": [],
            }
        ),
    }
    for name in ["edgewise", *(part[0].lower() for part in archive.parts)]:
        path = archive.licences / f"{name}.txt"
        if name == "libc++":  # programs that have it inside need not carry its terms
            continue
        if not path.exists():
            raise ValueError(f"[licences] each part must have its terms; got no '{path}'")
        files[f"licenses/{name}.txt"] = path.read_bytes()
    module = "prefab/modules/edgewise"
    # Prefab and CMake know the library by the file's name without its ending.
    files[f"{module}/module.json"] = text(
        {"export_libraries": [], "library_name": LIBRARY.removesuffix(".so")}
    )
    files[f"{module}/include/edgewise.h"] = HEADER.read_bytes()
    for abi, path in archive.libraries.items():
        about = {
            "abi": abi,
            "api": archive.api,
            "ndk": archive.ndk,
            # The C++ library is inside, and nothing of it is to be seen: Prefab's word for that.
            "stl": "none",
            "static": False,
        }
        files[f"{module}/libs/android.{abi}/abi.json"] = text(about)
        files[f"{module}/libs/android.{abi}/{LIBRARY}"] = path.read_bytes()
        files[f"jni/{abi}/{LIBRARY}"] = path.read_bytes()
    return files


def text(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def classes(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """In the order of names, all of one time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)  # of 1980, which is when zip's time begins
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return out.getvalue()


def write(archive: Archive, out: Path, allowed: Collection[str] = SYSTEM) -> Path:
    """Writes the folder and the archive; ValueError with all problems of the libraries."""
    functions = c_functions() | java_classes.jni_functions(archive.jar)
    found = [
        problem
        for abi, path in archive.libraries.items()
        for problem in problems(path, abi, functions, allowed)
    ]
    if found:
        raise ValueError("\n".join(found))
    folder = out / "edgewise"
    if folder.exists():
        shutil.rmtree(folder)
    files = entries(archive)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    made = out / "edgewise.aar"
    made.write_bytes(zipped(files))
    return made


def abi_and_path(given: str) -> tuple[str, Path]:
    abi, _, path = given.partition("=")
    if abi not in ABIS or not path:
        raise argparse.ArgumentTypeError(
            f"[aar] a library must be ABI=PATH with one of {', '.join(ABIS)}; got {given!r}"
        )
    return abi, Path(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jar", type=Path, required=True)
    parser.add_argument("--library", type=abi_and_path, action="append", required=True)
    parser.add_argument("--licences", type=Path, required=True)
    parser.add_argument(
        "--parts", type=Path, required=True, help="NAME=VERSION[=SHA256], a line each"
    )
    parser.add_argument("--ndk", type=int, required=True, help="its major version")
    parser.add_argument("--api", type=int, required=True, help="the first version of Android")
    parser.add_argument(
        "--needs", action="append", default=[], help="libraries beside Android's own"
    )
    given = parser.parse_args(arguments)
    archive = Archive(
        libraries=dict(given.library),
        jar=given.jar,
        licences=given.licences,
        parts=[make_sbom.parse(line) for line in given.parts.read_text().split()],
        ndk=given.ndk,
        api=given.api,
        version=make_sbom.own_version(),
    )
    try:
        made = write(archive, given.out, SYSTEM | {*given.needs})
    except ValueError as failure:
        print(f"[aar] nothing was written, because of\n{failure}", file=sys.stderr)
        return 1
    print(f"{made}: {os.path.getsize(made):,} bytes, {', '.join(archive.libraries)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
