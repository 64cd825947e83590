"""Bundled programs (`.bpte`): a program with calls to try it by, and what they shall give.

Plain dataclasses that mirror `schema/bundled_program.fbs`, field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.flatbuffer import (
    INT8,
    INT32,
    UINT8,
    UINT32,
    Table,
    file_identifier,
    pack,
    scalar,
    string,
    tables,
    union,
    unpack,
    vector,
)
from edgewise.format.program import Bool, Double, Int

IDENTIFIER = b"BP08"
VERSION = 2


@dataclass
class Tensor(Table):
    """data: the elements in the order of `dim_order`, without gaps."""

    scalar_type: int = scalar(INT8)
    sizes: Any = vector(INT32)
    data: Any = vector(UINT8, align=16)
    dim_order: Any = vector(UINT8)


@dataclass
class Value(Table):
    val: Any = union(Tensor, Int, Bool, Double)


@dataclass
class BundledMethodTestCase(Table):
    """expected_outputs: none where the call is only to be run."""

    inputs: Any = tables(Value)
    expected_outputs: Any = tables(Value)


@dataclass
class BundledMethodTestSuite(Table):
    method_name: str | None = string()
    test_cases: Any = tables(BundledMethodTestCase)


@dataclass
class BundledProgram(Table):
    """program: a whole `.pte` file."""

    version: int = scalar(UINT32)
    method_test_suites: Any = tables(BundledMethodTestSuite)
    program: Any = vector(UINT8, align=32)


def to_bytes(bundled: BundledProgram) -> bytes:
    """The file."""
    return pack(bundled, IDENTIFIER)


def is_bundled(data: bytes | memoryview) -> bool:
    """Whether a file, or its first eight bytes, is a bundled program."""
    return len(data) >= 8 and file_identifier(data) == IDENTIFIER


def read(data: bytes | memoryview, name: str = "file") -> BundledProgram:
    """ValueError for a file that is none, or damaged."""
    if not is_bundled(data):
        found = bytes(memoryview(data)[4:8])
        raise ValueError(
            f"[bundled program] {name} must have 'BP08' at byte 4; got {found!r}; "
            f"try edgewise run for a .pte file"
        )
    bundled = unpack(BundledProgram, data)
    if not len(bundled.program if bundled.program is not None else ()):
        raise ValueError(f"[bundled program] {name} must hold a program; got none")
    return bundled


__all__ = [
    "IDENTIFIER",
    "VERSION",
    "Bool",
    "BundledMethodTestCase",
    "BundledMethodTestSuite",
    "BundledProgram",
    "Double",
    "Int",
    "Tensor",
    "Value",
    "is_bundled",
    "read",
    "to_bytes",
]
