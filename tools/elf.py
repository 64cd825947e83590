"""What a shared library in ELF says of itself: its machine, pages, symbols and what it needs.

Reads the program headers, as loaders do; those of sections may be stripped. ValueError for what is
no such file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

LOAD, DYNAMIC, GNU_STACK = 1, 2, 0x6474E551
MACHINES = {40: "arm", 62: "x86_64", 183: "aarch64"}
SHARED = 3
"""e_type of a shared library."""

NEEDED, HASH, STRTAB, SYMTAB, STRSZ, SONAME, TEXTREL = 1, 4, 5, 6, 10, 14, 22
FLAGS, GNU_HASH = 30, 0x6FFFFEF5
HAS_TEXTREL = 4
"""Of FLAGS."""

ABSOLUTE = 0xFFF1
"""The section of symbols that are no addresses, such as names of versions."""


@dataclass(frozen=True)
class Segment:
    """One LOAD segment."""

    offset: int
    address: int
    align: int
    file_size: int


@dataclass(frozen=True)
class Library:
    machine: str
    bits: int
    segments: tuple[Segment, ...]
    name: str
    """DT_SONAME, or nothing."""

    needed: tuple[str, ...]
    exported: frozenset[str]
    undefined: frozenset[str]
    executable_stack: bool
    text_relocations: bool


def text_at(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def symbol_count(data: bytes, table: dict[int, int], bits: int) -> int:
    """DT_HASH says it; without, the last chain of DT_GNU_HASH ends with the last symbol."""
    if HASH in table:
        return int(struct.unpack_from("<II", data, table[HASH])[1])
    if GNU_HASH not in table:
        return 0
    at = table[GNU_HASH]
    buckets, first, words, _ = struct.unpack_from("<IIII", data, at)
    start = at + 16 + words * bits // 8
    last = max(struct.unpack_from(f"<{buckets}I", data, start), default=0)
    if last < first:
        return int(first)
    chain = start + 4 * buckets
    while not struct.unpack_from("<I", data, chain + 4 * (last - first))[0] & 1:
        last += 1
    return int(last) + 1


def read(path: Path) -> Library:
    data = path.read_bytes()
    try:
        return parse(data)
    except (struct.error, ValueError, IndexError, KeyError) as failure:
        raise ValueError(
            f"[elf] '{path}' must be a shared library in ELF; got {failure or 'another file'}"
        ) from failure


def parse(data: bytes) -> Library:
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise ValueError("no ELF file of a little-endian machine")
    bits = {1: 32, 2: 64}[data[4]]
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != SHARED or machine not in MACHINES:
        raise ValueError(f"ELF of type {kind} for machine {machine}")
    start = struct.unpack_from("<Q", data, 32)[0] if bits == 64 else _u32(data, 28)
    size, count = struct.unpack_from("<HH", data, 54 if bits == 64 else 42)
    segments, dynamic, stack = [], (0, 0), True
    for i in range(count):
        at = start + i * size
        if bits == 64:
            tag, flags, offset, address, _, in_file, _, align = struct.unpack_from(
                "<IIQQQQQQ", data, at
            )
        else:
            tag, offset, address, _, in_file, _, flags, align = struct.unpack_from("<8I", data, at)
        if tag == LOAD:
            segments.append(Segment(offset, address, align, in_file))
        elif tag == DYNAMIC:
            dynamic = (offset, in_file)
        elif tag == GNU_STACK:
            stack = bool(flags & 1)

    def offset_of(address: int) -> int:
        for segment in segments:
            if segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        raise ValueError(f"address {address:#x} in no segment")

    form, step = ("<QQ", 16) if bits == 64 else ("<II", 8)
    entries = [
        struct.unpack_from(form, data, at)
        for at in range(dynamic[0], dynamic[0] + dynamic[1], step)
    ]
    table = {
        tag: offset_of(value) for tag, value in entries if tag in (HASH, STRTAB, SYMTAB, GNU_HASH)
    }
    strings = table[STRTAB]
    exported: set[str] = set()
    undefined: set[str] = set()
    for i in range(1, symbol_count(data, table, bits)):
        if bits == 64:
            name, info, other, section = struct.unpack_from("<IBBH", data, table[SYMTAB] + 24 * i)
        else:
            name, _, _, info, other, section = struct.unpack_from(
                "<IIIBBH", data, table[SYMTAB] + 16 * i
            )
        if info >> 4 == 0 or other & 3 in (1, 2):  # local; internal or hidden
            continue
        if section != ABSOLUTE:
            (exported if section else undefined).add(text_at(data, strings + name))
    names = {tag: text_at(data, strings + value) for tag, value in entries if tag == SONAME}
    flags = dict(entries).get(FLAGS, 0)
    return Library(
        machine=MACHINES[machine],
        bits=bits,
        segments=tuple(segments),
        name=names.get(SONAME, ""),
        needed=tuple(text_at(data, strings + value) for tag, value in entries if tag == NEEDED),
        exported=frozenset(exported),
        undefined=frozenset(undefined),
        executable_stack=stack,
        text_relocations=bool(TEXTREL in dict(entries) or flags & HAS_TEXTREL),
    )


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
