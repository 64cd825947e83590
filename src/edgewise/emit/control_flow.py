"""Branches and loops become jumps.

    cond                        while_loop                   map, scan
        jump to A if not p          carried = init               carried = init; i = 0
        ... true branch             L: ... condition             L: row = mapped[i]
        result = its result         jump to E if not it          ... body
        jump to E                   ... body                     carried = next
    A:  ... false branch            carried = next               results[i] = row of result
        result = its result         jump to L                    i = i + 1; done = i == rows
    E:                          E:                               jump to L if not done

The only jump of the format is one "if false", so one on a constant False always jumps.
Values that a loop carries are copied: their memory is read while the next ones are written.
Results of a branch are not: the branches' and the common result share one slot, and a move
tells the latter its shape.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.bodies import COND, WHILE_LOOP, ControlFlow, body_of, control_flow
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import at_node
from edgewise.emit.emitter import MethodEmitter
from edgewise.emit.out_variants import SYMBOLIC
from edgewise.emit.shapes import DYNAMIC_BOUND, STATIC
from edgewise.errors import EmitError
from edgewise.format import program as pte

aten = torch.ops.aten


class StructuredEmitter(MethodEmitter):
    """Emits methods whose graphs hold control flow, at any depth."""

    def _emit_call(self, node: Node) -> None:
        flow = control_flow(node)
        if flow is None:
            super()._emit_call(node)
        elif node.target is COND:
            self._of_node[node] = self._emit_cond(flow)
        elif node.target is WHILE_LOOP:
            self._of_node[node] = self._emit_while(flow)
        else:
            self._of_node[node] = self._emit_rows(flow)

    # --- the three shapes --------------------------------------------------------------

    def _emit_cond(self, flow: ControlFlow) -> list[int]:
        results = [self._own_value(flow.node, value) for value in _values(flow.node)]
        captured = self._given(flow, flow.captured)
        condition = self._argument(flow.node.args[0], "bool", flow.node)
        otherwise = self._jump_if_false(condition)
        self._emit_branch(flow, 0, captured, results)
        end = self._jump_if_false(self._never())
        self._lands(otherwise)
        self._emit_branch(flow, 1, captured, results)
        self._lands(end)
        return results

    def _emit_while(self, flow: ControlFlow) -> list[int]:
        captured = self._given(flow, flow.captured)
        carried = self._emit_initial(flow)
        start = len(self._instructions)
        (condition,) = self._emit_body(flow, 0, [*carried, *captured])
        end = self._jump_if_false(condition)
        self._assign(carried, self._emit_body(flow, 1, [*carried, *captured]))
        self._loop_back(self._never(), start)
        self._lands(end)
        return carried

    def _emit_rows(self, flow: ControlFlow) -> list[int]:
        """Map and scan. The first round needs a row: without one its selection is an error."""
        if not flow.mapped:
            raise EmitError(f"{at_node(flow.node)} must have tensors to take rows of; got none")
        captured = self._given(flow, flow.captured)
        mapped = self._given(flow, flow.mapped)
        carried = self._emit_initial(flow)
        collected = [self._own_value(flow.node, v) for v in _values(flow.node)[len(carried) :]]
        for index in collected:
            tensor = self._values[index].val
            if tensor.shape_dynamism == STATIC:
                tensor.shape_dynamism = DYNAMIC_BOUND  # it grows row by row
        rows, iteration, done = (self._add(v) for v in (pte.Int(0), pte.Int(0), pte.Bool(False)))
        zero, one = self._atom(pte.Int(0)), self._atom(pte.Int(1))
        self._step(SYMBOLIC[aten.sym_size.int], [mapped[0], zero, rows], reads=mapped[:1])
        self._move(zero, iteration)
        start = len(self._instructions)
        for index in collected:
            self._live(index, start - 1)  # rows of earlier rounds stay
        slices = self._emit_slices(flow, mapped, iteration)
        found = self._emit_body(flow, 0, [*carried, *slices, *captured])
        self._assign(carried, found[: len(carried)])
        for index, row in zip(collected, found[len(carried) :], strict=True):
            row = self._plain(row)
            self._live(row, len(self._instructions))
            self._live(index, len(self._instructions))
            self._kernel("executorch_prim::et_copy_index", "tensor", [index, row, iteration])
            self._no_trace()
        self._step(SYMBOLIC[operator.add], [iteration, one, iteration])
        self._step(SYMBOLIC[operator.eq], [iteration, rows, done])
        self._loop_back(done, start)
        return carried + collected

    # --- their parts -------------------------------------------------------------------

    def _given(self, flow: ControlFlow, values: Sequence[Any]) -> list[int]:
        return [self._argument(value, "", flow.node) for value in values]

    def _own_value(self, node: Node, value: Any) -> int:
        """A value of its own for what control flow computes: a tensor, or a number."""
        if isinstance(value, torch.Tensor):
            return self._tensor(node, value)
        return self._number(value, node)

    def _emit_initial(self, flow: ControlFlow) -> list[int]:
        """Values that a loop carries, with what they are at first."""
        values = _values(flow.node)[: len(flow.carried)]
        carried = [self._own_value(flow.node, value) for value in values]
        for index, first in zip(carried, self._given(flow, flow.carried), strict=True):
            self._bring(first, index)
        return carried

    def _emit_body(self, flow: ControlFlow, number: int, given: Sequence[int]) -> list[int]:
        """The instructions of a body, for these values as its inputs. Returns its outputs."""
        outer = self._module
        body = body_of(outer, flow.bodies[number])
        inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
        for node, index in zip(inputs, given, strict=True):
            self._of_node[node] = self._as_expected(node, index)
        self._module = body
        self._origins.made(flow.node, len(self._instructions))
        self._origins.entered(flow.node, flow.bodies[number], body.graph)
        self._emit_nodes()
        self._module = outer
        return [self._argument(value, "", flow.node) for value in _returned(body)]

    def _as_expected(self, node: Node, index: int) -> int:
        """A body's input, in the order of dimensions that the body was lowered for."""
        value, held = node.meta.get("val"), self._values[index].val
        if not isinstance(value, torch.Tensor) or not node.users:
            return index
        if list(held.dim_order) == list(dim_order(value)):
            return index
        copy = self._tensor(node, value)
        self._copy(index, copy)
        return copy

    def _emit_branch(
        self, flow: ControlFlow, number: int, given: Sequence[int], results: Sequence[int]
    ) -> None:
        before = len(self._values)
        made = self._emit_body(flow, number, given)
        moved: set[int] = set()
        for result, index in zip(results, made, strict=True):
            own = index >= before and index in self._planned and index not in moved
            if own and self._looks_like(result, index):
                moved.add(index)
                self._lifetimes.share(index, result)
                self._move(index, result)
            else:
                self._bring(index, result)

    def _emit_slices(self, flow: ControlFlow, mapped: Sequence[int], iteration: int) -> list[int]:
        body = body_of(self._module, flow.bodies[0])
        inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
        zero = self._atom(pte.Int(0))
        slices = []
        for node, source in zip(inputs[len(flow.carried) :], mapped, strict=False):
            value = node.meta["val"]
            row = self._tensor(node, value.contiguous())
            now = len(self._instructions)
            self._live(source, now)
            self._live(row, now)
            self._kernel("aten::select_copy", "int_out", [source, zero, iteration, row, row])
            self._no_trace()
            slices.append(row)
        return slices

    def _plain(self, index: int) -> int:
        """The tensor with its dimensions in order, as rows of a result lie."""
        tensor = self._values[index].val
        if list(tensor.dim_order) == list(range(len(tensor.dim_order))):
            return index
        return self._save(index, list(range(len(tensor.dim_order))))

    # --- assignments -------------------------------------------------------------------

    def _assign(self, targets: Sequence[int], values: Sequence[int]) -> None:
        """All at once: a value that is itself a target counts as it was before."""
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        written = {target for target, _ in pairs}
        saved = {v: self._kept(v) for v in dict.fromkeys(v for _, v in pairs) if v in written}
        for target, value in pairs:
            self._bring(saved.get(value, value), target)

    def _kept(self, index: int) -> int:
        value = self._values[index].val
        if isinstance(value, pte.Tensor):
            return self._save(index)
        copy = self._add(type(value)())
        self._move(index, copy)
        return copy

    def _bring(self, source: int, target: int) -> None:
        """target = source: a copy of a tensor, a move of a number."""
        if isinstance(self._values[target].val, pte.Tensor):
            self._copy(source, target)
        else:
            self._move(source, target)

    def _looks_like(self, a: int, b: int) -> bool:
        first, second = self._values[a].val, self._values[b].val
        return (
            isinstance(first, pte.Tensor)
            and a in self._planned
            and first.scalar_type == second.scalar_type
            and list(first.dim_order) == list(second.dim_order)
        )

    # --- instructions ------------------------------------------------------------------

    def _move(self, source: int, target: int) -> None:
        now = len(self._instructions)
        self._live(source, now)
        self._live(target, now)
        self._instructions.append(pte.Instruction(pte.MoveCall(source, target)))
        self._no_trace()

    def _step(self, operator_: Any, args: Sequence[int], reads: Sequence[int] = ()) -> None:
        for index in reads:
            self._live(index, len(self._instructions))
        self._kernel(operator_.name, operator_.overload, args)
        self._no_trace()

    def _never(self) -> int:
        return self._atom(pte.Bool(False))

    def _jump_if_false(self, condition: int) -> pte.JumpFalseCall:
        """A jump to where `_lands` says."""
        jump = pte.JumpFalseCall(condition, -1)
        self._live(condition, len(self._instructions))
        self._instructions.append(pte.Instruction(jump))
        self._no_trace()
        return jump

    def _lands(self, jump: pte.JumpFalseCall) -> None:
        jump.destination_instruction = len(self._instructions)

    def _loop_back(self, condition: int, start: int) -> None:
        jump = self._jump_if_false(condition)
        jump.destination_instruction = start
        self._lifetimes.loop(start, len(self._instructions) - 1)


def _values(node: Node) -> list[Any]:
    """What a call of control flow computes. A number that export knows is not a symbol."""
    value = node.meta["val"]
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _returned(body: GraphModule) -> list[Any]:
    (output,) = body.graph.find_nodes(op="output")
    found = output.args[0]
    return list(found) if isinstance(found, (tuple, list)) else [found]
