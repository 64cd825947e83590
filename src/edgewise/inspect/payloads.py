"""What is inside of delegates' payloads, as far as backends' formats tell. Takes no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from edgewise.inspect.record import TensorRecord


@dataclass(frozen=True)
class PayloadValue:
    """A tensor of a payload's graph."""

    tensor: TensorRecord
    constant: str | None = None
    """Key of the named data that it holds, or a number for data inside of the payload; None
    for what is computed."""
    quantization: str = ""
    """What stored integers mean: "scale 0.02, zero point 3", "32 scales along dimension 0"."""


@dataclass(frozen=True)
class PayloadNode:
    """An operation: numbers of the values that it reads and writes."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    handle: int = -1


@dataclass(frozen=True)
class Payload:
    """A delegate's graph. inputs, outputs: values by the delegate call's arguments."""

    nodes: tuple[PayloadNode, ...]
    values: Mapping[int, PayloadValue]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def open_payload(backend: str, data: bytes | memoryview) -> Payload | None:
    """None for a backend whose payloads are not graphs. ValueError if the bytes are damaged."""
    opener = _OPENERS.get(backend)
    return opener(data) if opener else None


_XNN_TYPES = {
    1: ("float32", 32),
    2: ("float16", 16),
    3: ("qint8", 8),
    4: ("quint8", 8),
    5: ("qint32", 32),
    6: ("qcint8", 8),
    7: ("qcint32", 32),
    8: ("qcint4", 4),
    9: ("qdint8", 8),
    10: ("qbint4", 4),
    11: ("qpint8", 8),
    12: ("int32", 32),
    13: ("pfp32", 32),
    14: ("bfloat16", 16),
    15: ("qbint8", 8),
}
_XNN_INPUTS = (
    "input_id",
    "input1_id",
    "input2_id",
    "input3_id",
    "input4_id",
    "input5_id",
    "query_id",
    "key_id",
    "value_id",
    "scale_id",
    "mask_id",
    "filter_id",
    "bias_id",
)
_XNN_OUTPUTS = ("output_id", "output_value_id", "output_index_id")
_XNN_MOST = 3.4e38


def _open_xnnpack(data: bytes | memoryview) -> Payload:
    from edgewise.backends.xnnpack import payload

    graph = payload.from_bytes(data)
    kinds = list(payload.KINDS)
    types = list(payload.KINDS.values())
    values = {}
    for number, entry in enumerate(graph.xvalues or []):
        value = entry.xvalue_union
        tensor = getattr(value, "tensor_value", value)
        if tensor is None:
            raise ValueError(f"[xnnpack] value {number} must have a tensor; got none")
        dtype, bits = _XNN_TYPES.get(tensor.datatype, (f"type {tensor.datatype}", 0))
        shape = tuple(tensor.dims or ())
        constant = None
        if tensor.constant_buffer_idx:
            found = (graph.constant_data or [])[tensor.constant_buffer_idx :][:1]
            constant = (found[0].named_key if found else None) or str(tensor.constant_buffer_idx)
        values[tensor.id_out] = PayloadValue(
            TensorRecord(dtype, shape, _bytes(shape, bits)),
            constant,
            _xnn_quantization(getattr(value, "quant_params", None)),
        )
    nodes = []
    for number, node in enumerate(graph.xnodes or []):
        member = node.xnode_union
        if member is None:
            raise ValueError(f"[xnnpack] node {number} must be of a known kind; got another")
        kind, table = (
            member if isinstance(member, tuple) else (types.index(type(member)) + 1, member)
        )
        attributes = _xnn_attributes(table)
        if node.output_min_max is not None:
            limits = node.output_min_max
            low, high = limits.output_min, limits.output_max
            if low > -_XNN_MOST or high < _XNN_MOST:
                attributes["clamp"] = f"[{low:g}, {high:g}]"
        nodes.append(
            PayloadNode(
                kinds[kind - 1],
                _ids(table, _XNN_INPUTS, payload.INVALID_ID),
                _ids(table, _XNN_OUTPUTS, payload.INVALID_ID),
                attributes,
                node.debug_handle,
            )
        )
    inputs, outputs = tuple(graph.input_ids or ()), tuple(graph.output_ids or ())
    return Payload(tuple(nodes), values, inputs, outputs)


def _xnn_quantization(parameters: Any) -> str:
    if parameters is None:
        return ""
    if hasattr(parameters, "zero_point"):
        return f"scale {parameters.scale:.6g}, zero point {parameters.zero_point}"
    if hasattr(parameters, "num_nonbatch_dims"):
        return f"at run time, over the last {parameters.num_nonbatch_dims} dimensions"
    count = parameters.num_scales or len(parameters.scale or [])
    if hasattr(parameters, "group_size"):
        return f"{count} scales, in groups of {parameters.group_size}"
    return f"{count} scales along dimension {parameters.channel_dim}"


def _ids(table: Any, names: tuple[str, ...], invalid: int) -> tuple[int, ...]:
    found = (getattr(table, name, invalid) for name in names)
    return tuple(i for i in found if i != invalid)


def _xnn_attributes(table: Any) -> dict[str, str]:
    """The fields that are no ids, without those that are zero."""
    found = {}
    for one in fields(table):
        value = getattr(table, one.name)
        if not one.name.endswith("_id") and value not in (0, None):
            found[one.name] = f"{value:g}" if isinstance(value, float) else str(value)
    return found


def _bytes(shape: tuple[int, ...], bits: int) -> int:
    count = 1
    for size in shape:
        count *= size
    return (count * bits + 7) // 8


_OPENERS: Mapping[str, Callable[[bytes | memoryview], Payload]] = {"XnnpackBackend": _open_xnnpack}
