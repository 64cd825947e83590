"""A method without the quantizations that run inside of other operations.

A quantized program has some three times as many nodes as its model: each operator's operands are
dequantized and its result is quantized, all in one operation of the backend. Here that operator
stands for them: it has their weights, and says how its result is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgewise.inspect.record import EdgeRecord, MethodRecord, NodeRecord, WeightRecord

_QUANTIZING = ("quantized_decomposed.", "torchao.")


@dataclass(frozen=True)
class Simplified:
    """method: with the nodes that stand for themselves. stored: how a node's result is kept, as
    text. stands_for: by the name of a node that is gone, that of the one that computes it."""

    method: MethodRecord
    stored: Mapping[str, str] = field(default_factory=dict)
    stands_for: Mapping[str, str] = field(default_factory=dict)


def simplify(method: MethodRecord) -> Simplified:
    """Takes out (de)quantizations that are folded into another node, and, where a delegate's
    payload does not tell, those inside of it: into what computes their operand, or reads them."""
    into = {
        n.name: n.folded_into
        for n in method.nodes
        if n.folded_into and n.operator.startswith(_QUANTIZING)
    }
    into.update(_inside(method, into))
    gone = {n.name: n for n in method.nodes if n.name in into}
    if not gone:
        return Simplified(method)
    sources: dict[str, list[EdgeRecord]] = {}
    for edge in method.edges:
        sources.setdefault(edge.target, []).append(edge)

    def origin(edge: EdgeRecord) -> list[tuple[str, int]]:
        if edge.source not in gone:
            return [(edge.source, edge.output)]
        return [found for before in sources.get(edge.source, ()) for found in origin(before)]

    edges: dict[EdgeRecord, None] = {}
    for edge in method.edges:
        if edge.target not in gone:
            for name, output in origin(edge):
                edges[EdgeRecord(name, output, edge.target, edge.input)] = None
    weights: dict[str, list[WeightRecord]] = {}
    for node in gone.values():
        weights.setdefault(into[node.name], []).extend(node.weights)
    nodes = [
        replace(n, weights=(*n.weights, *weights.get(n.name, ())))
        for n in method.nodes
        if n.name not in gone
    ]
    stored = {}
    for edge in method.edges:
        if edge.target in gone and gone[edge.target].operator.split(".")[1].startswith("quantize"):
            for name, _ in origin(edge):
                stored[name] = _stored(gone[edge.target])
    stands_for = into
    simple = replace(
        method,
        nodes=tuple(nodes),
        edges=tuple(edges),
        memory=tuple(
            replace(b, nodes=tuple(dict.fromkeys(stands_for.get(n, n) for n in b.nodes)))
            for b in method.memory
        ),
    )
    return Simplified(simple, stored, stands_for)


def _inside(method: MethodRecord, folded: Mapping[str, str]) -> dict[str, str]:
    """By quantization inside of a delegate whose payload is closed, the node that it belongs to."""
    closed = {number for number, one in enumerate(method.delegates) if not one.payload}
    loose = {
        n.name: n
        for n in method.nodes
        if n.delegate in closed and n.name not in folded and n.operator.startswith(_QUANTIZING)
    }
    readers: dict[str, list[str]] = {}
    makers: dict[str, list[str]] = {}
    for edge in method.edges:
        readers.setdefault(edge.source, []).append(edge.target)
        makers.setdefault(edge.target, []).append(edge.source)

    def found(name: str, neighbours: Mapping[str, list[str]]) -> str:
        """The nearest node of the same delegate that is no quantization; "" if there is none."""
        pending, seen = list(neighbours.get(name, ())), {name}
        while pending:
            one = pending.pop(0)
            if one in seen or one not in method.by_name:
                continue
            seen.add(one)
            if one in loose:
                pending += neighbours.get(one, ())
            elif method.by_name[one].delegate == loose[name].delegate:
                return one
        return ""

    into = {}
    for name, node in loose.items():
        is_quantize = node.operator.split(".")[1].startswith("quantize")
        first, second = (makers, readers) if is_quantize else (readers, makers)
        into[name] = found(name, first) or found(name, second)
    return {name: target for name, target in into.items() if target}


def _stored(node: NodeRecord) -> str:
    """`int8, scale 0.0152, zero point -128` of a quantization."""
    said = node.attributes
    parts = [node.outputs[0].dtype if node.outputs else ""]
    try:
        parts.append(f"scale {float(said['scale']):.4g}")
    except (KeyError, ValueError):
        if said:  # else nothing is known of it
            parts.append("scales of their own")
    if "zero_point" in said:
        parts.append(f"zero point {said['zero_point']}")
    return ", ".join(parts)
