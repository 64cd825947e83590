"""The law of a TFLite program that definitions have lowered, and the program as text."""

from __future__ import annotations

from edgewise.backends.neutron.reading import read_program
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, Model
from edgewise.flatbuffer import unpack
from edgewise.operators.verify import verify_calls
from edgewise.passes import Pass, PassManager


def verify(data: bytes) -> None:
    """See `verify_calls`."""
    model = unpack(Model, data)
    (graph,) = model.subgraphs
    known = {number for number, tensor in enumerate(graph.tensors) if tensor.buffer}
    codes = [BuiltinOperator(one.builtin_code).name for one in model.operator_codes]
    calls = (
        (codes[step.opcode_index], [i for i in step.inputs or [] if i >= 0], step.outputs or [])
        for step in graph.operators or []
    )
    names = [tensor.name for tensor in graph.tensors]
    outputs = graph.outputs or []
    verify_calls("tflite", calls, known.union(graph.inputs or []), outputs, names.__getitem__)


def text(data: bytes) -> str:
    """One line for each operator."""
    found = read_program(data)
    lines = [f"{t.role} {t.name}: {t.dtype}{t.shape} {t.quantization}" for t in found.tensors]
    lines += [
        f"{', '.join(node.outputs)} = {node.kind}({', '.join(node.inputs)})" for node in found.nodes
    ]
    return "\n".join(lines)


LOWERED: PassManager[bytes] = PassManager(
    "neutron", (Pass(lambda data: True, name="lower"),), verify, text
)
"""Tells whoever watches passes that a program is there: NXP's converter has the passes over it."""
