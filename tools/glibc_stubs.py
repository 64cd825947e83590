"""Link libraries of an older glibc, made from the one that a compiler links with.

    python tools/glibc_stubs.py --cc gcc --glibc 2.28 FOLDER

A program needs the newest version of each function that it is linked with: on a new system it
starts on no older one, although glibc keeps the old versions. FOLDER gets libraries with the names
of glibc's, without code, in which each symbol has the newest version that is not above the one
asked for, and which stand before the real ones with `-L FOLDER`. Symbols that came later are not
there: what uses one does not link, and is told which.

Shared libraries alone can be linked so, not programs: before 2.34 constructors of a program were
called by code of its own.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

Version = tuple[int, ...]
SYMBOL = re.compile(
    r"^\s*\d+: [0-9a-f]+\s+(?P<size>\S+) (?P<type>FUNC|IFUNC|OBJECT|NOTYPE|TLS)\s+"
    r"(?:GLOBAL|WEAK)\s+\S+\s+(?P<section>\S+) (?P<name>[^@\s]+)@@?GLIBC_(?P<version>[\d.]+)"
)
LIBRARIES = ("libc", "libm", "libpthread", "libdl")
MOVED: Version = (2, 34)
"""In this version libpthread and libdl became parts of libc, which kept the older names, too."""


@dataclass
class Symbol:
    kind: str
    size: int
    versions: set[Version] = field(default_factory=set)


def numbers(version: str) -> Version:
    return tuple(map(int, version.split(".")))


def symbols(library: Path) -> dict[str, Symbol]:
    """What a library defines, with each version that it has of it."""
    listing = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, Symbol] = {}
    for line in listing.splitlines():
        match = SYMBOL.match(line)
        if match is None or match["section"] == "UND":
            continue
        symbol = found.setdefault(match["name"], Symbol(match["type"], int(match["size"], 0)))
        symbol.versions.add(numbers(match["version"]))
    return found


def home(library: str, name: str, symbol: Symbol, limit: Version) -> str:
    """The library that had it in the version asked for."""
    moved = limit < MOVED and MOVED in symbol.versions and min(symbol.versions) < MOVED
    if library != "libc" or not moved:
        return library
    return "libdl" if name.startswith("dl") else "libpthread"


def assembly(chosen: dict[str, tuple[Symbol, Version]]) -> str:
    lines = ['.section .note.GNU-stack,"",%progbits', ".text"]
    for name, (symbol, _) in sorted(chosen.items()):
        section = {"OBJECT": ".data", "TLS": '.section .tdata,"awT",%progbits'}
        kind = {"OBJECT": "object", "TLS": "tls_object"}.get(symbol.kind, "function")
        lines += [
            section.get(symbol.kind, ".text"),
            f".globl {name}\n.type {name}, %{kind}\n{name}: .skip {max(symbol.size, 8)}",
            f".size {name}, {symbol.size}",
        ]
    return "\n".join(lines) + "\n"


def version_script(chosen: dict[str, tuple[Symbol, Version]]) -> str:
    names: dict[Version, list[str]] = {}
    for name, (_, version) in chosen.items():
        names.setdefault(version, []).append(name)
    nodes = []
    for version, group in sorted(names.items()):
        listed = "".join(f"  {name};\n" for name in sorted(group))
        nodes.append(f"GLIBC_{'.'.join(map(str, version))} {{\nglobal:\n{listed}}};\n")
    return "".join(nodes)


def library_path(cc: list[str], name: str) -> Path:
    answer = subprocess.run(
        [*cc, f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    path = Path(answer).resolve()
    if not path.is_absolute() or not path.exists():
        raise SystemExit(f"[glibc_stubs] {cc[0]} must know {name}; it does not; is it for glibc?")
    return path


def soname(library: Path) -> str:
    dynamic = subprocess.run(
        ["readelf", "--dynamic", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    match = re.search(r"\(SONAME\).*\[(.+)\]", dynamic)
    if match is None:
        raise SystemExit(f"[glibc_stubs] {library} must have a SONAME; it has none")
    return match[1]


def loader(cc: list[str], libc: Path) -> Path:
    """The dynamic loader, which lies beside libc or is named by it."""
    dynamic = subprocess.run(
        ["readelf", "--dynamic", "--wide", libc], check=True, capture_output=True, text=True
    ).stdout
    match = re.search(r"\(NEEDED\).*\[(ld-[^\]]+)\]", dynamic)
    if match is None:
        raise SystemExit(f"[glibc_stubs] {libc} must need a loader; it needs none")
    return library_path(cc, match[1])


def make(cc: list[str], limit: Version, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    real = {
        "libc": library_path(cc, "libc.so.6"),
        "libm": library_path(cc, "libm.so.6"),
        "libpthread": library_path(cc, "libpthread.so.0"),
        "libdl": library_path(cc, "libdl.so.2"),
    }
    real["ld"] = loader(cc, real["libc"])
    stubs: dict[str, dict[str, tuple[Symbol, Version]]] = {name: {} for name in real}
    for library, path in real.items():
        for name, symbol in symbols(path).items():
            fitting = [version for version in symbol.versions if version <= limit]
            if fitting:
                stubs[home(library, name, symbol, limit)][name] = (symbol, max(fitting))
    for library, chosen in stubs.items():
        source, script = folder / f"{library}.s", folder / f"{library}.map"
        source.write_text(assembly(chosen))
        script.write_text(version_script(chosen))
        name = soname(real[library])
        subprocess.run(
            [*cc, "-shared", "-nostdlib", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}",
             "-o", folder / name, source],
            check=True,
        )  # fmt: skip
        if library not in ("libc", "ld"):
            (folder / f"{library}.so").unlink(missing_ok=True)
            (folder / f"{library}.so").symlink_to(name)
    # As glibc's own file of this name: what every program has of its own, and the loader.
    rest = library_path(cc, "libc_nonshared.a")
    names = {library: folder / soname(real[library]) for library in real}
    needed = f"AS_NEEDED ( {names['libpthread']} {names['libdl']} {names['ld']} )"
    (folder / "libc.so").write_text(f"GROUP ( {names['libc']} {rest} {needed} )\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cc", required=True, help="the C compiler, with its own arguments")
    parser.add_argument("--glibc", required=True, type=numbers, help="the version, such as 2.28")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    make(given.cc.split(), given.glibc, given.folder.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
