"""Tables to bytes and back."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import flatbuffer as fb
from edgewise.backends.xnnpack import payload
from edgewise.format import program as pte


@dataclass
class Leaf(fb.Table):
    number: int = fb.scalar(fb.INT32)
    name: str | None = fb.string()


@dataclass
class Other(fb.Table):
    value: float = fb.scalar(fb.FLOAT64, 1.5)


@dataclass
class Everything(fb.Table):
    boolean: bool = fb.scalar(fb.BOOL, True)
    i8: int = fb.scalar(fb.INT8)
    u8: int = fb.scalar(fb.UINT8, 7)
    i16: int = fb.scalar(fb.INT16)
    u16: int = fb.scalar(fb.UINT16)
    i32: int = fb.scalar(fb.INT32, -1)
    u32: int = fb.scalar(fb.UINT32)
    i64: int = fb.scalar(fb.INT64)
    u64: int = fb.scalar(fb.UINT64)
    f32: float = fb.scalar(fb.FLOAT32)
    f64: float = fb.scalar(fb.FLOAT64)
    text: str | None = fb.string()
    texts: Any = fb.strings()
    raw: Any = fb.vector(fb.UINT8, align=16)
    numbers: Any = fb.vector(fb.INT64)
    flags: Any = fb.vector(fb.BOOL)
    floats: Any = fb.vector(fb.FLOAT32)
    leaf: Leaf | None = fb.table(Leaf)
    leaves: Any = fb.tables(Leaf)
    either: Any = fb.union(Leaf, Other)
    doubled: Any = fb.union(Leaf, Other, Leaf)
    last: int = fb.scalar(fb.INT32)


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    return (
        st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
        if signed
        else st.integers(0, (1 << bits) - 1)
    )


TEXT = st.text(max_size=12)
LEAVES = st.builds(Leaf, integers(32, True), st.none() | TEXT)
OTHERS = st.builds(Other, st.floats(allow_nan=False))
EVERYTHING = st.builds(
    Everything,
    boolean=st.booleans(),
    i8=integers(8, True),
    u8=integers(8, False),
    i16=integers(16, True),
    u16=integers(16, False),
    i32=integers(32, True),
    u32=integers(32, False),
    i64=integers(64, True),
    u64=integers(64, False),
    f32=st.floats(width=32, allow_nan=False),
    f64=st.floats(allow_nan=False),
    text=st.none() | TEXT,
    texts=st.none() | st.lists(TEXT, max_size=3),
    raw=st.none() | st.binary(max_size=40),
    numbers=st.none() | st.lists(integers(64, True), max_size=5),
    flags=st.none() | st.lists(st.booleans(), max_size=5),
    floats=st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=5),
    leaf=st.none() | LEAVES,
    leaves=st.none() | st.lists(LEAVES, max_size=3),
    either=st.none() | LEAVES | OTHERS,
    doubled=st.none() | st.tuples(st.just(1), LEAVES) | st.tuples(st.just(3), LEAVES) | OTHERS,
    last=integers(32, True),
)


@settings(max_examples=150)
@given(EVERYTHING)
def test_round_trip(value: Everything) -> None:
    data = fb.pack(value, b"TEST")
    assert fb.file_identifier(data) == b"TEST"
    assert fb.unpack(Everything, data) == value


@settings(max_examples=150)
@given(EVERYTHING, st.data())
def test_cut_short_is_an_error_or_what_was_whole(value: Everything, data: Any) -> None:
    whole = fb.pack(value, b"TEST")
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with suppress(ValueError):
        fb.unpack(Everything, cut)


@settings(max_examples=150)
@given(EVERYTHING, st.data())
def test_a_changed_byte_is_an_error_or_another_value(value: Everything, data: Any) -> None:
    whole = bytearray(fb.pack(value, b"TEST"))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ValueError):
        fb.unpack(Everything, bytes(whole))


def test_defaults_take_no_room() -> None:
    assert len(fb.pack(Other(1.5), b"TEST")) < len(fb.pack(Other(2.5), b"TEST"))
    assert fb.unpack(Other, fb.pack(Other(), b"TEST")).value == 1.5


def test_not_a_number_survives() -> None:
    assert math.isnan(fb.unpack(Other, fb.pack(Other(math.nan), b"TEST")).value)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 100])
def test_alignment_of_vectors(length: int) -> None:
    """Counted from the buffer's end, to which every alignment inside it refers."""
    content = bytes(range(1, 101))[:length]
    for texts in ([], ["a"], ["abc", "d"]):
        data = fb.pack(Everything(raw=content, texts=texts, numbers=[1, 2, 3]), b"TEST")
        assert data.find(content) % 16 == 0


def test_slots_follow_the_order_of_fields() -> None:
    """A union takes two: its member's number comes before its value."""
    data = fb.pack(Everything(last=9), b"TEST")
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    slots = (struct.unpack_from("<H", data, vtable)[0] - 4) // 2
    assert slots == len(fields(Everything)) + 2


@pytest.mark.parametrize("kind", [pte.Program, payload.XNNGraph])
def test_empty_tables(kind: Any) -> None:
    assert fb.unpack(kind, fb.pack(kind(), b"TEST")) == kind()


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\xff\xff\xff\xff", b"text" * 9])
def test_not_a_flatbuffer(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\[flatbuffer\] not a valid Program"):
        fb.unpack(pte.Program, data)
