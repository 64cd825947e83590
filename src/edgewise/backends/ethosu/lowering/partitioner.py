"""Which nodes Ethos-U takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from graphlib import CycleError
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from edgewise.backends.ethosu.lowering.backend import EthosUBackend
from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.constants import IntegerConstants
from edgewise.backends.ethosu.lowering.quant import is_dequantize, is_quantize
from edgewise.backends.ethosu.lowering.rejections import rejections
from edgewise.backends.ethosu.lowering.support import Support, own_dequantizations
from edgewise.backends.ethosu.lowering.trial import offenders, refusal_of
from edgewise.backends.ethosu.rows import all_rows, row_of
from edgewise.edge.graph import is_call, is_getitem, op_name, same_shape
from edgewise.partition.grouping import group
from edgewise.partition.ordering import topological
from edgewise.partition.spec import DelegationSpec, Partitioner, PartitionResult, Refusal
from edgewise.partition.tagging import Tags
from edgewise.partition.work import macs

logger = logging.getLogger(__name__)
aten = torch.ops.aten


class EthosUPartitioner(Partitioner):
    """Gives an Ethos-U as much of a quantized program as it can run, in as few partitions as
    possible.

    compile_spec: which processor, and how Vela compiles for it. additional_checks: each must
    support a node (`is_node_supported`) for it to be delegated.
    """

    def __init__(
        self,
        compile_spec: EthosUCompileSpec,
        additional_checks: Sequence[OperatorSupportBase] | None = None,
    ) -> None:
        if not isinstance(compile_spec, EthosUCompileSpec):
            raise TypeError(
                f"[EthosUPartitioner] compile_spec must be an EthosUCompileSpec; "
                f"got {type(compile_spec).__name__}; try EthosUCompileSpec('ethos-u55-128')"
            )
        checks = list(additional_checks or ())
        for check in checks:
            if not isinstance(check, OperatorSupportBase):
                raise TypeError(
                    f"[EthosUPartitioner] additional_checks must be OperatorSupportBase of "
                    f"torch.fx; got {type(check).__name__}"
                )
        self.compile_spec = compile_spec
        self.additional_checks = checks
        self._custom: list[torch._ops.OpOverload] = []
        self.delegation_spec = DelegationSpec(EthosUBackend.backend_id, compile_spec.to_list())

    def register_custom_partition_op(self, op: torch._ops.OpOverload) -> None:
        """Keeps the operator from being decomposed."""
        self._custom.append(op)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Composite operators with a row of their own, where the row accepts the node and
        quantizations are around it."""
        keep = [target for row in all_rows() if row.keep for target in row.targets]
        constants = IntegerConstants(ep)

        def wanted(node: Node) -> bool:
            if node.target in self._custom:
                return True
            row = row_of(node)
            if row is None or not _is_quantized_around(node, constants):
                return False
            return not row.refusals(node, constants, self.compile_spec.processor)

        return [*keep, *self._custom], wanted

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags what the rows accept; says for everything else why not.

        Quantizations of what comes from outside, and dequantizations of what goes there, are
        not tagged: inputs and outputs of a delegate are integers.
        """
        own_dequantizations(exported_program)
        support = Support(exported_program, self.compile_spec.processor, self.additional_checks)
        tags = Tags("ethosu", self.delegation_spec)
        for members in self._compiled(exported_program, support):
            tags.add(members)
        self._report(support)
        reasons = {n.name: found for n, found in support.refused.items()}
        return PartitionResult(exported_program, tags, reasons)

    def _compiled(self, program: ExportedProgram, support: Support) -> list[list[Node]]:
        """The partitions, all of which Vela compiles: what it does not is refused, and the rest
        joined anew."""
        spec = self.compile_spec
        fine: set[tuple[Node, ...]] = set()
        while True:
            groups = _groups(support)
            found = [g for g in groups if not _is_idle(support, g)]
            against: dict[Node, Refusal] = {}
            for members in found:
                if tuple(members) in fine:
                    continue
                if refusal_of(program, members, spec) is None:
                    fine.add(tuple(members))
                    continue
                inside = set(members)
                first = {n: u for u, nodes in support.units.items() for n in nodes if n in inside}
                units = list(dict.fromkeys(first[n] for n in members))

                def tried(part: Sequence[Node]) -> Refusal | None:
                    return refusal_of(program, _joined(support, part), spec)

                busy = [u for u in units if not _is_idle(support, support.units[u])]
                # What only moves elements is tried last: it may be what Vela stumbles over.
                against.update(offenders(busy if tried(busy) is not None else units, tried))
            if not against:
                for members in groups:
                    if _is_idle(support, members):
                        support.refused.update((n, [_IDLE]) for n in members)
                return found
            for unit, refusal in against.items():
                if unit in support.units:
                    support.refuse_unit(unit, refusal)

    def _report(self, support: Support) -> None:
        """The table of rejected nodes, at level INFO and into the folder of artifacts."""
        folder = self.compile_spec.path_for_intermediates
        if folder is None and not logger.isEnabledFor(logging.INFO):
            return
        text = rejections(EthosUBackend.backend_id, self.compile_spec.tosa_spec, support.refused)
        logger.info(text)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with (Path(folder) / "partition_report.txt").open("a") as file:
                file.write(text + "\n")


_IDLE = Refusal("a partition computes something", "only operators that lowering removes")


def _is_idle(support: Support, nodes: Sequence[Node]) -> bool:
    return all(_does_nothing(n, support.constants) for n in nodes)


def _joined(support: Support, units: Sequence[Node]) -> list[Node]:
    """The units' nodes in the graph's order."""
    inside = {n for unit in units for n in support.units[unit]}
    return [n for n in support.nodes if n in inside]


def _groups(support: Support) -> list[list[Node]]:
    """Partitions of the units, each in the graph's order.

    A unit runs at once. Of those that need each other's results the one with the least work is
    refused, and what it takes with it.
    """
    place = {node: i for i, node in enumerate(support.nodes)}
    while True:
        sources = _sources(support)
        try:
            ordered = topological(list(sources), sources.__getitem__)
        except CycleError as cycle:
            loop: list[Node] = cycle.args[1]
            units = [unit for unit in loop if unit in support.units]
            least = min(units, key=lambda unit: sum(macs(n) for n in support.units[unit]))
            support.refuse_unit(least, _needs_itself(least, loop))
            continue
        joined = group(ordered, sources.__getitem__, support.units.__contains__)
        return [
            sorted((n for unit in part for n in support.units[unit]), key=place.__getitem__)
            for part in joined
        ]


def _sources(support: Support) -> dict[Node, list[Node]]:
    """What each unit, or node outside of any, reads directly, without itself."""
    first = {n: unit for unit, members in support.units.items() for n in members}
    items = dict.fromkeys(first.get(n, n) for n in support.nodes)
    sources = {}
    for item in items:
        read = [s for n in support.units.get(item, [item]) for s in n.all_input_nodes]
        sources[item] = [u for u in dict.fromkeys(first.get(s, s) for s in read) if u is not item]
    return sources


def _needs_itself(unit: Node, loop: Sequence[Node]) -> Refusal:
    other = next((n for n in loop if n is not unit), unit)
    return Refusal(
        "what lies between quantizations runs at once",
        f"a path that leaves it and comes back, through {op_name(other)} ({other.name})",
        "a quantization of the value that both read",
    )


def _is_quantized_around(node: Node, constants: IntegerConstants) -> bool:
    """Whether its operands were just dequantized and its result will just be quantized, at
    most one elementwise or shape operator away."""

    def fed(source: Node, depth: int) -> bool:
        if source in constants or is_dequantize(source):
            return True
        return (
            depth > 0
            and bool(source.all_input_nodes)
            and all(fed(s, depth - 1) for s in source.all_input_nodes)
        )

    def read(user: Node, depth: int) -> bool:
        if is_quantize(user):
            return True
        return depth > 0 and bool(user.users) and all(read(u, depth - 1) for u in user.users)

    return all(fed(s, 2) for s in node.all_input_nodes) and all(read(u, 2) for u in node.users)


_REMOVED = {
    aten.clone.default,
    aten.view_copy.default,
    aten._to_copy.default,
}


def _does_nothing(node: Node, constants: IntegerConstants) -> bool:
    """Whether nothing is left of it in the NPU's program."""
    if node in constants or is_quantize(node) or is_dequantize(node) or is_getitem(node):
        return True
    if node.target in _REMOVED:
        return True
    source = node.args[0]
    return (
        node.target in (aten.expand_copy.default, aten.repeat.default, aten.squeeze_copy.dims)
        and isinstance(source, Node)
        and same_shape(source.meta["val"].shape, node.meta["val"].shape)
    )


__all__ = ["EthosUPartitioner", "is_call"]
