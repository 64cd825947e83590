"""Empty CUDA libraries beside a torch that came as the CUDA build, so that it imports on a CPU.

    python tools/cuda_stubs.py FOLDER    after pip install --no-deps --target FOLDER torch==VERSION

Needs gcc, nm and readelf. For the environments of `make interop`: what really calls CUDA fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SYSTEM = [Path(p) for p in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64")]
BASICS = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2",
          "libpthread.so.0", "ld-linux-x86-64.so.2", "librt.so.1", "libz.so.1")  # fmt: skip


def run(*command: str) -> str:
    """What the command prints."""
    return subprocess.run(command, capture_output=True, text=True).stdout


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """Names that a library needs ("name@version"), and names that it has."""
    needed, has = set(), set()
    for line in run("nm", "-D", str(library)).splitlines():
        parts = line.split()
        if len(parts) == 2 and parts[0] in "Uw":
            needed.add(parts[1])
        elif len(parts) == 3:
            has.add(parts[2].split("@")[0])
    return needed, has


def main(folder: Path) -> None:
    """Writes the missing libraries into torch/lib."""
    lib = folder / "torch" / "lib"
    libraries = list(lib.glob("*.so*"))
    present = {file.name for place in (*SYSTEM, lib) for file in place.glob("*.so*")}
    missing, needed, has = set(), set(), set()
    for library in libraries:
        wanted = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", str(library)))
        missing |= set(wanted) - present
        for found, more in zip((needed, has), symbols(library), strict=True):
            found |= more
    for name in BASICS:
        for file in {(place / name).resolve() for place in SYSTEM if (place / name).exists()}:
            has |= symbols(file)[1]
    by_version: dict[str, list[str]] = {}
    for symbol in needed:
        name, _, version = symbol.partition("@")
        if name not in has and not name.startswith(("Py", "_Py")) and re.fullmatch(r"\w+", name):
            by_version.setdefault(version.lstrip("@"), []).append(name)
    unversioned = [name for v, names in by_version.items() if v not in missing for name in names]
    scratch = folder / "stub"
    scratch.mkdir(exist_ok=True)
    for number, library_name in enumerate(sorted(missing)):
        versioned = by_version.get(library_name, [])
        names = versioned + (unversioned if number == 0 else [])
        source = "".join(f"int {name}(void) {{ return 999; }}\n" for name in names)
        (scratch / "stub.c").write_text(source or "int edgewise_stub;\n")
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", str(lib / library_name),
                   f"-Wl,-soname,{library_name}", str(scratch / "stub.c")]  # fmt: skip
        if versioned:
            listed = " ".join(name + ";" for name in versioned)
            (scratch / "versions").write_text(f"{library_name} {{ global: {listed} }};\n")
            command.append(f"-Wl,--version-script={scratch / 'versions'}")
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
