"""Records of programs as Model Explorer's graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from model_explorer.graph_builder import (
    Graph,
    GraphNode,
    GraphNodeStyle,
    IncomingEdge,
    KeyValue,
    MetadataItem,
)

from edgewise.inspect.reading import record_of_file
from edgewise.inspect.record import MethodRecord, NodeRecord, TensorRecord, find_record
from edgewise.inspect.simplify import simplify
from edgewise.registry import backend_of

_RUNTIME = "runtime"
_RUNTIME_COLOURS = ("#fdf0e2", "#cc7a00")
"""Background and border, as on the report page."""


def graphs_of(path: str | Path) -> list[Graph]:
    """The modules' view of each method first, if the file has a record, then the file's own."""
    record = find_record(path)
    contents = record_of_file(path)
    graphs = []
    for method in record.methods if record is not None else ():
        if method.nodes:
            simple = simplify(method)
            graphs.append(_graph(f"{method.name}: modules", simple.method, simple.stored))
    for method in contents.methods:
        if method.nodes:
            graphs.append(_graph(f"{method.name}: file", method, {}))
    return graphs


def _graph(name: str, method: MethodRecord, stored: Mapping[str, str]) -> Graph:
    incoming: dict[str, list[IncomingEdge]] = {}
    for edge in method.edges:
        incoming.setdefault(edge.target, []).append(
            IncomingEdge(edge.source, str(edge.output), str(edge.input))
        )
    nodes = [
        _node(node, method, incoming.get(node.name, []), stored.get(node.name, ""))
        for node in method.nodes
    ]
    return Graph(name, nodes, groupNodeAttributes=_groups(method))


def _node(
    node: NodeRecord, method: MethodRecord, incoming: list[IncomingEdge], stored: str
) -> GraphNode:
    colours = _colours(node.backend)
    style = GraphNodeStyle(*colours) if colours and node.kind == "call" else None
    return GraphNode(
        id=node.name,
        label=node.operator.removeprefix("aten.") if node.kind == "call" else node.name,
        namespace="/".join(_steps(node, method)),
        attrs=[KeyValue(key, value) for key, value in _attributes(node, stored) if value],
        incomingEdges=incoming,
        outputsMetadata=[
            MetadataItem(str(number), [KeyValue("tensor_shape", _type(tensor))])
            for number, tensor in enumerate(node.outputs)
        ],
        style=style,
    )


def _steps(node: NodeRecord, method: MethodRecord) -> list[str]:
    """Names of the modules around a node, each below the one before; or its delegate."""
    if node.delegate is not None and not node.modules:
        return [f"delegate {node.delegate}: {method.delegates[node.delegate].backend}"]
    steps, above = [], ""
    for module in node.modules:
        if module.path:
            name = module.path.removeprefix(above + ".") if above else module.path
            steps.append(name.replace("/", "_"))
            above = module.path
    return steps


def _attributes(node: NodeRecord, stored: str) -> list[tuple[str, str]]:
    backend = node.backend if node.kind == "call" else ""
    if node.delegate is not None:
        backend += f", delegate {node.delegate}"
    weights = [f"{w.name} {_type(w.tensor)}" for w in node.weights]
    found = [
        ("runs on", backend),
        ("not delegated", "\n".join(map(str, node.refusals))),
        ("source line", node.source),
        ("module", node.modules[-1].type if node.modules else ""),
        ("piece of", node.decomposed_from),
        ("computed by", node.folded_into),
        ("stored as", stored),
        ("weights", "\n".join(weights)),
        ("multiply-accumulates", f"{node.macs:,}" if node.macs else ""),
        ("bytes moved", f"{node.bytes:,}" if node.bytes else ""),
        ("notes", "\n".join(node.notes)),
    ]
    return [*found, *node.attributes.items()]


def _groups(method: MethodRecord) -> dict[str, dict[str, str]]:
    """What is shown of a module when it is selected."""
    sums: dict[str, dict[str, int]] = {}
    types: dict[str, str] = {}
    for node in method.nodes:
        steps = _steps(node, method)
        named = [m for m in node.modules if m.path]
        for depth in range(1, len(steps) + 1):
            key = "/".join(steps[:depth])
            found = sums.setdefault(key, dict.fromkeys(("operators", "MACs", "weight bytes"), 0))
            found["operators"] += 1
            found["MACs"] += node.macs
            found["weight bytes"] += sum(w.tensor.bytes for w in node.weights)
            if len(named) >= depth:
                types[key] = named[depth - 1].type
    return {
        key: _texts(types.get(key, ""), [(name, n) for name, n in found.items() if n])
        for key, found in sums.items()
    }


def _texts(kind: str, figures: Sequence[tuple[str, int]]) -> dict[str, str]:
    found = {name: f"{number:,}" for name, number in figures}
    return {"class": kind, **found} if kind else found


def _type(tensor: TensorRecord) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _colours(delegate_id: str) -> tuple[str, str] | None:
    """Background and border of a backend's nodes."""
    if delegate_id == _RUNTIME:
        return _RUNTIME_COLOURS
    backend = backend_of(delegate_id)
    return backend.colours if backend is not None else None
