"""Where each node of a program runs, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch.fx import Node

from edgewise.edge.bodies import control_flow
from edgewise.edge.graph import (
    REPORTED_AS,
    is_call,
    is_getitem,
    is_size,
    module_path,
    op_name,
    source_line,
    tensor_shapes,
    tensor_types,
)
from edgewise.edge.provenance import whole_of
from edgewise.files import write_text
from edgewise.partition.lowered_module import is_delegate_call
from edgewise.partition.report_data import (
    KERNEL,
    NodeReport,
    RefusalReport,
    ReportData,
    WholeReport,
)
from edgewise.partition.report_page import page as render_page
from edgewise.partition.report_text import render
from edgewise.partition.spec import TAG, DelegationSpec, Estimates, Refusal
from edgewise.partition.work import macs, traffic


class DelegationReport(ReportData):
    """Every node of a method: its backend or the reasons against it, its source, its work."""

    def to_html(self, path: str | Path | None = None) -> str:
        """The whole report as a page without any reference to other files."""
        page = render_page(self)
        if path is not None:
            write_text(path, page)
        return page

    def _repr_html_(self) -> str:
        """For notebooks."""
        from edgewise import notebook
        from edgewise.partition.report_text import heading, remarks, summary

        parts = []
        for one in (self, *self.others):
            columns, *rows = summary(one)
            parts += [
                notebook.heading(heading(one)),
                notebook.table([columns[0], *(f">{name}" for name in columns[1:])], rows),
                notebook.text("\n".join(remarks(one))),
            ]
        return notebook.block(*parts)

    def __str__(self) -> str:
        return "\n\n".join(render(one) for one in (self, *self.others))


def chosen_report(reports: Mapping[str, DelegationReport], method: str | None) -> DelegationReport:
    """The method's. Without a name: "forward"'s or the first one's, with the others behind it.
    KeyError if there is no such method."""
    if method is None and len(reports) > 1:
        first = "forward" if "forward" in reports else next(iter(reports))
        others = tuple(one for name, one in reports.items() if name != first)
        return replace(reports[first], others=others)
    name = next(iter(reports), "forward") if method is None else method
    found = reports.get(name)
    if found is None:
        known = ", ".join(sorted(reports))
        raise KeyError(f"[delegation_report] must be one of {known}; got {name!r}")
    return found


class ReportBuilder:
    """Collects a report while partitioners take their turns on one method."""

    def __init__(self, method: str, *, upcast: bool = False) -> None:
        """upcast: whether the method's bfloat16 has become float32."""
        self._method = method
        self.upcast = upcast
        self._refusals: dict[str, dict[str, list[RefusalReport]]] = {}
        self._taken: dict[str, tuple[str, str]] = {}
        self._facts: dict[str, NodeReport] = {}
        self._splits: set[str] = set()
        self._notes: dict[str, list[str]] = {}
        self._estimates: dict[str, Estimates] = {}

    def asked(
        self,
        nodes: Sequence[Node],
        tags: Mapping[str, DelegationSpec],
        refusals: Mapping[str, Sequence[Refusal]],
        backend: str,
        path: str = "",
    ) -> None:
        """Notes one partitioner's decisions, before its partitions are cut out.

        path: of the body of control flow that holds the nodes: "true_graph_0/".
        """
        present = {path + node.name for node in nodes}
        here = [n for n in self._facts if n.rpartition("/")[0] == path.removesuffix("/")]
        for name in [n for n in here if n not in self._taken and n not in present]:
            del self._facts[name]  # decomposed since an earlier partitioner refused it
        for node in nodes:
            name = path + node.name
            if not is_call(node) or is_delegate_call(node) or is_size(node) or control_flow(node):
                continue
            if is_getitem(node) and name not in self._facts:
                continue
            if name not in self._facts:
                self._facts[name] = _facts(node, path)
            node.meta[REPORTED_AS] = name
            tag = str(node.meta.get(TAG, ""))
            if tag in tags:
                self._taken[name] = (tags[tag].backend_id, path + tag)
            elif node.name in refusals:
                given = self._refusals.setdefault(name, {})
                given[backend] = [_refusal(backend, r) for r in refusals[node.name]]
        self._splits.difference_update(here)
        self._splits.update(path + name for name in _between_delegates(nodes, tags))

    def gave_back(
        self, refusals: Mapping[str, Sequence[Refusal]], backend: str, path: str = ""
    ) -> None:
        """Notes nodes (by name) that were tagged, and that the backend then did not compile."""
        for name, given in refusals.items():
            self._taken.pop(path + name, None)
            self._refusals.setdefault(path + name, {})[backend] = [
                _refusal(backend, r) for r in given
            ]

    def noted(self, notes: Mapping[str, Sequence[str]], path: str = "") -> None:
        """Adds what a backend says of nodes that it compiled."""
        for name, texts in notes.items():
            self._notes.setdefault(path + name, []).extend(texts)

    def estimated(self, partition: str, estimates: Estimates) -> None:
        """Adds what a backend's compiler expects of a partition."""
        self._estimates[partition] = estimates

    def left(self, nodes: Sequence[Node], path: str = "") -> None:
        """Notes what remains for the runtime's kernels where no partitioner was asked."""
        if path or not self._facts:
            self.asked(nodes, {}, {}, KERNEL, path)

    def copy(self) -> ReportBuilder:
        other = ReportBuilder(self._method, upcast=self.upcast)
        other._refusals = {name: dict(given) for name, given in self._refusals.items()}
        other._taken = dict(self._taken)
        other._facts = dict(self._facts)
        other._splits = set(self._splits)
        other._estimates = dict(self._estimates)
        other._notes = {name: list(texts) for name, texts in self._notes.items()}
        return other

    def finish(self) -> DelegationReport:
        report = DelegationReport(self._method, estimates=dict(self._estimates), upcast=self.upcast)
        for name, facts in self._facts.items():
            backend, tag = self._taken.get(name, (KERNEL, ""))
            known = [source for source in facts.inputs if source in self._facts]
            given = {} if tag else self._refusals.get(name, {})
            report.nodes.append(
                replace(
                    facts,
                    backend=backend,
                    partition=tag,
                    refusals=[r for rs in given.values() for r in rs],
                    splits=name in self._splits and not tag,
                    notes=self._notes.get(name, []) if tag else [],
                    inputs=known,
                )
            )
        return report


def _facts(node: Node, path: str) -> NodeReport:
    return NodeReport(
        name=path + node.name,
        operator=op_name(node),
        shapes=tensor_shapes(node),
        backend=KERNEL,
        partition="",
        refusals=[],
        decomposed_from=_whole(node),
        splits=False,
        module=module_path(node),
        source=source_line(node),
        macs=macs(node),
        bytes=traffic(node),
        inputs=[path + source.name for source in map(_computed_by, node.all_input_nodes)],
        types=tensor_types(node),
    )


def _computed_by(source: Node) -> Node:
    """The node that computes a tensor which is one of several."""
    while is_getitem(source) and isinstance(source.args[0], Node):
        source = source.args[0]
    return source


def _refusal(backend: str, refusal: Refusal) -> RefusalReport:
    return RefusalReport(backend, refusal.rule, refusal.got, refusal.hint)


def _whole(node: Node) -> WholeReport | None:
    whole = whole_of(node)
    if whole is None:
        return None
    refusals = [_refusal(b, r) for b, given in whole.refusals.items() for r in given]
    return WholeReport(whole.name, whole.operator, refusals)


def _between_delegates(nodes: Sequence[Node], tags: Mapping[str, DelegationSpec]) -> set[str]:
    """Names of the nodes outside of delegates on a path from one to another."""

    def delegated(node: Node) -> bool:
        return is_delegate_call(node) or node.meta.get(TAG) in tags

    after: set[Node] = set()
    for node in nodes:
        if any(delegated(source) or source in after for source in node.all_input_nodes):
            after.add(node)
    before: set[Node] = set()
    for node in reversed(nodes):
        if any(delegated(user) or user in before for user in node.users):
            before.add(node)
    return {n.name for n in after & before if is_call(n) and not delegated(n)}
