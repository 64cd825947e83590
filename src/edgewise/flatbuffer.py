"""Dataclasses that mirror flatbuffers tables, written and read without generated code.

A table is a dataclass deriving from `Table` whose fields are declared, in the order of
the schema, with `scalar`, `string`, `vector`, `table`, `tables`, `strings` and `union`.
Slots follow from that order (a union takes two). `pack` writes straight through the
flatbuffers builder; `unpack` reads the same structures back.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound="Table")


@dataclass(frozen=True)
class _Scalar:
    code: str
    prepend: str
    numpy: str

    @property
    def size(self) -> int:
        return struct.calcsize("<" + self.code)


BOOL = _Scalar("?", "PrependBoolSlot", "bool")
INT8 = _Scalar("b", "PrependInt8Slot", "int8")
UINT8 = _Scalar("B", "PrependUint8Slot", "uint8")
INT16 = _Scalar("h", "PrependInt16Slot", "int16")
UINT16 = _Scalar("H", "PrependUint16Slot", "uint16")
INT32 = _Scalar("i", "PrependInt32Slot", "int32")
UINT32 = _Scalar("I", "PrependUint32Slot", "uint32")
INT64 = _Scalar("q", "PrependInt64Slot", "int64")
UINT64 = _Scalar("Q", "PrependUint64Slot", "uint64")
FLOAT32 = _Scalar("f", "PrependFloat32Slot", "float32")
FLOAT64 = _Scalar("d", "PrependFloat64Slot", "float64")


@dataclass(frozen=True)
class _Field:
    kind: str
    scalar: _Scalar | None = None
    default: Any = 0
    types: tuple[Any, ...] = ()
    align: int = 0


class Table:
    """Base of the mirrored tables."""


def scalar(kind: _Scalar, default: Any = 0) -> Any:
    return dataclasses.field(
        default=default, metadata={"fb": _Field("scalar", kind, default=default)}
    )


def string() -> Any:
    return dataclasses.field(default=None, metadata={"fb": _Field("string")})


def strings() -> Any:
    return dataclasses.field(default=None, metadata={"fb": _Field("strings")})


def vector(kind: _Scalar, align: int = 0) -> Any:
    return dataclasses.field(default=None, metadata={"fb": _Field("vector", kind, align=align)})


def table(kind: Any) -> Any:
    return dataclasses.field(default=None, metadata={"fb": _Field("table", types=(kind,))})


def tables(kind: Any) -> Any:
    return dataclasses.field(default=None, metadata={"fb": _Field("tables", types=(kind,))})


def union(*kinds: Any) -> Any:
    """A union whose members' numbers are their positions, from 1. A member may occur twice
    under different names: then the value must be `(number, table)`."""
    return dataclasses.field(default=None, metadata={"fb": _Field("union", types=kinds)})


_LAYOUTS: dict[type, tuple[list[tuple[str, _Field, int]], int]] = {}


def _layout(kind: type) -> tuple[list[tuple[str, _Field, int]], int]:
    if kind not in _LAYOUTS:
        slot, found = 0, []
        for field in dataclasses.fields(kind):
            spec: _Field = field.metadata["fb"]
            found.append((field.name, spec, slot))
            slot += 2 if spec.kind == "union" else 1
        _LAYOUTS[kind] = (found, slot)
    return _LAYOUTS[kind]


def pack(root: Table, identifier: bytes) -> bytes:
    """The finished flatbuffer. `identifier`: the four bytes of the schema's file_identifier."""
    import flatbuffers

    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(_pack(builder, root), file_identifier=identifier)
    return bytes(builder.Output())


def _pack(builder: Any, value: Table) -> int:
    fields, slots = _layout(type(value))
    offsets: list[tuple[int, int]] = []
    scalars: list[tuple[int, _Field, Any]] = []
    for name, spec, slot in fields:
        item = getattr(value, name)
        if spec.kind == "scalar":
            scalars.append((slot, spec, item))
        elif item is None:
            continue
        elif spec.kind == "union":
            number, member = _member(spec, item)
            offsets.append((slot + 1, _pack(builder, member)))
            scalars.append((slot, _UNION_TYPE, number))
        else:
            offsets.append((slot, _pack_reference(builder, spec, item)))
    builder.StartObject(slots)
    for slot, offset in offsets:
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, spec, item in scalars:
        assert spec.scalar is not None
        getattr(builder, spec.scalar.prepend)(slot, item, spec.default)
    return int(builder.EndObject())


_UNION_TYPE = _Field("scalar", UINT8)


def _member(spec: _Field, item: Any) -> tuple[int, Table]:
    if isinstance(item, tuple):
        return item
    return spec.types.index(type(item)) + 1, item


def _pack_reference(builder: Any, spec: _Field, item: Any) -> int:
    if spec.kind == "string":
        return int(builder.CreateString(item))
    if spec.kind == "table":
        return _pack(builder, item)
    if spec.kind == "vector":
        assert spec.scalar is not None
        return _pack_vector(builder, spec.scalar, item, spec.align)
    if spec.kind == "strings":
        offsets = [builder.CreateString(s) for s in item]
    else:
        offsets = [_pack(builder, child) for child in item]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _pack_vector(builder: Any, kind: _Scalar, items: Any, align: int) -> int:
    if isinstance(items, (bytes, bytearray, memoryview)):
        data = np.frombuffer(items, dtype=np.uint8)
    else:
        data = np.asarray(items, dtype=kind.numpy)
    if align > kind.size:
        builder.Prep(align, data.nbytes)
    if data.size == 0:
        builder.StartVector(kind.size, 0, kind.size)
        return int(builder.EndVector())
    return int(builder.CreateNumpyVector(data))


def unpack(kind: type[T], data: bytes | memoryview) -> T:
    """The tables of a flatbuffer. ValueError if it is cut short, points outside of itself, or
    points to the same table so often that it stands for much more than its size."""
    view = _Bounded(memoryview(data))
    try:
        (root,) = struct.unpack_from("<I", view.bytes, 0)
        unpacked: T = _unpack(kind, view, root)
        return unpacked
    except (struct.error, IndexError, RecursionError, UnicodeDecodeError) as cause:
        raise ValueError(f"[flatbuffer] not a valid {kind.__name__}: {cause}") from None


_LEAST_TABLE = 8
"""Bytes: the distance to its vtable, and the offset that leads to it."""
_SHARED = 16
"""How often a file's bytes may be read, on average: names are shared, and vtables."""


class _Bounded:
    """A file's bytes, and how many more of them may be read."""

    def __init__(self, data: memoryview) -> None:
        self.bytes = data
        self._left = _SHARED * len(data)

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise IndexError(f"it stands for more than {_SHARED} times its size")


def _unpack(kind: Any, view: _Bounded, at: int) -> Any:
    view.take(_LEAST_TABLE)
    (vtable_distance,) = struct.unpack_from("<i", view.bytes, at)
    vtable = at - vtable_distance
    (vtable_size,) = struct.unpack_from("<H", view.bytes, vtable)

    def position(slot: int) -> int:
        offset = 4 + 2 * slot
        if offset >= vtable_size:
            return 0
        (relative,) = struct.unpack_from("<H", view.bytes, vtable + offset)
        return at + relative if relative else 0

    values = {}
    for name, spec, slot in _layout(kind)[0]:
        field_at = position(slot)
        if spec.kind == "scalar":
            assert spec.scalar is not None
            values[name] = (
                struct.unpack_from("<" + spec.scalar.code, view.bytes, field_at)[0]
                if field_at
                else spec.default
            )
        elif spec.kind == "union":
            number = view.bytes[field_at] if field_at else 0
            value = position(slot + 1)
            if number and value and number <= len(spec.types):
                target = _unpack(spec.types[number - 1], view, _follow(view, value))
                duplicated = spec.types.count(spec.types[number - 1]) > 1
                values[name] = (number, target) if duplicated else target
            else:
                values[name] = None
        elif field_at:
            values[name] = _unpack_reference(spec, view, _follow(view, field_at))
        else:
            values[name] = None
    return kind(**values)


def _follow(view: _Bounded, at: int) -> int:
    return at + int(struct.unpack_from("<I", view.bytes, at)[0])


def _unpack_reference(spec: _Field, view: _Bounded, at: int) -> Any:
    if spec.kind == "table":
        return _unpack(spec.types[0], view, at)
    (count,) = struct.unpack_from("<I", view.bytes, at)
    if spec.kind == "string":
        data = bytes(view.bytes[at + 4 : at + 4 + count])
        view.take(len(data))
        return data.decode()
    if spec.kind == "vector":
        assert spec.scalar is not None
        if at + 4 + count * spec.scalar.size > len(view.bytes):
            raise IndexError("a vector reaches beyond the end")
        view.take(count * spec.scalar.size)
        if spec.scalar is UINT8:
            return bytes(view.bytes[at + 4 : at + 4 + count])
        found = np.frombuffer(view.bytes, dtype=spec.scalar.numpy, count=count, offset=at + 4)
        return found.tolist()
    if at + 4 + 4 * count > len(view.bytes):
        raise IndexError("a vector reaches beyond the end")
    view.take(4 * count)
    targets = [_follow(view, at + 4 + 4 * i) for i in range(count)]
    if spec.kind == "strings":
        return [_unpack_reference(_Field("string"), view, p) for p in targets]
    return [_unpack(spec.types[0], view, p) for p in targets]


def file_identifier(data: bytes | memoryview) -> bytes:
    return bytes(data[4:8])


__all__: Sequence[str] = [
    "BOOL",
    "FLOAT32",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "Table",
    "file_identifier",
    "pack",
    "scalar",
    "string",
    "strings",
    "table",
    "tables",
    "union",
    "unpack",
    "vector",
]
