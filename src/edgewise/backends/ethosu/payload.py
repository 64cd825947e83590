"""The delegate's payload: blocks named `vela_bin_stream` … `vela_end_stream`, little endian.

A block is a header of 32 bytes (name, padded with zeros to 16; int32 length; twelve zero
bytes), then its contents, padded with zeros to a multiple of 16. An empty block is its header.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_BLOCK = struct.Struct("<16si12s")
_TENSOR = struct.Struct("<9i")
_ALIGNMENT = 16
_NAMES = (
    "vela_bin_stream",
    "cmd_data",
    "weight_data",
    "scratch_size",
    "inputs",
    "outputs",
    "vela_end_stream",
)
_SIZES = (1, 2, 4, 8)
MAX_TENSORS = 1 << 12
FORMATS = (b"COP1", b"COP2")
"""Of driver actions."""
_NO_WEIGHTS = b"\0"
"""Stands for none, as in ExecuTorch's files."""


@dataclass(frozen=True)
class NpuTensor:
    """An input or output of an NPU program."""

    shape: tuple[int, ...]
    """Six sizes, with ones in front."""
    element_size: int
    """In bytes."""
    offset: int
    region: int

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.element_size


@dataclass(frozen=True)
class NpuProgram:
    """What Vela makes of a graph, and what a delegate's payload holds."""

    commands: bytes
    """Driver actions and the command stream; begins with one of FORMATS."""
    weights: bytes
    """Region 0: encoded weights, scales, constants."""
    scratch_size: int
    """Bytes of region 1, in which inputs and outputs lie."""
    inputs: tuple[NpuTensor, ...]
    outputs: tuple[NpuTensor, ...]


def to_bytes(program: NpuProgram) -> bytes:
    contents = (
        b"",
        program.commands,
        program.weights or _NO_WEIGHTS,
        struct.pack("<I", program.scratch_size),
        _pack_tensors(program.inputs),
        _pack_tensors(program.outputs),
        b"",
    )
    return b"".join(_block(name, data) for name, data in zip(_NAMES, contents, strict=True))


def from_bytes(payload: bytes | memoryview) -> NpuProgram:
    """The program of a payload. ValueError where it breaks a rule of the format."""
    view = memoryview(payload).cast("B")
    program, end = read_from(view, 0)
    if end != len(view):
        raise _error(f"nothing follows vela_end_stream; got {len(view) - end} bytes")
    return program


def read_from(view: memoryview, position: int) -> tuple[NpuProgram, int]:
    """The program that begins at a position in bytes, and where it ends. ValueError as above."""
    contents: dict[str, memoryview] = {}
    for expected in _NAMES:
        position, contents[expected] = _read_block(view, position, expected)
    for name in ("vela_bin_stream", "vela_end_stream"):
        if len(contents[name]):
            raise _error(f"block {name} is empty; got {len(contents[name])} bytes")
    commands = bytes(contents["cmd_data"])
    if commands[:4] not in FORMATS:
        raise _error(f"cmd_data begins with b'COP1' or b'COP2'; got {commands[:4]!r}")
    if len(contents["scratch_size"]) != 4:
        raise _error(f"scratch_size has 4 bytes; got {len(contents['scratch_size'])}")
    (scratch_size,) = struct.unpack("<I", contents["scratch_size"])
    weights = bytes(contents["weight_data"])
    program = NpuProgram(
        commands=commands,
        weights=b"" if weights == _NO_WEIGHTS else weights,
        scratch_size=scratch_size,
        inputs=_unpack_tensors("inputs", contents["inputs"]),
        outputs=_unpack_tensors("outputs", contents["outputs"]),
    )
    return program, position


def _error(text: str) -> ValueError:
    return ValueError(f"[ethosu payload] {text}")


def _block(name: str, data: bytes) -> bytes:
    return _BLOCK.pack(name.encode(), len(data), b"") + data + bytes(-len(data) % _ALIGNMENT)


def _read_block(view: memoryview, position: int, expected: str) -> tuple[int, memoryview]:
    """The position after the block, and its contents."""
    if len(view) - position < _BLOCK.size:
        raise _error(
            f"block {expected} has a header of {_BLOCK.size} bytes at {position:#x}; "
            f"got {len(view) - position}"
        )
    name, size, zeros = _BLOCK.unpack_from(view, position)
    if name != expected.encode().ljust(16, b"\0"):
        raise _error(f"block at {position:#x} is {expected}; got {name.rstrip(bytes(1))!r}")
    if zeros != bytes(12):
        raise _error(f"the header of {expected} ends with zeros; got {zeros.hex()}")
    start = position + _BLOCK.size
    if not 0 <= size <= len(view) - start:
        raise _error(f"{expected} fits into the payload's {len(view)} bytes; got length {size}")
    end = start + size + -size % _ALIGNMENT
    if bytes(view[start + size : end]) != bytes(end - start - size):
        raise _error(f"{expected} is padded with zeros to {end:#x}; got other bytes or no end")
    return end, view[start : start + size]


def _pack_tensors(tensors: Sequence[NpuTensor]) -> bytes:
    rows = (_TENSOR.pack(*t.shape, t.element_size, t.offset, t.region) for t in tensors)
    return struct.pack("<i", len(tensors)) + b"".join(rows)


def _unpack_tensors(name: str, data: memoryview) -> tuple[NpuTensor, ...]:
    if len(data) < 4:
        raise _error(f"{name} begins with an int32 count; got {len(data)} bytes")
    (count,) = struct.unpack_from("<i", data)
    if not 0 <= count <= MAX_TENSORS or len(data) != 4 + count * _TENSOR.size:
        raise _error(
            f"{name} has 4 + count * {_TENSOR.size} bytes, count at most {MAX_TENSORS}; "
            f"got count {count} in {len(data)} bytes"
        )
    tensors = []
    for index, row in enumerate(_TENSOR.iter_unpack(data[4:])):
        *shape, element_size, offset, region = row
        if min(shape) < 1 or element_size not in _SIZES or offset < 0 or not 0 <= region <= 7:
            raise _error(
                f"{name}[{index}] has sizes of 1 and more, elements of {_SIZES} bytes, an offset "
                f"of 0 and more, region 0 to 7; got {shape}, {element_size}, {offset}, {region}"
            )
        tensors.append(NpuTensor(tuple(shape), element_size, offset, region))
    return tuple(tensors)
