"""An XNNPACK subgraph as a payload, and the named data that it refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from edgewise.backends.xnnpack import payload
from edgewise.backends.xnnpack.lowering.constant_storage import read_in_place
from edgewise.backends.xnnpack.lowering.graph import (
    DATATYPES,
    EXTERNAL_INPUT,
    EXTERNAL_OUTPUT,
    QDINT8,
    Graph,
    Node,
    Value,
)
from edgewise.backends.xnnpack.lowering.quant import (
    PerBlock,
    PerChannel,
    PerTensor,
    Quant,
    pack_nibbles,
)
from edgewise.backends.xnnpack.node_kinds import BY_NAME, NUMBERS_IN_PAYLOAD
from edgewise.edge.node_errors import internal_errors
from edgewise.edge.program import tensor_bytes
from edgewise.edge.sizes import at, is_symbolic
from edgewise.errors import PartitionError

_PER_TENSOR = {torch.int8: 3, torch.uint8: 4, torch.int32: 5}
_PER_CHANNEL = {8: 6, 32: 7, 4: 8}
_PER_BLOCK = {4: 10, 8: 15}


@dataclass(frozen=True)
class Serialized:
    """A payload, the named data that it refers to (by the hash of its contents), and whether
    the payload has constants of its own, which are read while the program runs.

    data_files: of named data that belong into a file of data, its name."""

    payload: bytes
    named: dict[str, memoryview]
    has_constants: bool
    data_files: dict[str, str]


def serialize(graph: Graph) -> Serialized:
    externals = len(graph.inputs) + len(graph.outputs)
    numbers: dict[Value, int] = {}
    for number, value in enumerate([*graph.inputs, *graph.outputs]):
        if value in numbers:
            raise PartitionError("[xnnpack] an external value must have one role; got two")
        numbers[value] = number
    for value in graph.values():
        numbers.setdefault(value, len(numbers))

    named: dict[str, memoryview] = {}
    data_files: dict[str, str] = {}
    file_of = _data_files(graph)
    held = payload.ConstantBytes()
    offsets = [payload.ConstantDataOffset(payload.NO_OFFSET, 0, "")]
    in_payload = read_in_place(graph)

    def add(data: torch.Tensor, is_held: bool = False, file: str | None = None) -> int:
        blob = tensor_bytes(data)
        if is_held:
            offsets.append(payload.ConstantDataOffset(held.add(blob), len(blob), None))
        else:
            key = hashlib.sha256(blob).hexdigest()
            named[key] = blob
            if file is not None:
                data_files.setdefault(key, file)
            offsets.append(payload.ConstantDataOffset(payload.NO_OFFSET, len(blob), key))
        return len(offsets) - 1

    xvalues = []
    for value, number in numbers.items():
        constant = 0
        if value.data is not None:
            four_bits = getattr(value.quant, "bits", 8) == 4
            data = pack_nibbles(value.data) if four_bits else value.data
            constant = add(data, value in in_payload, file_of.get(value))
        flags = (EXTERNAL_INPUT if value.input_index is not None else 0) | (
            EXTERNAL_OUTPUT if value.output_index is not None else 0
        )
        tensor = payload.TensorValue(
            datatype=_datatype(value),
            num_dims=len(value.dims),
            dims=[at(size, graph.symbols) for size in value.dims],
            constant_buffer_idx=constant,
            external_id=number if number < externals else payload.INVALID_ID,
            flags=flags,
            id_out=number,
        )
        if value.quant is None:
            xvalues.append(payload.XValue(tensor))
        else:
            meaning = _write_quant(value.quant, partial(add, file=file_of.get(value)))
            xvalues.append(payload.XValue(payload.QuantizedTensorValue(tensor, meaning)))
    written = payload.XNNGraph(
        version="0",
        xnodes=[_write_at_source(graph, node, numbers) for node in graph.nodes],
        xvalues=xvalues,
        num_externs=externals,
        input_ids=list(range(len(graph.inputs))),
        output_ids=list(range(len(graph.inputs), externals)),
        constant_data=offsets,
    )
    return Serialized(payload.to_bytes(written, held), named, bool(held.parts), data_files)


def _data_files(graph: Graph) -> dict[Value, str]:
    """The file of each packed constant that is marked for one."""
    found = {}
    for node in graph.nodes if graph.data_files else ():
        files = graph.data_files.get(node.origin, (None, None))
        for value, file in zip(node.inputs[1:3], files, strict=False):
            if value is not None and value.data is not None and file is not None:
                found[value] = file
    return found


def _datatype(value: Value) -> int:
    quant = value.quant
    if quant is None:
        return DATATYPES[value.dtype]
    if isinstance(quant, PerTensor):
        return _PER_TENSOR[quant.dtype]
    if isinstance(quant, PerChannel):
        return _PER_CHANNEL[quant.bits]
    return _PER_BLOCK[quant.bits] if isinstance(quant, PerBlock) else QDINT8


def _write_quant(quant: Quant, add: Callable[[torch.Tensor], int]) -> Any:
    if isinstance(quant, PerTensor):
        return payload.PerTensorQuant(quant.scale, quant.zero_point)
    if isinstance(quant, PerChannel):
        return payload.PerChannelQuant(scale=quant.scales.tolist(), channel_dim=quant.axis)
    if isinstance(quant, PerBlock) and quant.bits == 8:
        return payload.PerChannelGroupQuant(
            scale=quant.scales.reshape(-1).tolist(), channel_dim=0, group_size=quant.size
        )
    if isinstance(quant, PerBlock):
        return payload.PerChannelGroupQuant(
            channel_dim=0,
            group_size=quant.size,
            scale_buffer_idx=add(quant.scales.to(torch.bfloat16)),
            num_scales=quant.scales.numel(),
        )
    return payload.PerTokenDynamicQuant(quant.dims)


def _write_at_source(graph: Graph, node: Node, numbers: dict[Value, int]) -> payload.XNode:
    """What a definition gave that its node cannot hold is told at the node that it is from."""
    source = graph.sources[node.origin] if graph.sources else None
    with internal_errors(f"writing {node.kind} for XNNPACK", source):
        return _write_node(node, numbers)


def _write_node(node: Node, numbers: dict[Value, int]) -> payload.XNode:
    kind = BY_NAME[node.kind]
    fields: dict[str, Any] = {"flags": 0, **node.params}
    for name in kind.layout.open_sizes:
        fields[name] = [0 if is_symbolic(size) else size for size in fields[name]]
    for name, value in zip(kind.input_fields, node.inputs, strict=True):
        fields[name] = payload.INVALID_ID if value is None else numbers[value]
    fields.update(dict.fromkeys(kind.unused_fields, payload.INVALID_ID))
    for name, value in zip(kind.layout.outputs, node.outputs, strict=True):
        fields[name] = numbers[value]
    clamp = payload.OutputMinMax(*node.clamp) if node.clamp is not None else None
    member = (NUMBERS_IN_PAYLOAD[node.kind], payload.KINDS[node.kind](**fields))
    return payload.XNode(member, node.origin, clamp)
