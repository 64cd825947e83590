"""Which nodes Ethos-U takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from edgewise.backends.ethosu.lowering.backend import EthosUBackend
from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.rejections import rejections
from edgewise.backends.ethosu.lowering.support import Support
from edgewise.backends.ethosu.lowering.trial import offenders, refusal_of
from edgewise.backends.ethosu.operators import TABLE
from edgewise.edge.graph import calls, fake, is_getitem, same_shape
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators.partitioner import TablePartitioner
from edgewise.partition.spec import DelegationSpec, Refusal
from edgewise.partition.units import Units, own_for_each_reader

logger = logging.getLogger(__name__)
aten = torch.ops.aten


class EthosUPartitioner(TablePartitioner[Node]):
    """Gives an Ethos-U as much of a quantized program as it can run, in as few partitions as
    possible.

    compile_spec: which processor, and how Vela compiles for it. additional_checks: each must
    support a node (`is_node_supported`) for it to be delegated.
    """

    table = TABLE
    tag = "ethosu"

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
        self.preserved: list[torch._ops.OpOverload] = []
        self.delegation_spec = DelegationSpec(EthosUBackend.backend_id, compile_spec.to_list())

    def register_custom_partition_op(self, op: torch._ops.OpOverload) -> None:
        """Keeps the operator from being decomposed."""
        self.preserved.append(op)

    def keeps(self, program: ExportedProgram) -> Callable[[Node], bool]:
        """Whether the definition accepts the node and quantizations are around it."""
        constants = IntegerConstants(program)

        def wanted(node: Node) -> bool:
            if node.target in self.preserved:
                return True
            definition = TABLE.of(node)
            if definition is None or not _is_quantized_around(node, constants):
                return False
            return not definition.refusals(node, constants, self.compile_spec.processor)

        return wanted

    def units(self, program: ExportedProgram) -> Support:
        """What floating point connects. Quantizations of what comes from outside, and
        dequantizations of what goes there, stay outside: inputs and outputs are integers."""
        own_for_each_reader([n for n in calls(program.graph) if is_dequantize(n)])
        return Support(program, self.compile_spec.processor, self.additional_checks)

    def grouped(self, program: ExportedProgram, found: Units[Node]) -> list[list[Node]]:
        """Groups all of which Vela compiles: what it does not is refused, and the rest grouped
        anew."""
        spec = self.compile_spec
        fine: set[tuple[Node, ...]] = set()
        while True:
            groups = super().grouped(program, found)
            against: dict[Node, Refusal] = {}
            for units in groups:
                if tuple(units) in fine or _is_idle(found, units):
                    continue

                def tried(part: Sequence[Node]) -> Refusal | None:
                    return refusal_of(program, _members(found, part), spec)

                if tried(units) is None:
                    fine.add(tuple(units))
                    continue
                busy = [u for u in units if not _is_idle(found, [u])]
                # What only moves elements is tried last: it may be what Vela stumbles over.
                against.update(offenders(busy if tried(busy) is not None else units, tried))
            if not against:
                return groups
            for unit, refusal in against.items():
                if unit in found.units:
                    found.refuse(unit, refusal)

    def kept(self, group: list[Node], found: Units[Node]) -> list[Node]:
        """All of a group that computes something."""
        if not _is_idle(found, group):
            return group
        found.refused.update((n, [_IDLE]) for n in _members(found, group))
        return []

    def finish(
        self, program: ExportedProgram, found: Units[Node], taken: Mapping[str, Sequence[Node]]
    ) -> None:
        """The table of rejected nodes, at level INFO and into the folder of artifacts."""
        folder = self.compile_spec.path_for_intermediates
        if folder is None and not logger.isEnabledFor(logging.INFO):
            return
        text = rejections(EthosUBackend.backend_id, self.compile_spec.tosa_spec, found.refused)
        logger.info(text)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with (Path(folder) / "partition_report.txt").open("a") as file:
                file.write(text + "\n")


_IDLE = Refusal("a partition computes something", "only operators that lowering removes")


def _members(found: Units[Node], units: Sequence[Node]) -> list[Node]:
    """The units' nodes in the graph's order."""
    assert isinstance(found, Support)
    inside = {n for unit in units for n in found.units[unit]}
    return [n for n in found.nodes if n in inside]


def _is_idle(found: Units[Node], units: Sequence[Node]) -> bool:
    return all(_does_nothing(n, found.constants) for u in units for n in found.units[u])


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


def _does_nothing(node: Node, constants: Constants) -> bool:
    """Whether nothing is left of it in the NPU's program."""
    if node in constants or is_quantize(node) or is_dequantize(node) or is_getitem(node):
        return True
    source = node.args[0]
    if node.target in _REMOVED:
        kinds = [fake(n).dtype == torch.bool for n in (source, node) if isinstance(n, Node)]
        return all(kinds) or not any(kinds)
    return (
        node.target in (aten.expand_copy.default, aten.repeat.default, aten.squeeze_copy.dims)
        and isinstance(source, Node)
        and same_shape(source.meta["val"].shape, node.meta["val"].shape)
    )


__all__ = ["EthosUPartitioner"]
