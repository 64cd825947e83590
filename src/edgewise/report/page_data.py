"""A program as the page's scripts want it: indices for names, text for types, nothing empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.inspect.layers import Layer, LayersByCommand, NodeFinder
from edgewise.inspect.layers import layers as layers_of
from edgewise.inspect.record import (
    EstimateRecord,
    MethodRecord,
    ModuleRecord,
    NodeRecord,
    TensorRecord,
)
from edgewise.inspect.refused import Cause, causes
from edgewise.inspect.simplify import simplify
from edgewise.report.accuracy import Layers, figure
from edgewise.report.subject import Subject


def program_data(subject: Subject) -> dict[str, Any]:
    """Plain data of a program with all its methods."""
    record = subject.record
    profiles = {m.get("method", ""): m for m in subject.profile.get("methods", ())}
    methods = []
    for method in record.methods:
        layers = Layers(subject.comparison if method.name == "forward" else {})
        data = _method(method, record.complete, profiles.get(method.name, {}), layers)
        data["npu"] = [_named(told, data) for told in subject.npu.get(method.name, ())]
        methods.append(data)
    return {
        "name": subject.name,
        "sha256": record.sha256,
        "bytes": record.bytes,
        "complete": record.complete,
        "versions": dict(record.versions),
        "methods": methods,
    }


def _method(
    whole: MethodRecord, complete: bool, profile: Mapping[str, Any], layers: Layers
) -> dict[str, Any]:
    simple = simplify(whole)
    method = simple.method
    index = {node.name: number for number, node in enumerate(method.nodes)}
    modules = _Modules(method, complete)
    times = dict(profile.get("nodes") or {})
    at: dict[str, int] = {}
    for number, instruction in enumerate(method.instructions):
        for name in instruction.nodes:
            at.setdefault(name, number)
    for name, other in simple.stands_for.items():
        if name in times and other not in times:
            times[other] = times[name]
    rows = layers_of(whole)
    finder = NodeFinder(simple)
    cycles, model = Counter[str](), Counter[str]()
    for row in rows:
        if row.node is not None:
            cycles[row.node.name] += row.cycles
            model[row.node.name] += row.model_cycles or 0
    nodes, counted = [], set[str]()
    for node in method.nodes:
        data = _node(node, index, modules.of(node))
        data["at"] = at.get(node.name)
        if node.name in times:
            time, others = figure(times[node.name].get("time")), times[node.name].get("with", ())
            # An operation that computes several nodes has one time, which is told once.
            told = any(n in counted and times[n].get("time") == time for n in others if n in times)
            if not node.folded_into and not told:
                data["us"] = time
                counted.add(node.name)
            data["with"] = [index[n] for n in others if n in index]
        data["cycles"], data["model"] = cycles[node.name], model[node.name]
        data["noise"] = layers.of(node)
        data["stored"] = simple.stored.get(node.name)
        nodes.append(_full(data))
    return {
        "name": method.name,
        "nodes": nodes,
        "refused": [_cause(cause, index) for cause in causes(method)],
        "edges": [[index[e.source], index[e.target]] for e in method.edges],
        "modules": modules.table,
        "instructions": [
            _full({"kind": i.kind, "operator": i.operator, "delegate": i.delegate})
            for i in method.instructions
        ],
        "delegates": [
            _full(
                {
                    "backend": d.backend,
                    "payloadBytes": d.payload_bytes,
                    "weightBytes": d.weight_bytes,
                    "operations": len(d.payload),
                    "estimates": _estimates(
                        d.estimates, [row for row in rows if row.delegate == number], finder, index
                    )
                    if d.estimates
                    else None,
                }
            )
            for number, d in enumerate(method.delegates)
        ],
        "memory": [
            [[index[n] for n in b.nodes if n in index], b.arena, b.offset, b.size, b.first, b.last]
            for b in method.memory
        ],
        "arenas": dict(method.arenas),
        "profile": _profile(profile),
        "accuracy": layers.summary(),
    }


def _cause(cause: Cause, index: Mapping[str, int]) -> dict[str, Any]:
    """For the list of what is not delegated; got: of each refusal, what the rules found."""
    return {
        "operators": list(cause.operators.items()),
        "nodes": [index[node.name] for node in cause.nodes],
        "splits": cause.splits,
        "follows": cause.follows,
        "refusals": [_full({"backend": r.backend, "rule": r.rule}) for r in cause.refusals],
        "got": [cause.got(number) for number in range(len(cause.refusals))],
        "hints": cause.hints,
        "locations": cause.locations,
    }


def _named(told: Mapping[str, Any], method: Mapping[str, Any]) -> dict[str, Any]:
    """A timeline whose stretches are [begin, end, what, number of the layer or None]."""
    number = told.get("delegate")
    delegates = method["delegates"]
    known = isinstance(number, int) and number < len(delegates)
    rows = (delegates[number].get("estimates") or {}).get("layers", ()) if known else ()
    layers = LayersByCommand(
        (at, layer) for layer, row in enumerate(rows) for at in row.pop("commands", ())
    )

    def named(span: Sequence[Any]) -> list[Any]:
        return [*span[:3], layers.of(span[3]) if len(span) > 3 else None]

    lanes = {
        lane: {**one, "spans": [named(span) for span in one["spans"]]}
        for lane, one in told.get("lanes", {}).items()
    }
    return {**told, "lanes": lanes} if lanes else dict(told)


def _estimates(
    told: EstimateRecord, rows: Sequence[Layer], finder: NodeFinder, index: Mapping[str, int]
) -> dict[str, Any]:
    """Of a delegate. layers: fields of `_layer`; memory: [name, memory, address, bytes, first
    layer, last layer, node or None]."""
    memory = [
        [
            str(block.get("name", "")),
            str(block.get("memory", "")),
            *(figure(block.get(key)) or 0 for key in ("address", "bytes", "first", "last")),
            index.get(node.name) if (node := finder.of(block)) is not None else None,
        ]
        for block in told.memory
    ]
    return {
        "source": told.source,
        "figures": told.figures,
        "layers": [_layer(row, index) for row in rows],
        "memory": memory,
    }


def _layer(layer: Layer, index: Mapping[str, int]) -> dict[str, Any]:
    data = {
        "op": layer.operator,
        "node": index.get(layer.node.name) if layer.node is not None else None,
        "cycles": layer.cycles,
        "model": layer.model_cycles,
        "waiting": layer.waiting,
        "bound": layer.bound,
        "macs": layer.macs,
        "used": layer.utilization,
        "staging": layer.staging_bytes,
        "memories": dict(layer.memories),
        "commands": list(layer.commands),
    }
    return {key: value for key, value in data.items() if value or (key == "node" and value == 0)}


def _profile(profile: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures; None if there are none, or what a file has instead is none."""
    stats = profile.get("call")
    call = {k: figure(v) for k, v in stats.items()} if isinstance(stats, Mapping) else {}
    if None in call.values() or not {"p50", "p90"} <= call.keys():
        return None
    return {
        "runs": figure(profile.get("runs")),
        "call": call,
        "instructions": [
            [figure(i.get("index")), figure(i.get("time", {}).get("p50"))]
            for i in profile.get("instructions", ())
        ],
    }


def _node(node: NodeRecord, index: Mapping[str, int], module: int) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "op": node.operator,
        "in": [_type(t) for t in node.inputs],
        "out": [_type(t) for t in node.outputs],
        "attributes": dict(node.attributes),
        "module": module,
        "source": node.source,
        "backend": node.backend,
        "delegate": node.delegate,
        "refusals": [_full(vars(r)) for r in node.refusals],
        "from": node.decomposed_from,
        "splits": node.splits,
        "notes": list(node.notes),
        "folded": index.get(node.folded_into) if node.folded_into else None,
        "macs": node.macs,
        "bytes": node.bytes,
        "weights": [[w.name, _type(w.tensor), w.tensor.bytes] for w in node.weights],
    }


def _full(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty; a zero that is an index stays."""
    indices = ("module", "delegate", "folded", "at", "us")
    return {
        key: value for key, value in data.items() if value or (key in indices and value is not None)
    }


def _type(tensor: TensorRecord) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


class _Modules:
    """The table of modules, each after its parent: [path, class, parent's index]."""

    def __init__(self, method: MethodRecord, complete: bool) -> None:
        self.table: list[list[Any]] = [["", "", -1]]
        self._numbers: dict[tuple[str, ...], int] = {}
        self._complete = complete
        self._by_name = method.by_name
        self._nearby = _nearby(method)

    def of(self, node: NodeRecord) -> int:
        """The index of the node's innermost module; 0 for the model itself."""
        steps: Sequence[ModuleRecord] = node.modules
        if not steps and node.kind == "call":
            other = self._by_name.get(node.folded_into) or self._nearby.get(node.name)
            steps = other.modules if other is not None else ()
        if not self._complete and node.delegate is not None:
            steps = [ModuleRecord(f"delegate {node.delegate}", node.backend)]
        found = 0
        path: tuple[str, ...] = ()
        for step in steps:
            if step.path == "":
                self.table[0][1] = step.type
                continue
            path = (*path, step.path)
            if path not in self._numbers:
                self._numbers[path] = len(self.table)
                self.table.append([step.path, step.type, found])
            found = self._numbers[path]
        return found


def _nearby(method: MethodRecord) -> dict[str, NodeRecord]:
    """For nodes without a module (quantizations): a neighbour that has one, readers first."""
    found: dict[str, NodeRecord] = {}
    for reverse in (False, True):
        order = list(method.edges)
        for edge in order if reverse else order[::-1]:
            one, other = (edge.source, edge.target) if reverse else (edge.target, edge.source)
            neighbour = method.by_name[one]
            neighbour = neighbour if neighbour.modules else found.get(one, neighbour)
            if neighbour.modules and not method.by_name[other].modules:
                found.setdefault(other, neighbour)
    return found
