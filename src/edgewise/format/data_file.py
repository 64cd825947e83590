"""The `.ptd` file: data by name, for programs whose weights are not inside of them.

Its layout stands in schema/flat_tensor.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from edgewise.errors import EmitError
from edgewise.flatbuffer import (
    INT8,
    INT32,
    UINT8,
    UINT32,
    Table,
    pack,
    scalar,
    string,
    table,
    tables,
    unpack,
    vector,
)
from edgewise.format.file import Segments
from edgewise.format.program import DataSegment

IDENTIFIER = b"FT01"
DEFAULT_NAME = "_default_external_constant"
"""What ExecuTorch calls the file of all constants."""

_HEADER = struct.Struct("<4sIQQQQ")
_MAGIC = b"FH01"
_PADDED = -(-_HEADER.size // 16) * 16


@dataclass
class TensorLayout(Table):
    scalar_type: int = scalar(INT8)
    sizes: Any = vector(INT32)
    dim_order: Any = vector(UINT8)


@dataclass
class FlatNamedData(Table):
    key: str | None = string()
    segment_index: int = scalar(UINT32)
    tensor_layout: TensorLayout | None = table(TensorLayout)


@dataclass
class FlatTensor(Table):
    version: int = scalar(UINT32)
    segments: Any = tables(DataSegment)
    named_data: Any = tables(FlatNamedData)


@dataclass
class DataFile:
    """What one file is to hold. Blobs are not copied."""

    alignment: int
    blobs: dict[str, tuple[bytes | memoryview, TensorLayout | None]] = field(default_factory=dict)

    def add(self, key: str, blob: bytes | memoryview, layout: TensorLayout | None = None) -> str:
        """The key under which the content now is: another one if the key has other content."""
        free, number = key, 1
        while free in self.blobs:
            if self.blobs[free] == (blob, layout):
                return free
            if layout is None:
                raise EmitError(
                    f"[external data] data with one key must have one content; got two for {key}"
                )
            number += 1
            free = f"{key}.{number}"
        self.blobs[free] = (blob, layout)
        return free

    def parts(self) -> Iterator[bytes | memoryview]:
        """The file, in pieces that concatenated are its bytes."""
        segments = Segments(self.alignment)
        named = [
            FlatNamedData(key, segments.add(blob), layout)
            for key, (blob, layout) in self.blobs.items()
        ]
        body = pack(FlatTensor(0, segments.table(), named), IDENTIFIER)
        size = len(body) + _PADDED
        base = -(-size // self.alignment) * self.alignment
        (root,) = struct.unpack_from("<I", body)
        header = _HEADER.pack(_MAGIC, _HEADER.size, _PADDED, len(body), base, segments.size)
        yield struct.pack("<I", root + _PADDED) + body[4:8] + header.ljust(_PADDED, b"\0")
        yield memoryview(body)[8:]
        yield bytes(base - size)
        yield from segments.parts()


def read_named(data: bytes | memoryview) -> dict[str, memoryview]:
    """A file's data by key (views, not copies). ValueError if it is no `.ptd`."""
    view = memoryview(data)
    if len(view) < 8 + _HEADER.size or bytes(view[8:12]) != _MAGIC:
        raise ValueError(f"[ptd] a file has 'FH01' at byte 8; got {bytes(view[8:12])!r}")
    _, _, _, size, base, _ = _HEADER.unpack_from(view, 8)
    held = unpack(FlatTensor, view[: _PADDED + size])
    found = {}
    for one in held.named_data or []:
        segment = held.segments[one.segment_index]
        start = base + segment.offset
        if start + segment.size > len(view):
            raise ValueError(
                f"[ptd] {one.key!r} must lie inside the file; got bytes {start} to "
                f"{start + segment.size} of {len(view)}"
            )
        found[one.key or ""] = view[start : start + segment.size]
    return found
