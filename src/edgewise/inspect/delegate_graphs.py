"""What delegates' payloads hold, as graphs. Imports no torch; reads the peer's payloads, too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Blobs = Mapping[str, memoryview]
"""A program's named data."""


@dataclass(frozen=True)
class DelegateTensor:
    """A value inside a delegate."""

    name: str
    dtype: str
    shape: list[int]
    role: str
    """"input", "output", "constant" or "internal"."""
    quantization: str = ""
    """"per channel of dimension 0", "per tensor, 0.02 and zero point -128"; empty for none."""
    nbytes: int = 0
    """Of a constant in the file; 0 for others."""
    key: str = ""
    """Of a constant: the name of its data in the program, if it has one."""


@dataclass(frozen=True)
class DelegateNode:
    """An operator inside a delegate, in the order of execution."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DelegateGraph:
    """A payload, read. facts: figures that are of no node, by name."""

    format: str
    nodes: list[DelegateNode] = field(default_factory=list)
    tensors: list[DelegateTensor] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def read_payload(backend: str, payload: memoryview, named: Blobs) -> DelegateGraph:
    """The graph of a payload. ValueError if it breaks its format, or the backend is not known."""
    reader = _READERS.get(backend)
    if reader is None:
        raise ValueError(
            f"[payload] known are the payloads of {', '.join(_READERS)}; got {backend!r}"
        )
    try:
        return reader(payload, named)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as cause:
        # Numbers in a damaged payload that point to nothing.
        raise ValueError(f"[{backend}] the payload must be whole; got {cause!r}") from None


# ---- XNNPACK

_XNN_TYPES = {
    1: "float32",
    2: "float16",
    3: "qint8",
    4: "quint8",
    5: "qint32",
    6: "qcint8",
    7: "qcint32",
    8: "qcint4",
    9: "qdint8",
    10: "qbint4",
    11: "qpint8",
    12: "int32",
    13: "pfp32",
    14: "bfloat16",
    15: "qbint8",
}
_XNN_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "qint32": 32, "qcint32": 32} | {
    "int32": 32,
    "qcint4": 4,
    "qbint4": 4,
}
_XNN_NONE = 0xFFFFFFFF


def _xnnpack(payload: memoryview, named: Blobs) -> DelegateGraph:
    from edgewise.backends.xnnpack.payload import KINDS, from_bytes

    graph = from_bytes(payload)
    keys = [c.named_key or "" for c in graph.constant_data or []]
    tensors: dict[int, DelegateTensor] = {}
    for value in graph.xvalues or []:
        held = value.xvalue_union
        quant = ""
        if hasattr(held, "tensor_value"):
            quant, held = _xnn_quantization(held.quant_params), held.tensor_value
        dtype = _XNN_TYPES.get(held.datatype, f"type {held.datatype}")
        shape = list(held.dims or [])
        index = held.constant_buffer_idx
        key = keys[index] if index and keys else ""
        role = "input" if held.flags & 1 else "output" if held.flags & 2 else "internal"
        size = 0
        if index:
            role = "constant"
            size = len(named[key]) if key in named else _packed(dtype, shape)
        tensors[held.id_out] = DelegateTensor(
            f"%{held.id_out}", dtype, shape, role, quant, size, key
        )
    kinds = list(KINDS)
    nodes = []
    for node in graph.xnodes or []:
        number, body = _numbered(node.xnode_union)
        nodes.append(_xnn_node(kinds[number - 1], body, node.output_min_max))
    return DelegateGraph("xnnpack", nodes, list(tensors.values()), {"nodes": len(nodes)})


def _numbered(union: Any) -> tuple[int, Any]:
    """Members that occur once in the union come without their number."""
    if isinstance(union, tuple):
        return union
    from edgewise.backends.xnnpack.payload import KINDS

    return list(KINDS.values()).index(type(union)) + 1, union


def _xnn_node(kind: str, body: Any, limits: Any) -> DelegateNode:
    inputs, outputs, options = [], [], {}
    for one in dataclasses.fields(body):
        value = getattr(body, one.name)
        if one.name.startswith("output") and one.name.endswith("_id"):
            outputs.append(f"%{value}")
        elif one.name.endswith("_id"):
            # The fifth input of a concatenation stands behind its output.
            if value != _XNN_NONE and not (one.name == "input5_id" and kind != "Concatenate5"):
                inputs.append(f"%{value}")
        elif one.name == "flags":
            if value:
                options["flags"] = value
        elif value not in (0, None):
            options[one.name] = value
    if kind.startswith("Concatenate"):
        inputs = inputs[: int(kind[-1])]
    if limits is not None:
        options["min"], options["max"] = limits.output_min, limits.output_max
    return DelegateNode(kind, inputs, outputs, options)


def _xnn_quantization(params: Any) -> str:
    if params is None:
        return ""
    if hasattr(params, "zero_point"):
        return f"scale {params.scale:.6g}, zero point {params.zero_point}"
    if hasattr(params, "num_nonbatch_dims"):
        return f"at run time, over the last {params.num_nonbatch_dims} dimensions"
    count = params.num_scales or len(params.scale or [])
    if hasattr(params, "group_size"):
        return f"{count} scales, in groups of {params.group_size} along dimension 1"
    return f"{count} scales along dimension {params.channel_dim}"


def _packed(dtype: str, shape: list[int]) -> int:
    return -(-math.prod(shape) * _XNN_BITS.get(dtype, 8) // 8)


# ---- Ethos-U


def _ethosu(payload: memoryview, named: Blobs) -> DelegateGraph:
    from collections import Counter

    from edgewise.backends.ethosu.payload import from_bytes
    from edgewise.backends.ethosu.simulator.errors import NpuError
    from edgewise.backends.ethosu.simulator.stream import parse

    program = from_bytes(payload)
    try:
        target, commands = parse(program.commands)
    except NpuError as cause:
        raise ValueError(f"[EthosUBackend] {cause}") from None
    tensors = []
    for role, group in (("input", program.inputs), ("output", program.outputs)):
        for number, one in enumerate(group):
            shape = list(one.shape)
            while len(shape) > 1 and shape[0] == 1:
                shape.pop(0)
            dtype = f"{8 * one.element_size} bits"
            tensors.append(DelegateTensor(f"{role} {number}", dtype, shape, role))
    operations = [c.opcode.name for c in commands if c.opcode.name.startswith("NPU_OP_")]
    count = Counter(operations)
    facts = {
        "target": target.name,
        "commands": len(commands),
        "operations": dict(count),
        "command_bytes": len(program.commands),
        "weight_bytes": len(program.weights),
        "scratch_bytes": program.scratch_size,
    }
    names = ("NPU_OP_STOP", "NPU_OP_KERNEL_WAIT", "NPU_OP_DMA_WAIT")
    work = [DelegateNode(name, [], []) for name in operations if name not in names]
    return DelegateGraph("ethos-u command stream", work, tensors, facts)


# ---- Neutron


def _neutron(payload: memoryview, named: Blobs) -> DelegateGraph:
    from edgewise.backends.neutron.payload import REFERENCE_MAGIC, read_reference

    if bytes(payload[: len(REFERENCE_MAGIC)]) != REFERENCE_MAGIC:
        return _neutron_official(payload)
    held = read_reference(bytes(payload))
    graph = _tflite(held.model)
    return dataclasses.replace(
        graph, format="tflite (for this machine)", facts={"target": held.target, **graph.facts}
    )


def _neutron_official(payload: memoryview) -> DelegateGraph:
    inputs, outputs, arguments = payload[0], payload[1], payload[2]
    header = 3 + 2 * (inputs + outputs) + 1
    if len(payload) < header:
        raise ValueError(f"[NeutronBackend] a header of {header} bytes; got {len(payload)}")
    facts = {
        "inputs": inputs,
        "outputs": outputs,
        "arguments": arguments,
        "version": payload[header - 1],
        "microcode_weights_kernels_bytes": len(payload) - (header + -header % 16),
    }
    return DelegateGraph("neutron microcode", facts=facts)


def _tflite(data: bytes) -> DelegateGraph:
    from edgewise.backends.neutron.tflite.schema import BuiltinOperator, Model, TensorType
    from edgewise.flatbuffer import unpack

    def known(kind: Any, number: int) -> str:
        return str(kind(number).name) if number in list(kind) else f"{kind.__name__} {number}"

    model = unpack(Model, data)
    graph = model.subgraphs[0]
    names = [t.name or f"tensor {i}" for i, t in enumerate(graph.tensors)]
    tensors = []
    for index, tensor in enumerate(graph.tensors):
        content = model.buffers[tensor.buffer].data if tensor.buffer else None
        role = "constant" if content is not None else "internal"
        if index in (graph.inputs or []):
            role = "input"
        elif index in (graph.outputs or []):
            role = "output"
        quant = ""
        scales = tensor.quantization.scale if tensor.quantization is not None else None
        if scales:
            zero = (tensor.quantization.zero_point or [0])[0]
            quant = (
                f"scale {scales[0]:.6g}, zero point {zero}"
                if len(scales) == 1
                else f"{len(scales)} scales along dimension "
                f"{tensor.quantization.quantized_dimension}"
            )
        dtype = known(TensorType, tensor.type).lower()
        shape = list(tensor.shape or [])
        tensors.append(DelegateTensor(names[index], dtype, shape, role, quant, len(content or b"")))
    nodes = []
    for step in graph.operators or []:
        code = model.operator_codes[step.opcode_index]
        number = max(code.deprecated_builtin_code, code.builtin_code)
        kind = code.custom_code or known(BuiltinOperator, number)
        inputs = [names[i] for i in step.inputs or [] if i >= 0]
        nodes.append(DelegateNode(kind, inputs, [names[i] for i in step.outputs or []]))
    return DelegateGraph("tflite", nodes, tensors, {"nodes": len(nodes)})


_READERS: dict[str, Callable[[memoryview, Blobs], DelegateGraph]] = {
    "XnnpackBackend": _xnnpack,
    "EthosUBackend": _ethosu,
    "NeutronBackend": _neutron,
}
