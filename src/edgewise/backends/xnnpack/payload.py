"""The delegate's payload: tables that mirror `schema/xnnpack_graph.fbs`, and its header."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass, field
from typing import Any

from edgewise.backends.xnnpack.node_kinds import NODE_KINDS, Layout
from edgewise.flatbuffer import (
    FLOAT32,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Table,
    pack,
    scalar,
    string,
    table,
    tables,
    union,
    unpack,
    vector,
)

INVALID_ID = 0xFFFFFFFF
NO_OFFSET = 0xFFFFFFFFFFFFFFFF
IDENTIFIER = b"XN01"
_HEADER = struct.Struct("<4s4sHIIIQ")
_ALIGNMENT = 16


@dataclass
class PerChannelGroupQuant(Table):
    scale: Any = vector(FLOAT32)
    channel_dim: int = scalar(INT32)
    group_size: int = scalar(INT32)
    scale_bf16: Any = vector(UINT16)
    scale_buffer_idx: int = scalar(UINT32)
    num_scales: int = scalar(UINT32)


@dataclass
class PerChannelQuant(Table):
    scale: Any = vector(FLOAT32)
    channel_dim: int = scalar(INT32)
    scale_buffer_idx: int = scalar(UINT32)
    num_scales: int = scalar(UINT32)


@dataclass
class PerTokenDynamicQuant(Table):
    num_nonbatch_dims: int = scalar(INT32)


@dataclass
class PerTensorQuant(Table):
    scale: float = scalar(FLOAT32)
    zero_point: int = scalar(INT32)


@dataclass
class TensorValue(Table):
    datatype: int = scalar(INT16)
    num_dims: int = scalar(UINT32)
    dims: Any = vector(UINT32)
    constant_buffer_idx: int = scalar(UINT32)
    external_id: int = scalar(UINT32)
    flags: int = scalar(UINT32)
    id_out: int = scalar(UINT32)


@dataclass
class QuantizedTensorValue(Table):
    tensor_value: TensorValue | None = table(TensorValue)
    quant_params: Any = union(
        PerChannelQuant, PerTensorQuant, PerTokenDynamicQuant, PerChannelGroupQuant
    )


_TYPES = {
    "uint": lambda: scalar(UINT32),
    "float": lambda: scalar(FLOAT32),
    "[uint]": lambda: vector(UINT32),
}


def _table_of(layout: Layout) -> type[Table]:
    fields = [(name, Any, _TYPES[kind]()) for name, kind in layout.fields.items()]
    return dataclasses.make_dataclass(layout.name.lstrip("_"), fields, bases=(Table,))


_TABLES = {kind.layout: _table_of(kind.layout) for kind in NODE_KINDS}

KINDS: dict[str, type[Table]] = {kind.name: _TABLES[kind.layout] for kind in NODE_KINDS}
"""The members of the node union in their order: the number of a kind is its position."""


@dataclass
class OutputMinMax(Table):
    output_min: float = scalar(FLOAT32)
    output_max: float = scalar(FLOAT32)


@dataclass
class XNode(Table):
    xnode_union: Any = union(*KINDS.values())
    debug_handle: int = scalar(UINT32)
    output_min_max: OutputMinMax | None = table(OutputMinMax)


@dataclass
class XValue(Table):
    xvalue_union: Any = union(TensorValue, QuantizedTensorValue)


@dataclass
class Buffer(Table):
    storage: Any = vector(UINT8)


@dataclass
class ConstantDataOffset(Table):
    offset: int = scalar(UINT64)
    size: int = scalar(UINT64)
    named_key: str | None = string()


@dataclass
class XNNGraph(Table):
    version: str | None = string()
    xnodes: Any = tables(XNode)
    xvalues: Any = tables(XValue)
    num_externs: int = scalar(UINT32)
    input_ids: Any = vector(UINT32)
    output_ids: Any = vector(UINT32)
    constant_buffer: Any = tables(Buffer)
    mem_buffer_sizes: Any = vector(UINT32)
    constant_data: Any = tables(ConstantDataOffset)


_OVERREAD = 16
"""XNNPACK may read so many bytes beyond a tensor's end."""


@dataclass
class ConstantBytes:
    """The constants that lie in the payload. Equal contents lie there once."""

    parts: dict[bytes, int] = field(default_factory=dict)
    """Offset of each content."""
    size: int = 0

    def add(self, blob: bytes | memoryview) -> int:
        """The offset of these contents in the payload's constants."""
        content = bytes(blob)
        if content not in self.parts:
            self.parts[content] = self.size
            self.size += -(-len(content) // _ALIGNMENT) * _ALIGNMENT
        return self.parts[content]

    def to_bytes(self) -> bytes:
        if not self.parts:
            return b""
        joined = b"".join(p.ljust(-(-len(p) // _ALIGNMENT) * _ALIGNMENT, b"\0") for p in self.parts)
        return joined + bytes(_OVERREAD)


def to_bytes(graph: XNNGraph, constants: ConstantBytes | None = None) -> bytes:
    """Header, the flatbuffer and the constants of the payload, each padded to 16 bytes."""
    body = pack(graph, IDENTIFIER)
    held = constants.to_bytes() if constants is not None else b""
    start = -(-_HEADER.size // _ALIGNMENT) * _ALIGNMENT
    padded = -(-len(body) // _ALIGNMENT) * _ALIGNMENT
    header = _HEADER.pack(
        b"\0" * 4, b"XH00", _HEADER.size, start, len(body), start + padded, len(held)
    )
    return header.ljust(start, b"\0") + body.ljust(padded, b"\0") + held


def from_bytes(payload: bytes | memoryview) -> XNNGraph:
    """The graph of a payload, this project's or the peer's. ValueError if it is neither."""
    view = memoryview(payload)
    if bytes(view[4:8]) == b"XH00":
        if len(view) < _HEADER.size:
            raise ValueError(
                f"[xnnpack] a payload's header has {_HEADER.size} bytes; got {len(view)}"
            )
        _, _, _, start, size, _, _ = _HEADER.unpack_from(view)
        view = view[start : start + size]
    if bytes(view[4:8]) != IDENTIFIER:
        raise ValueError(f"[xnnpack] a payload starts with XH00 or XN01; got {bytes(view[4:8])!r}")
    return unpack(XNNGraph, view)
