"""The law of a TOSA graph that definitions have lowered, and the graph as text."""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.tosa import Tosa
from edgewise.errors import InvalidGraphError
from edgewise.passes import Pass, PassManager


def verify(graph: Tosa) -> None:
    """InvalidGraphError if an operator reads what nobody computed before, two compute the same
    tensor, or nobody computes an output."""
    known = {tensor.name for tensor in graph.inputs}
    for number, (name, inputs, outputs) in enumerate(graph.calls()):
        missing = [one for one in inputs if one not in known]
        again = [one for one in outputs if one in known]
        if missing or again:
            got = f"{missing[0]}, not computed before" if missing else f"{again[0]} once more"
            raise InvalidGraphError(
                f"[tosa] operator {number}, {name}, must obey the graph's law; got {got}"
            )
        known.update(outputs)
    for tensor in graph.outputs:
        if tensor.name not in known:
            raise InvalidGraphError(f"[tosa] outputs must be computed; got {tensor.name}")


def text(graph: Tosa) -> str:
    """One line for each operator."""
    lines = [f"input {one.name}: {one.dtype}{list(one.dims)}" for one in graph.inputs]
    for name, inputs, outputs in graph.calls():
        lines.append(f"{', '.join(outputs)} = {name}({', '.join(inputs)})")
    lines += [f"output {one.name}: {one.dtype}{list(one.dims)}" for one in graph.outputs]
    return "\n".join(lines)


LOWERED: PassManager[Tosa] = PassManager(
    "ethos-u", (Pass(lambda graph: True, name="lower"),), verify, text
)
"""Tells whoever watches passes that a graph is there: there are none over it, Vela has its own."""
