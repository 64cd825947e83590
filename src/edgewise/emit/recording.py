"""Making the record of a program that was just lowered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from edgewise._version import __version__
from edgewise.edge.bodies import body_of, control_flow
from edgewise.edge.graph import (
    REPORTED_AS,
    is_call,
    is_getitem,
    is_size,
    op_name,
    source_line,
)
from edgewise.edge.program import Constants, output_node, written_state
from edgewise.edge.provenance import whole_of
from edgewise.emit.emit import Emitted
from edgewise.emit.folding import folded
from edgewise.emit.memory import MemoryPlan
from edgewise.emit.origins import Origins
from edgewise.emit.recorded_node import (
    attributes_of,
    modules_of,
    tensors_of,
    weight_of,
)
from edgewise.emit.recorded_plan import Source, Written
from edgewise.format import program as pte
from edgewise.inspect.payloads import Payload, open_payload
from edgewise.inspect.record import (
    RUNTIME,
    DelegateRecord,
    EdgeRecord,
    MethodRecord,
    NodeRecord,
    PayloadNodeRecord,
    ProgramRecord,
    WeightRecord,
)
from edgewise.partition.lowered_module import (
    LoweredBackendModule,
    is_delegate_call,
    lowered_of,
)
from edgewise.partition.remarks import Remarks
from edgewise.partition.report import DelegationReport
from edgewise.partition.spec import Estimates
from edgewise.partition.work import macs, traffic


def record_program(
    programs: Mapping[str, ExportedProgram],
    emitted: Emitted,
    reports: Mapping[str, DelegationReport],
) -> ProgramRecord:
    """What the file holds and where it comes from. Reads the file's bytes once, for their hash."""
    digest, size = hashlib.sha256(), 0
    for part in emitted.parts():
        digest.update(part)
        size += len(part)
    plans = {plan.name: plan for plan in emitted.program.execution_plan}
    methods = [
        _Method(name, program, plans[name], emitted, reports[name]).record()
        for name, program in programs.items()
    ]
    methods += [MethodRecord(name) for name in plans if name not in programs]
    versions = {"edgewise": __version__, "torch": torch.__version__}
    told = next((report for report in reports.values() if report.settings), None)
    return ProgramRecord(
        digest.hexdigest(),
        size,
        tuple(methods),
        versions,
        quantization={k: json.dumps(v) for k, v in told.settings.items()} if told else {},
        tried=tuple(told.tried) if told else (),
    )


class _Method:
    """Walks one method's graph, bodies of control flow and delegates included."""

    def __init__(
        self,
        name: str,
        program: ExportedProgram,
        plan: pte.ExecutionPlan,
        emitted: Emitted,
        report: DelegationReport,
    ) -> None:
        self._name = name
        self._program = program
        self._plan = plan
        self._origins: Origins = emitted.origins[name]
        self._memory: MemoryPlan = emitted.plans[name]
        self._emitted = emitted
        self._report = report
        self._remarks = Remarks(report)
        self._reported = {node.name: node for node in report.nodes}
        self._nodes: list[NodeRecord] = []
        self._edges: list[EdgeRecord] = []
        self._from: dict[Node, list[Source]] = {}
        self._weights: dict[Node, WeightRecord] = {}
        self._delegates: dict[int, DelegateRecord] = {}
        self._called = {
            self._origins.instructions[at]: call.instr_args.delegate_index
            for at, call in enumerate(plan.chains[0].instructions)
            if isinstance(call.instr_args, pte.DelegateCall)
        }

    def record(self) -> MethodRecord:
        self._read_inputs()
        self._walk(self._program.graph_module.graph, self._program.graph_module, "")
        self._read_outputs()
        sizes = self._plan.non_const_buffer_sizes[1:]
        written = Written(self._plan, self._origins, self._memory, self._nodes, self._from)
        return MethodRecord(
            name=self._name,
            nodes=tuple(self._nodes),
            edges=tuple(self._edges),
            instructions=tuple(written.instructions()),
            delegates=tuple(self._delegates[i] for i in sorted(self._delegates)),
            memory=tuple(written.blocks()),
            arenas={str(number): int(size) for number, size in enumerate(sizes, 1)},
        )

    # --- the graph ---------------------------------------------------------------------

    def _read_inputs(self) -> None:
        constants = Constants(self._program)
        inputs = set(self._program.graph_signature.user_inputs)
        for node in self._program.graph.nodes:
            if node.op != "placeholder":
                break
            if node in constants:
                target = str(constants.specs[node.name].target)
                self._weights[node] = weight_of(target, constants.tensor(node))
                continue
            kind = "input" if node.name in inputs else "state"
            self._from[node] = [(node.name, 0)]
            self._nodes.append(NodeRecord(node.name, kind, outputs=tensors_of(node)))

    def _read_outputs(self) -> None:
        returned: Any = output_node(self._program.graph).args[0]
        count = len(self._program.graph_signature.user_outputs)
        writes = list(written_state(self._program))
        for state, value in writes:
            if isinstance(value, Node):
                self._edges += [EdgeRecord(*s, state.name, 0) for s in self._from.get(value, ())]
        for number, value in enumerate(returned[len(returned) - count :]):
            name = f"output_{number}"
            tensors = tensors_of(value) if isinstance(value, Node) else ()
            self._nodes.append(NodeRecord(name, "output", inputs=tensors))
            for source in self._from.get(value, ()) if isinstance(value, Node) else ():
                self._edges.append(EdgeRecord(*source, name, 0))

    def _walk(self, graph: Graph, owner: GraphModule, path: str) -> None:
        for node in graph.nodes:
            if not is_call(node):
                continue
            if is_getitem(node):
                self._from[node] = self._item(node)
            elif is_delegate_call(node):
                self._enter_delegate(node, owner, path)
            elif control_flow(node) is not None:
                self._enter_bodies(node, owner, path)
            else:
                self._add(node, path + node.name, None)

    def _item(self, node: Node) -> list[Source]:
        several, index = node.args
        assert isinstance(several, Node)
        assert isinstance(index, int)
        return self._from.get(several, [])[index : index + 1]

    def _enter_bodies(self, node: Node, owner: GraphModule, path: str) -> None:
        flow = control_flow(node)
        assert flow is not None
        name = path + node.name
        for attribute in flow.bodies:
            body = body_of(owner, attribute)
            holders = [n for n in body.graph.nodes if n.op == "placeholder"]
            for holder, value in zip(holders, [*flow.changing, *flow.captured], strict=False):
                if isinstance(value, Node):
                    self._from[holder] = self._from.get(value, [])
                    if value in self._weights:
                        self._weights[holder] = self._weights[value]
            self._walk(body.graph, body, f"{path}{attribute.target}/")
            returned: Any = output_node(body.graph).args[0]
            for result in returned if isinstance(returned, (tuple, list)) else [returned]:
                for source in self._from.get(result, ()) if isinstance(result, Node) else ():
                    self._edges.append(EdgeRecord(*source, name, 0))
        self._add(node, name, None)

    def _enter_delegate(self, node: Node, owner: GraphModule, path: str) -> None:
        lowered = lowered_of(node, owner)
        part: ExportedProgram = lowered.original_module
        index = self._called[path + node.name]
        constants = Constants(part)
        given = iter(node.args[1:])
        nodes = list(part.graph.nodes)
        for inner in nodes:
            if inner.op != "placeholder":
                continue
            if inner in constants:
                target = str(constants.specs[inner.name].target)
                self._weights[inner] = weight_of(target, constants.tensor(inner))
            else:
                self._from[inner] = self._from.get(next(given), [])  # type: ignore[arg-type]
        opened = open_payload(lowered.backend_id, lowered.processed_bytes)
        handles = {n.handle for n in opened.nodes} if opened else set()
        names = {i: path + n.name for i, n in enumerate(nodes)}
        into = folded(nodes, handles)
        for number, inner in enumerate(nodes):
            if is_getitem(inner):
                self._from[inner] = self._item(inner)
            elif is_call(inner) and not is_size(inner):
                target = names.get(into.get(number, -1), "")
                self._add(inner, names[number], (index, lowered), target)
        returned: Any = output_node(part.graph).args[0]
        self._from[node] = [self._from[r][0] for r in returned if self._from.get(r)]
        tag = self._tag(nodes, path)
        estimates = self._report.estimates.get(tag)
        estimates = _with_paths(estimates, path)
        self._delegates[index] = _delegate(lowered, opened, names, into, tag, estimates)

    def _tag(self, nodes: Sequence[Node], path: str) -> str:
        """The partition's in the report."""
        for node in filter(is_call, nodes):  # inputs have the names of nodes of other partitions
            found = self._reported.get(str(node.meta.get(REPORTED_AS, path + node.name)))
            if found is not None and found.partition:
                return found.partition
        return ""

    def _add(
        self,
        node: Node,
        name: str,
        delegate: tuple[int, LoweredBackendModule] | None,
        into: str = "",
    ) -> None:
        read = [n for n in node.all_input_nodes if n not in self._weights]
        for number, source in enumerate(s for n in read for s in self._from.get(n, ())):
            self._edges.append(EdgeRecord(*source, name, number))
        values = node.meta.get("val")
        several = len(values) if isinstance(values, (tuple, list)) else 1
        self._from[node] = [(name, i) for i in range(several)]
        known = self._reported.get(str(node.meta.get(REPORTED_AS, name)))
        whole = whole_of(node)
        refusals = () if delegate else self._remarks.of(known)
        self._nodes.append(
            NodeRecord(
                name=name,
                kind="call",
                operator=op_name(node),
                inputs=tuple(t for n in read for t in tensors_of(n)),
                outputs=tensors_of(node),
                attributes=attributes_of(node),
                modules=modules_of(node),
                source=source_line(node),
                backend=delegate[1].backend_id if delegate else RUNTIME,
                delegate=delegate[0] if delegate else None,
                refusals=refusals,
                decomposed_from=whole.operator if whole else "",
                splits=bool(known and known.splits),
                notes=tuple(known.notes) if known and delegate else (),
                folded_into=into,
                macs=macs(node),
                bytes=traffic(node),
                weights=tuple(self._weights[n] for n in node.all_input_nodes if n in self._weights),
            )
        )


def _with_paths(estimates: Estimates | None, path: str) -> Estimates | None:
    """With the nodes of layers as they are called in the method."""
    if estimates is None or not path:
        return estimates
    layers, memory = (
        [{**one, "node": path + str(one["node"])} if one.get("node") else one for one in rows]
        for rows in (estimates.layers, estimates.memory)
    )
    return Estimates(estimates.source, estimates.figures, layers, memory)


def _delegate(
    lowered: LoweredBackendModule,
    opened: Payload | None,
    names: Mapping[int, str],
    into: Mapping[int, int],
    tag: str,
    estimates: Estimates | None,
) -> DelegateRecord:
    covered: dict[int, list[str]] = {}
    for number, target in into.items():
        covered.setdefault(target, []).append(names[number])
    payload = []
    for node in opened.nodes if opened else ():
        found = [names[node.handle]] if node.handle in names else []
        payload.append(
            PayloadNodeRecord(node.kind, tuple(found + covered.get(node.handle, [])), node.handle)
        )
    return DelegateRecord(
        backend=lowered.backend_id,
        partition=tag,
        payload_bytes=len(lowered.processed_bytes),
        weight_bytes=sum(map(len, lowered.named_data.values())),
        payload=tuple(payload),
        estimates=estimates.to_record() if estimates else None,
    )
