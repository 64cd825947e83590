"""What a Neutron delegate's payload holds. Takes no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgewise.backends.neutron.payload import REFERENCE_MAGIC, read_reference
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, Model, TensorType
from edgewise.flatbuffer import unpack
from edgewise.inspect.delegate_graphs import DelegateGraph, DelegateNode, DelegateTensor


def read_payload(payload: memoryview, named: Mapping[str, memoryview]) -> DelegateGraph:
    """As `edgewise.registry.Backend.read_payload`."""
    if bytes(payload[: len(REFERENCE_MAGIC)]) != REFERENCE_MAGIC:
        return _official(payload)
    held = read_reference(bytes(payload))
    graph = read_program(held.model)
    return dataclasses.replace(
        graph, format="tflite (for this machine)", facts={"target": held.target, **graph.facts}
    )


def _official(payload: memoryview) -> DelegateGraph:
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


def read_program(data: bytes) -> DelegateGraph:
    """Of a TFLite file."""

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
