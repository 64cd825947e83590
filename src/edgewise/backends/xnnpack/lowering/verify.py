"""The law of an XNNPACK subgraph between its passes, and the subgraph as text."""

from __future__ import annotations

import dataclasses
import zlib

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import MAX_RANK, Quant
from edgewise.backends.xnnpack.node_kinds import BY_NAME
from edgewise.edge.graph import dtype_name
from edgewise.errors import InvalidGraphError
from edgewise.operators.verify import verify_calls

_BETWEEN_PASSES = "Dynamic"
"""Stands for quantization at run time until `use_dynamic_kernels`; no payload has it."""


def verify(graph: Graph) -> None:
    """InvalidGraphError if nodes read what nobody computed before, two compute the same value,
    a node has other operands than its kind, a value has more dimensions than XNNPACK takes, or an
    input or output of the graph has lost its role.
    """
    calls = (
        (node.kind, [v for v in node.inputs if v is not None and v.data is None], node.outputs)
        for node in graph.nodes
    )
    verify_calls("xnnpack", calls, graph.inputs, graph.outputs, _dims)
    for number, value in enumerate(graph.inputs):
        if value.input_index != number:
            raise _broken("an input", f"number {value.input_index} instead of {number}")
    for number, node in enumerate(graph.nodes):
        kind = BY_NAME.get(node.kind)
        if kind is None and node.kind != _BETWEEN_PASSES:
            raise _broken(f"node {number}", f"the unknown kind {node.kind}")
        where = f"node {number}, {node.kind},"
        read = len(kind.input_fields) if kind is not None else 1
        made = len(kind.layout.outputs) if kind is not None else 1
        if (len(node.inputs), len(node.outputs)) != (read, made):
            got = f"{len(node.inputs)} and {len(node.outputs)}; its kind has {read} and {made}"
            raise _broken(where, f"operands and results {got}")
        for value in node.outputs:
            if value.data is not None:
                raise _broken(where, f"a result {_dims(value)} that is a constant")
            if len(value.dims) > MAX_RANK:
                raise _broken(where, f"a result {_dims(value)} of more than {MAX_RANK} dimensions")
        if node.clamp is not None and not node.clamp[0] <= node.clamp[1]:
            raise _broken(where, f"a clamp to {node.clamp}")
    for number, value in enumerate(graph.outputs):
        if value.output_index != number:
            raise _broken("an output", f"number {value.output_index} instead of {number}")


def text(graph: Graph) -> str:
    """One line for each node: its results, kind, operands, parameters and clamp. Constants have a
    checksum, so that two texts tell whether they are the same."""
    names = {value: f"%{number}" for number, value in enumerate(graph.values())}
    lines = [f"inputs {', '.join(_shown(value, names) for value in graph.inputs)}"]
    lines += [_line(node, names) for node in graph.nodes]
    lines.append(f"outputs {', '.join(_shown(value, names) for value in graph.outputs)}")
    return "\n".join(lines)


def _line(node: Node, names: dict[Value, str]) -> str:
    results = ", ".join(_shown(value, names) for value in node.outputs)
    operands = ", ".join(_shown(v, names) if v is not None else "none" for v in node.inputs)
    params = "".join(f" {name}={value}" for name, value in node.params.items())
    clamp = f" clamp={node.clamp}" if node.clamp is not None else ""
    return f"  {results} = {node.kind}({operands}){params}{clamp}  # of node {node.origin}"


def _shown(value: Value, names: dict[Value, str]) -> str:
    kind = "constant " if value.data is not None else ""
    contents = f" {_checksum(value.data)}" if value.data is not None else ""
    quant = f" {_quantized(value.quant)}" if value.quant is not None else ""
    dtype = dtype_name(value.dtype)
    return f"{names[value]}: {kind}{dtype}{_dims(value)}{contents}{quant}"


def _quantized(quant: Quant) -> str:
    given = ((f.name, getattr(quant, f.name)) for f in dataclasses.fields(quant))
    shown = (f"{k}={_checksum(v) if isinstance(v, torch.Tensor) else v}" for k, v in given)
    return f"{type(quant).__name__}({', '.join(shown)})"


def _checksum(tensor: torch.Tensor) -> str:
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"#{zlib.crc32(data.data):08x}"


def _dims(value: Value) -> str:
    return f"[{', '.join(map(str, value.dims))}]"


def _broken(where: str, got: str) -> InvalidGraphError:
    return InvalidGraphError(f"[xnnpack] {where} must obey the subgraph's law; got {got}")
