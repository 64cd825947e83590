"""What a clang needs to build for macOS, made of the Python package `ziglang`.

    python tools/macos_sdk.py --linker /usr/bin/ld64.lld-19 SDK    by a Python that has ziglang

The package holds a clang, macOS's C headers, a list of what its libSystem exports, and the sources
of libc++. SDK becomes bin/clang and bin/clang++, and usr/include and usr/lib laid out as Apple's
are, for 64-bit Arm from macOS 11 on. There libc++ is an archive: programs need libSystem alone. The
linker is Debian's; the package's own passes by lists of exported symbols.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

TARGET = "aarch64-macos.11.0"
FLOAT_HEADER = """#ifndef _LIBCPP_FLOAT_H
#define _LIBCPP_FLOAT_H
#endif
#include_next <float.h>
"""


def compiler_call(zig: Path) -> str:
    """What the package runs to build a C++ library, which makes its own libraries first."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text("#include <iostream>\nvoid probe() { std::cout << 1; }\n")
        done = subprocess.run(
            [zig, "c++", "-target", TARGET, "-O2", "-v", "-shared", source, "-o", source.stem],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise SystemExit(f"[macos_sdk] {zig} must build a C++ library; got:\n{done.stderr}")
    return done.stderr


def write_headers(lib: Path, sdk: Path, call: str) -> None:
    """The C headers, libc++ with the settings that it was built with, and clang's own."""
    shutil.copytree(lib / "libc/include/any-darwin-any", sdk / "usr/include")
    cxx = sdk / "usr/include/c++/v1"
    shutil.copytree(lib / "libcxx/include", cxx)
    shutil.copytree(lib / "libcxxabi/include", cxx, dirs_exist_ok=True)
    settings = dict(re.findall(r"-D (_LIBC(?:PP|XXABI)_\w+)(?:=(\w+))?", call))
    lines = [f"#define {name} {value or 1}" for name, value in sorted(settings.items())]
    (cxx / "__config_site").write_text("#pragma once\n" + "\n".join(lines) + "\n")
    config = cxx / "__config"
    config.write_text("#include <__config_site>\n" + config.read_text())
    # libc++'s is read once, and math.h asks for a part of it first; clang's may be read again.
    (cxx / "float.h").write_text(FLOAT_HEADER)
    shutil.copytree(lib / "include", sdk / "lib/clang/include")


def write_libraries(lib: Path, sdk: Path, call: str) -> None:
    """libSystem's list of symbols, libc++ with its ABI library, and the compiler's helpers."""
    folder = sdk / "usr/lib"
    folder.mkdir(parents=True)
    # Programs of arm64 link with what is there for arm64e; linkers do not know its successor.
    tbd = (lib / "libc/darwin/libSystem.tbd").read_text()
    tbd = re.sub(r",\s*arm64e\.x1-\w+", "", tbd)
    (folder / "libSystem.tbd").write_text(tbd)
    for name in ("libm", "libpthread", "libdl"):  # parts of libSystem
        (folder / f"{name}.tbd").symlink_to("libSystem.tbd")
    archives = {Path(path).name: path for path in re.findall(r"\S+\.a\b", call.splitlines()[-1])}
    join = [lib.parent / "zig", "ar", "--format=darwin", "cqsL", folder / "libc++.a"]
    subprocess.run([*join, archives["libc++.a"], archives["libc++abi.a"]], check=True)
    helpers = sdk / "lib/clang/lib/darwin"
    helpers.mkdir(parents=True)
    shutil.copy(archives["libcompiler_rt.a"], helpers / "libclang_rt.osx.a")


def write_programs(zig: Path, linker: Path, sdk: Path) -> None:
    (sdk / "bin").mkdir()
    (sdk / "bin/ld64.lld").symlink_to(linker)  # by whose name clang knows what it takes
    clang = (
        'clang --target=arm64-apple-macos -resource-dir "$here/../lib/clang" -B"$here" '
        "--driver-mode="
    )
    calls = {"clang": f"{clang}gcc", "clang++": f"{clang}g++", "ar": "ar", "ranlib": "ranlib"}
    for name, call in calls.items():
        program = sdk / "bin" / name
        program.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\nexec "{zig}" {call} "$@"\n')
        program.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--linker", type=Path, required=True, help="Debian's ld64.lld")
    parser.add_argument("out", type=Path, metavar="SDK", help="the folder to make")
    args = parser.parse_args()
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise SystemExit("[macos_sdk] ziglang must be installed; try pip install ziglang")
    zig = Path(package.origin).with_name("zig")
    lib = zig.parent / "lib"
    call = compiler_call(zig)
    new = args.out.with_name(args.out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    write_headers(lib, new, call)
    write_libraries(lib, new, call)
    write_programs(zig, args.linker, new)
    shutil.rmtree(args.out, ignore_errors=True)
    new.rename(args.out)


if __name__ == "__main__":
    main()
