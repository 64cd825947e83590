"""The law of a TFLite program that definitions have lowered, and the program as text."""

from __future__ import annotations

from edgewise.backends.neutron.reading import read_program
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, Model
from edgewise.errors import InvalidGraphError
from edgewise.flatbuffer import unpack
from edgewise.passes import Pass, PassManager


def verify(data: bytes) -> None:
    """InvalidGraphError if an operator reads what nobody computed before, two compute the same
    tensor, or nobody computes an output."""
    model = unpack(Model, data)
    (graph,) = model.subgraphs
    names = [tensor.name for tensor in graph.tensors]
    known = {number for number, tensor in enumerate(graph.tensors) if tensor.buffer}
    known.update(graph.inputs or [])
    for number, step in enumerate(graph.operators or []):
        code = model.operator_codes[step.opcode_index].builtin_code
        missing = [i for i in step.inputs or [] if i >= 0 and i not in known]
        again = [i for i in step.outputs or [] if i in known]
        if missing or again:
            got = (
                f"{names[missing[0]]}, not computed before"
                if missing
                else f"{names[again[0]]} once more"
            )
            raise InvalidGraphError(
                f"[tflite] operator {number}, {BuiltinOperator(code).name}, must obey the "
                f"program's law; got {got}"
            )
        known.update(step.outputs or [])
    for index in graph.outputs or []:
        if index not in known:
            raise InvalidGraphError(f"[tflite] outputs must be computed; got {names[index]}")


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
