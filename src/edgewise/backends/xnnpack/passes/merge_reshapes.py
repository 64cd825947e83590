"""A reshape of a reshape is one reshape; a reshape to the shape at hand is none.

Requires nothing. Leaves the earlier reshape in place where somebody else reads it.
"""

from __future__ import annotations

from edgewise.backends.xnnpack.lowering.graph import Graph, Value
from edgewise.passes import Property, declared


def _in_a_row(graph: Graph) -> str:
    reshapes = [node for node in graph.nodes if node.kind == "StaticReshape"]
    results = {node.outputs[0] for node in reshapes}
    count = sum(node.inputs[0] in results for node in reshapes)
    return f"{count} of them" if count else ""


RESHAPES_ARE_MERGED: Property[Graph] = Property("no reshape reads a reshape", _in_a_row)


@declared(ensures=(RESHAPES_ARE_MERGED,))
def merge_reshapes(graph: Graph) -> bool:
    producers = graph.producers()
    same: dict[Value, Value] = {}
    changed = False
    for node in graph.nodes:
        node.inputs = [same.get(v, v) if v is not None else None for v in node.inputs]
        if node.kind != "StaticReshape":
            continue
        source = node.inputs[0]
        while source in producers and producers[source].kind == "StaticReshape":
            source = producers[source].inputs[0]
            node.inputs = [source]
            changed = True
        assert source is not None
        output = node.outputs[0]
        if source.dims == output.dims and output.output_index is None:
            same[output] = source
            changed = True
    if same:
        graph.nodes = [
            n for n in graph.nodes if not (n.kind == "StaticReshape" and n.outputs[0] in same)
        ]
    return changed
