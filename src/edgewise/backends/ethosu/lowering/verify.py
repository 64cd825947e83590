"""The law of a TOSA graph that definitions have lowered, and the graph as text."""

from __future__ import annotations

from edgewise.backends.ethosu.lowering.tosa import Tosa
from edgewise.operators.verify import verify_calls
from edgewise.passes import Pass, PassManager


def verify(graph: Tosa) -> None:
    """See `verify_calls`."""
    inputs, outputs = ([one.name for one in some] for some in (graph.inputs, graph.outputs))
    verify_calls("tosa", graph.calls(), inputs, outputs)


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
