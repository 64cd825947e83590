"""What delegates' payloads hold, as graphs. Imports no torch; reads the peer's payloads, too."""

from __future__ import annotations

import dataclasses
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
        raise ValueError(f"[{backend}] the payload must be whole; got {cause!r}") from cause


# ---- XNNPACK


def _xnnpack(payload: memoryview, named: Blobs) -> DelegateGraph:
    from edgewise.inspect.payloads import open_payload

    held = open_payload("XnnpackBackend", payload)
    assert held is not None
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
