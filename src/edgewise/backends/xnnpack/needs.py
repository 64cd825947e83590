"""What of an XNNPACK payload not every release of ExecuTorch can run. Takes no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgewise.backends.xnnpack.payload import INVALID_ID, KINDS, from_bytes
from edgewise.inspect.needs import Need, facts

_CONVOLUTIONS = ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d")
_PACKING = ("FullyConnected", *_CONVOLUTIONS)
_FP32, _FP16, _QCINT8, _QCINT4, _QBINT4, _BF16, _QBINT8 = 1, 2, 6, 8, 10, 14, 15
_STORED = (3, _QCINT8, _QCINT4, _QBINT4, _QBINT8)


def needs(payload: bytes | memoryview) -> Iterator[Need]:
    """As `edgewise.registry.Backend.needs`."""
    nodes = facts()["nodes"]
    graph = from_bytes(payload)
    kinds, types = list(KINDS), list(KINDS.values())
    tensors = {}
    for value in graph.xvalues or []:
        tensor = getattr(value.xvalue_union, "tensor_value", value.xvalue_union)
        tensors[tensor.id_out] = tensor
        if tensor.datatype == _QBINT8:
            yield Need("8-bit weights in groups", None)
        if tensor.datatype == _BF16:
            yield Need("bfloat16 in XNNPACK", (1, 5))
    for node in graph.xnodes or []:
        member = node.xnode_union
        number, table = (
            member if isinstance(member, tuple) else (types.index(type(member)) + 1, member)
        )
        kind = kinds[number - 1]
        yield Need(f"XNNPACK node {kind}", nodes.get(kind))
        read_from = {
            name: tensors[id_]
            for name, id_ in vars(table).items()
            if name.endswith("_id") and not name.startswith("output") and id_ != INVALID_ID
        }
        yield from _of_weights(kind, read_from)
        grouped = kind == "FullyConnected" and read_from["filter_id"].datatype == _QBINT4
        if grouped and tensors[table.output_id].datatype == _FP16:
            yield Need("4-bit weights in groups beside float16", (1, 5), "some x86-64")
        for name, tensor in read_from.items():
            packed = kind in _PACKING and name in ("filter_id", "bias_id")
            if packed and read_from["filter_id"].constant_buffer_idx:
                continue
            index = tensor.constant_buffer_idx
            if index and (graph.constant_data or [])[index].named_key:
                yield Need("constants in named data that are read in place", (1, 4))


def _of_weights(kind: str, read_from: Mapping[str, Any]) -> Iterator[Need]:
    if kind not in _PACKING or not read_from["filter_id"].constant_buffer_idx:
        return
    x, weights = read_from["input1_id"].datatype, read_from["filter_id"].datatype
    if kind in _CONVOLUTIONS and weights == _FP16:
        since = None if kind == "ConvTranspose2d" else (1, 5)
        yield Need(f"float16 weights of {kind}", since)
    if weights in _STORED and x in (_FP32, _FP16):
        linear = kind == "FullyConnected" and x == _FP32 and weights in (_QCINT8, _QCINT4)
        if not linear:
            yield Need(f"integer weights of {kind} computed in floating point", None)
