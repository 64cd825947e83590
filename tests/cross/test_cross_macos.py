"""What is in the files built for macOS, as LLVM's tools and their signatures tell.

Nothing runs them here. `make cross-test-macos` builds and reads them, `make
cross-build-tests-macos` the native tests, too; what build/cross/macos does not hold is skipped.
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cross

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cross" / "macos"
LIBRARY, RUNNER = "c/libedgewise.dylib", "tools/edgewise_run"
LINKER_SIGNED = 0x20002  # without a certificate, by a linker


def built(name: str) -> Path:
    if not (BUILD / "build.ninja").exists():
        pytest.skip("nothing built for macOS: make cross-macos")
    # From here on what is missing is an error: a build that is there has all.
    file = BUILD / "native" / name
    assert file.exists(), f"{file} is missing: make cross-macos"
    return file


def told(file: Path, *options: str) -> str:
    command = ["llvm-objdump-19", "--macho", *options, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def commands(file: Path) -> dict[str, list[dict[str, str]]]:
    """Load commands by name, each with its fields; of the header, those of "header"."""
    text = told(file, "--private-headers")
    names, values = re.search(r"^ *(magic .*)\n *(.*)$", text, re.M).groups()  # type: ignore[union-attr]
    found = {"header": [dict(zip(names.split(), values.split(), strict=False))]}
    for part in text.split("\nLoad command ")[1:]:
        fields = dict(re.findall(r"^ *([a-z]+) (.+?)$", part.split("\nSection")[0], re.M))
        found.setdefault(fields["cmd"], []).append(fields)
    return found


def files() -> list[str]:
    """Those that are always built, and one for each test program that is."""
    tests = (BUILD / "native" / "tests").glob("edgewise_*_test")
    return [LIBRARY, RUNNER, *sorted(f"tests/{file.name}" for file in tests)]


@pytest.mark.parametrize("name", files())
def test_files_are_for_macos_11_on_arm_and_need_the_system_alone(name: str) -> None:
    file = built(name)
    found = commands(file)
    (header,), (version,) = found["header"], found["LC_BUILD_VERSION"]
    assert (header["cputype"], header["cpusubtype"]) == ("ARM64", "ALL")
    assert header["filetype"] == ("DYLIB" if name == LIBRARY else "EXECUTE")
    assert (version["platform"], version["minos"]) == ("macos", "11.0")
    # The C++ library is inside.
    needed = [fields["name"].split(" (")[0] for fields in found["LC_LOAD_DYLIB"]]
    assert needed == ["/usr/lib/libSystem.B.dylib"]
    assert not {"LC_LOAD_WEAK_DYLIB", "LC_REEXPORT_DYLIB", "LC_RPATH"} & set(found)
    if name == LIBRARY:
        (identity,) = found["LC_ID_DYLIB"]
        assert identity["name"].split(" (")[0] == "@rpath/libedgewise.1.dylib"
        assert "LC_MAIN" not in found
    else:
        # The entry point lies in the first section, the program's code.
        (main,) = found["LC_MAIN"]
        text = next(f for f in found["LC_SEGMENT_64"] if f["segname"] == "__TEXT")
        assert 0 < int(main["entryoff"]) < int(text["filesize"])


def test_the_library_exports_what_its_header_declares() -> None:
    trie = told(built(LIBRARY), "--exports-trie")
    exported = re.findall(r"^0x[0-9A-F]+  (\S+)", trie, re.M)
    header = (ROOT / "native" / "include" / "edgewise.h").read_text()
    declared = re.findall(r"^EDGEWISE_API[^(]*?(edgewise_\w+)\(", header, re.M)
    assert len(declared) > 25
    assert sorted(exported) == sorted(f"_{name}" for name in declared)


def test_every_symbol_is_found_in_libsystem() -> None:
    # The list of what a macOS exports from which the linker took them, by two readers.
    for name in (LIBRARY, RUNNER):
        told_by_nm = subprocess.run(
            ["llvm-nm-19", "--undefined-only", "-m", built(name)],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        assert len(told_by_nm) > 20
        others = [line for line in told_by_nm if "(from libSystem)" not in line]
        assert others == []


@pytest.mark.parametrize("name", [LIBRARY, RUNNER])
def test_signatures_are_of_what_the_files_hold(name: str) -> None:
    """64-bit Arm Macs run nothing without one; changing a file afterwards breaks it."""
    file = built(name)
    (command,) = commands(file)["LC_CODE_SIGNATURE"]
    data = file.read_bytes()
    start, size = int(command["dataoff"]), int(command["datasize"])
    assert start + size == len(data)
    magic, _, count, kind, offset = struct.unpack_from(">5I", data, start)
    assert (magic, count, kind) == (0xFADE0CC0, 1, 0)
    directory = start + offset
    magic, _, _, flags, hashes, _, _, slots, limit = struct.unpack_from(">9I", data, directory)
    length, algorithm, _, page_bits = struct.unpack_from(">4B", data, directory + 36)
    assert (magic, flags, limit) == (0xFADE0C02, LINKER_SIGNED, start)
    assert (length, algorithm) == (32, 2)  # SHA-256
    page = 1 << page_bits
    assert slots == -(-start // page)
    for slot in range(slots):
        end = min((slot + 1) * page, start)
        at = directory + hashes + slot * length
        assert data[at : at + length] == hashlib.sha256(data[slot * page : end]).digest(), slot
