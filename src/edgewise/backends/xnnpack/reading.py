"""What an XNNPACK delegate's payload holds. Takes no torch; reads other writers' payloads, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgewise.backends.xnnpack import payload
from edgewise.inspect.delegate_graphs import DelegateGraph, DelegateNode, DelegateTensor
from edgewise.inspect.payloads import Payload, PayloadNode, PayloadValue
from edgewise.inspect.record import TensorRecord

_TYPES = {
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
_INPUTS = (
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
_OUTPUTS = ("output_id", "output_value_id", "output_index_id")
_MOST = 3.4e38


def payload_graph(data: bytes | memoryview) -> Payload:
    """As `edgewise.registry.Backend.payload_graph`."""
    graph = payload.from_bytes(data)
    kinds = list(payload.KINDS)
    types = list(payload.KINDS.values())
    values = {}
    for number, entry in enumerate(graph.xvalues or []):
        value = entry.xvalue_union
        tensor = getattr(value, "tensor_value", value)
        if tensor is None:
            raise ValueError(f"[xnnpack] value {number} must have a tensor; got none")
        dtype, bits = _TYPES.get(tensor.datatype, (f"type {tensor.datatype}", 0))
        shape = tuple(tensor.dims or ())
        constant = None
        if tensor.constant_buffer_idx:
            found = (graph.constant_data or [])[tensor.constant_buffer_idx :][:1]
            constant = (found[0].named_key if found else None) or str(tensor.constant_buffer_idx)
        values[tensor.id_out] = PayloadValue(
            TensorRecord(dtype, shape, _bytes(shape, bits)),
            constant,
            _quantization(getattr(value, "quant_params", None)),
        )
    nodes = []
    for number, node in enumerate(graph.xnodes or []):
        member = node.xnode_union
        if member is None:
            raise ValueError(f"[xnnpack] node {number} must be of a known kind; got another")
        kind, table = (
            member if isinstance(member, tuple) else (types.index(type(member)) + 1, member)
        )
        attributes = _attributes(table)
        if node.output_min_max is not None:
            limits = node.output_min_max
            low, high = limits.output_min, limits.output_max
            if low > -_MOST or high < _MOST:
                attributes["clamp"] = f"[{low:g}, {high:g}]"
        nodes.append(
            PayloadNode(
                kinds[kind - 1],
                _ids(table, _INPUTS, payload.INVALID_ID),
                _ids(table, _OUTPUTS, payload.INVALID_ID),
                attributes,
                node.debug_handle,
            )
        )
    inputs, outputs = tuple(graph.input_ids or ()), tuple(graph.output_ids or ())
    return Payload(tuple(nodes), values, inputs, outputs)


def _quantization(parameters: Any) -> str:
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


def _attributes(table: Any) -> dict[str, str]:
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


def read_payload(data: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
    """As `edgewise.registry.Backend.read_payload`."""
    held = payload_graph(data)
    tensors = []
    for number, value in held.values.items():
        role = "input" if number in held.inputs else "internal"
        if number in held.outputs:
            role = "output"
        nbytes, key = 0, ""
        if value.constant is not None:
            role, key = "constant", value.constant
            nbytes = len(named[key]) if key in named else value.tensor.bytes
        tensor = value.tensor
        shape = [int(one) for one in tensor.shape]
        tensors.append(
            DelegateTensor(f"%{number}", tensor.dtype, shape, role, value.quantization, nbytes, key)
        )
    nodes = [
        DelegateNode(
            node.kind,
            [f"%{i}" for i in node.inputs],
            [f"%{i}" for i in node.outputs],
            dict(node.attributes),
        )
        for node in held.nodes
    ]
    return DelegateGraph("xnnpack", nodes, tensors, {"nodes": len(nodes)})
