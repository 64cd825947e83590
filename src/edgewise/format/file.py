"""The `.pte` file: a flatbuffer with a header inside it, then segments.

    0   u32 offset of the root table | "ET12"
    8   "eh00" | u32 header length | u64 program size | u64 segment base | u64 segment bytes
    40  rest of the flatbuffer, padded
    segment base: segments, each at its offset from here

Segments are written from the memory that holds them; only `buffer` copies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewise.flatbuffer import pack, unpack
from edgewise.format.constants import Rope
from edgewise.format.program import IDENTIFIER, DataSegment, Program

_HEADER = struct.Struct("<4sIQQQ")
_MAGIC = b"eh00"


@dataclass
class Segments:
    """Blobs that follow the flatbuffer."""

    alignment: int = 128
    blobs: list[bytes | memoryview | Rope] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, blob: bytes | memoryview | Rope, alignment: int | None = None) -> int:
        """The index of a new segment; it starts at a multiple of `alignment` bytes."""
        step = alignment or self.alignment
        offset = -(-self.size // step) * step
        self.blobs.append(blob)
        self.offsets.append(offset)
        self.size = offset + len(blob)
        return len(self.blobs) - 1

    def table(self) -> list[DataSegment]:
        sizes = map(len, self.blobs)
        return [DataSegment(o, s) for o, s in zip(self.offsets, sizes, strict=True)]

    def parts(self) -> Iterator[bytes | memoryview]:
        at = 0
        for blob, offset in zip(self.blobs, self.offsets, strict=True):
            if offset > at:
                yield bytes(offset - at)
            if isinstance(blob, Rope):
                yield from blob.parts()
            else:
                yield blob
            at = offset + len(blob)


def file_parts(program: Program, segments: Segments) -> Iterator[bytes | memoryview]:
    """The file, in pieces that concatenated are its bytes."""
    program.segments = segments.table()
    body = pack(program, IDENTIFIER)
    if not segments.blobs:
        yield body
        return
    # The header goes between the identifier and what follows; it is as long as the
    # largest alignment inside the flatbuffer needs.
    length = -(-_HEADER.size // 16) * 16
    size = length + len(body)
    base = -(-size // segments.alignment) * segments.alignment
    (root,) = struct.unpack_from("<I", body)
    header = _HEADER.pack(_MAGIC, _HEADER.size, size, base, segments.size).ljust(length, b"\0")
    yield struct.pack("<I", root + length) + body[4:8] + header
    yield memoryview(body)[8:]
    yield bytes(base - size)
    yield from segments.parts()


@dataclass(frozen=True)
class ReadFile:
    """program, and the file's segments in order (views, not copies)."""

    program: Program
    segments: list[memoryview]


def read(data: bytes | memoryview) -> ReadFile:
    """A file's program and segments. ValueError if it is no `.pte`. For tools: the runtime
    has a reader of its own, which checks everything."""
    view = memoryview(data)
    if len(view) < 8 or bytes(view[4:6]) != b"ET":
        raise ValueError(f"[pte] a file has 'ET12' at byte 4; got {bytes(view[4:8])!r}")
    end, base = len(view), 0
    if bytes(view[8:12]) == _MAGIC:
        _, _, end, base, _ = _HEADER.unpack(bytes(view[8:40]).ljust(_HEADER.size, b"\0"))
    program = unpack(Program, view[:end])
    segments = []
    for number, segment in enumerate(program.segments or []):
        start = base + segment.offset
        if start + segment.size > len(view):
            raise ValueError(
                f"[pte] segment {number} must lie inside the file; got bytes {start} to "
                f"{start + segment.size} of {len(view)}"
            )
        segments.append(view[start : start + segment.size])
    return ReadFile(program, segments)
