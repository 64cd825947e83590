"""Which nodes of a program the NPU can run, and which of them only together.

The NPU computes with integers. What is between a dequantization and a quantization is one
unit with these: no floating point goes into a delegate or comes out of one, nor do the 64-bit
indices of torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.context import QUANTIZE_IT, UNFIT, Lowering
from edgewise.backends.ethosu.lowering.tosa import Dry
from edgewise.backends.ethosu.operators import TABLE
from edgewise.backends.ethosu.targets import Target
from edgewise.edge.graph import (
    is_call,
    is_getitem,
    is_size,
    is_static,
    op_name,
    tensors_of,
    value_of,
)
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.node_errors import users_code
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators.lowering import Refused
from edgewise.partition.following import AT_THE_BORDER, BEHIND_THE_BORDER, WITH_ITS_READER
from edgewise.partition.spec import Refusal, refused_before
from edgewise.partition.units import Units, free_calls


class Support(Units[Node]):
    """What the NPU can run, by the first node of each unit. `nodes`: all that were asked for."""

    constants: IntegerConstants

    def __init__(
        self, program: ExportedProgram, target: Target, checks: Sequence[OperatorSupportBase] = ()
    ) -> None:
        super().__init__(IntegerConstants(program), {}, {})
        self._target = target
        self._checks = checks
        self._modules = dict(program.graph_module.named_modules())
        self.nodes = free_calls(program.graph)
        self.quantized = any(is_quantize(n) for n in self.nodes)
        self._lower_dry(program)
        self._settle()
        self.units = self._units()

    def refuse(self, unit: Node, reason: Refusal) -> None:
        """Gives the unit up, and what computes in floating point with it."""
        for node in self.units[unit]:
            if node not in self.constants:
                self.refused[node] = [reason]
        self._settle()
        self.units = self._units()

    def _lower_dry(self, program: ExportedProgram) -> None:
        """Every node as its definition lowers it, without making a graph."""
        to = Lowering(Builder(self._target.family, Dry()), self.constants, self._target.family)
        asked = set(self.nodes)
        for node in program.graph.nodes:
            if node.op == "output" or node in self.constants:
                continue
            if node not in asked:
                self._outside(to, node)
                continue
            try:
                reasons = self._reasons(node)
                if not reasons:
                    to.done[node] = to.lower(node, TABLE)
            except Refused as refused:
                unfit = next(filter(None, map(self._unfit, node.all_input_nodes)), None)
                reasons = [unfit or refused.refusal]
            if reasons:
                self.refused[node] = reasons
                self._outside(to, node)

    def _outside(self, to: Lowering, node: Node) -> None:
        """Integers that are computed elsewhere are inputs of delegates."""
        values = tensors_of(node)
        # A number taken from a dynamic size would fix it, for the other backends, too.
        if len(values) != 1 or is_size(node) or not is_static(values[0].shape):
            return
        if value_of(node) is values[0] and not values[0].is_floating_point():
            try:
                to.done[node] = to.input(node)
            except Refused:
                return

    def _reasons(self, node: Node) -> list[Refusal]:
        """What the definition and the user's checks say, before anything is lowered."""
        if is_getitem(node):
            return []
        before = refused_before(node)
        if before:
            return list(before)
        definition = TABLE.of(node)
        if definition is not None and not self.quantized and _is_float(node):
            rule = "the program is quantized: the NPU computes in integers"
            return [Refusal(rule, "floating point only", QUANTIZE_IT)]
        found = []
        if definition is not None:
            found = definition.refusals(node, self.constants, self._target)
        for check in self._checks:
            with users_code():
                supported = check.is_node_supported(self._modules, node)
            if not supported:
                found.append(Refusal(f"Rejected by {type(check).__name__}"))
        return found

    def _settle(self) -> None:
        """Refuses what computes in floating point with something that is not run here."""
        changed = True
        while changed:
            changed = False
            for node in reversed(self.nodes):
                if node in self.refused or node in self.constants or not _is_inner(node):
                    continue
                other = next((u for u in node.users if u in self.refused or not is_call(u)), None)
                if other is None and node.users:
                    continue
                self.refused[node] = [self._unfit(other) or _read_outside(node, other)]
                changed = True
            for node in self.nodes:
                if node in self.refused or node in self.constants:
                    continue
                for source in node.all_input_nodes:
                    if source in self.refused and _is_inner(source):
                        why = self._unfit(source) or _computed_outside(node, source)
                        self.refused[node] = [why]
                        changed = True
                        break

    def _unfit(self, border: Node | None) -> Refusal | None:
        """Why a quantization or dequantization itself is refused, which is why those beside it
        are: int32, say. None for other nodes, and for what only follows others."""
        if border is None or not (is_quantize(border) or is_dequantize(border)):
            return None
        found = self.refused.get(border, [])
        return next((r for r in found if r.rule in UNFIT), None)

    def _units(self) -> dict[Node, list[Node]]:
        """Nodes by the first of those that floating point connects them with."""
        root: dict[Node, Node] = {}

        def find(node: Node) -> Node:
            while root[node] is not node:
                root[node] = root[root[node]]
                node = root[node]
            return node

        position = {n: i for i, n in enumerate(self.nodes)}
        run = [n for n in self.nodes if n not in self.refused and n not in self.constants]
        for node in run:
            root[node] = node
            for source in node.all_input_nodes:
                if source in root and (_is_inner(source) or is_getitem(node)):
                    a, b = sorted((find(source), find(node)), key=position.__getitem__)
                    root[b] = a
        units: dict[Node, list[Node]] = {}
        for node in run:
            units.setdefault(find(node), []).append(node)
        for node in self.nodes:  # with their readers, each of which has its own
            if node in self.constants and node.users:
                user = next(iter(node.users))
                if user in root:
                    units[find(user)].append(node)
                else:
                    reader = Refusal(WITH_ITS_READER, op_name(user))
                    self.refused[node] = [reader]
        return {n: sorted(members, key=position.__getitem__) for n, members in units.items()}


def _is_float(node: Node) -> bool:
    return any(t.is_floating_point() for t in tensors_of(node))


def _is_inner(node: Node) -> bool:
    """Whether it cannot go into a delegate or come out of one."""
    return _is_float(node) or any(t.dtype == torch.int64 for t in tensors_of(node))


def _read_outside(node: Node, reader: Node | None) -> Refusal:
    name = "nobody" if reader is None else op_name(reader) if is_call(reader) else "the output"
    if is_dequantize(node):
        return Refusal(BEHIND_THE_BORDER, f"for {name}")
    if not _is_float(node):
        return Refusal("results have at most 32 bits", f"{name} reads int64")
    return Refusal("the result is quantized", f"{name} reads it in floating point", QUANTIZE_IT)


def _computed_outside(node: Node, source: Node) -> Refusal:
    if is_quantize(node):
        return Refusal(AT_THE_BORDER, f"from {op_name(source)}")
    if not _is_float(source):
        return Refusal("operands have at most 32 bits", f"int64 from {op_name(source)}")
    return Refusal("operands are quantized", f"{op_name(source)}, in floating point", QUANTIZE_IT)


__all__ = ["Support"]
