"""Which results can lie where the state that they update lies.

A method that writes a buffer (or an input) computes its new value and copies it there in
the end. That copy, of the whole buffer, is not needed where the new value can be computed
in the buffer itself. Three forms are known:

* an update: a chain of operators that starts at the buffer and ends at its new value, each of
  which changes a part of its first operand (a cache's new rows) or computes every element from
  the one at its index (`counter.add_(1)`);
* the same inside of a delegate, where every operator that the buffer reaches on its way is of
  the second kind;
* a fresh value: any other operator's or delegate's result that the buffer takes.

All write the buffer when the operator runs, not in the end. So nothing may read what the
buffer held before from then on: all users of the older value come earlier in the graph,
and none of them is the method's output, which is read last.

An input is written by kernels alone, whose calls say what they write: that is how a runtime knows
which inputs its caller wants to see changed. Delegates do not say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.graph import arguments, fake, is_getitem, same_shape
from edgewise.edge.layout import dim_order
from edgewise.edge.program import output_node, placeholders, written_state
from edgewise.edge.updates import ELEMENTWISE, UPDATES
from edgewise.partition.lowered_module import is_delegate_call, lowered_of

aten = torch.ops.aten

Output = tuple[Node, int]
"""A result: the node that computes it, and which of its results (0 if it has one)."""


def is_row_update(node: Node) -> bool:
    """Whether the call is one of those that ExecuTorch's `index_put_` takes.

    That is rows of one dimension replaced, by a vector of integers, with values of the rows'
    very shape. It writes the rows alone, where ExecuTorch's out-variants also copy `self` to
    `out`, though they are one.
    """
    if node.target is not aten.index_put.default:
        return False
    named = arguments(node)
    given = [(dim, i) for dim, i in enumerate(named["indices"]) if i is not None]
    if len(given) != 1 or named["accumulate"]:
        return False
    dim, index = given[0]
    rows = list(fake(node).shape)
    rows[dim : dim + 1] = fake(index).shape
    vector = fake(index).dim() == 1 and fake(index).dtype in (torch.int64, torch.int32)
    return vector and same_shape(fake(named["values"]).shape, rows)


def plan_in_place(program: ExportedProgram) -> Mapping[Output, Node]:
    """The placeholder in whose memory a result is to be computed, for results where it can."""
    order = {node: position for position, node in enumerate(program.graph.nodes)}
    of_user = set(program.graph_signature.user_inputs_to_mutate.values())
    plan: dict[Output, Node] = {}
    for state, value in written_state(program):
        if value is state or not _same_kind(value, state):
            continue
        found = (form(state, value, order) for form in _FORMS)
        outputs: list[Output] = next(filter(None, found), [])
        if state.name in of_user and any(is_delegate_call(node) for node, _ in outputs):
            continue
        # A value that two buffers take is computed in one of them.
        if outputs and not any(output in plan for output in outputs):
            plan.update(dict.fromkeys(outputs, state))
    return plan


def plan_writes(
    program: ExportedProgram, in_place: Mapping[Output, Node]
) -> Mapping[Node, Sequence[tuple[Node, Node]]]:
    """States with their new values, by the node after which each can be copied to its state: then
    both are still in a cache, and the new value's memory serves what follows. What can be copied in
    the end alone, or need not be, is not among them.
    """
    order = {node: position for position, node in enumerate(program.graph.nodes)}
    end = output_node(program.graph)
    states = dict(written_state(program))
    found: dict[Node, list[tuple[Node, Node]]] = {}
    for state, value in states.items():
        if state in in_place.values() or value in states or not isinstance(value, Node):
            continue
        if end in state.users or value.op != "call_function":
            continue
        last = max([value, *state.users], key=order.__getitem__)
        found.setdefault(last, []).append((state, value))
    return found


def _update(state: Node, value: Node, order: Mapping[Node, int]) -> list[Output]:
    """The chain from state to value, empty if there is none or an old value is read late."""
    chain: list[Output] = []
    node = value
    while node is not state:
        before = _written_operand(node, state)
        if before is None or not _read_last(before, node, order):
            return []
        chain.append((node, 0))
        node = before
    return chain


def _written_operand(node: Node, state: Node) -> Node | None:
    """The operand whose memory the result may take, on the way to the state."""
    if node.target in UPDATES:
        before = node.args[0]
        return before if isinstance(before, Node) and _uses(node, before) == 1 else None
    if node.target not in ELEMENTWISE:
        return None
    candidates = [n for n in node.all_input_nodes if _same_kind(n, state)]
    if state in candidates:
        return state
    chained = [n for n in candidates if n.target in UPDATES or n.target in ELEMENTWISE]
    return chained[0] if len(chained) == 1 else None


def _in_delegate(state: Node, value: Node, order: Mapping[Node, int]) -> list[Output]:
    """The delegate's result, if all that reads the state there is elementwise and leads to it."""
    source = value.args[0] if is_getitem(value) else None
    if not isinstance(source, Node) or not is_delegate_call(source):
        return []
    given = source.args[1:]
    if given.count(state) != 1 or not _read_last(state, source, order):
        return []
    owner = source.graph.owning_module
    assert owner is not None
    inner = lowered_of(source, owner).original_module
    operand = placeholders(inner)[inner.graph_signature.user_inputs[given.index(state)]]
    results: Any = output_node(inner.graph).args[0]
    index = value.args[1]
    assert isinstance(index, int)
    ways: set[Node] = set()
    pending: list[Node] = [results[index]]
    while pending:
        node = pending.pop()
        if node.target in ELEMENTWISE and _same_kind(node, state) and node not in ways:
            ways.add(node)
            pending += node.all_input_nodes
    return [(source, index)] if ways.issuperset(operand.users) else []


def _fresh(state: Node, value: Node, order: Mapping[Node, int]) -> list[Output]:
    source = value.args[0] if is_getitem(value) else value
    assert isinstance(source, Node)
    if not isinstance(source.target, torch._ops.OpOverload) and not is_delegate_call(source):
        return []
    if state in source.all_input_nodes or not _read_last(state, source, order):
        return []
    index = value.args[1] if is_getitem(value) else 0
    assert isinstance(index, int)
    return [(source, index)]


_FORMS = (_update, _in_delegate, _fresh)


def _read_last(value: Node, reader: Node, order: Mapping[Node, int]) -> bool:
    """Whether nobody reads the value after `reader`, which may read it itself."""
    return all(user is reader or order[user] < order[reader] for user in value.users)


def _uses(node: Node, operand: Node) -> int:
    found = 0

    def count(argument: Node) -> Node:
        nonlocal found
        found += argument is operand
        return argument

    torch.fx.node.map_arg((node.args, node.kwargs), count)
    return found


def _same_kind(value: object, state: Node) -> bool:
    """Whether the value has the state's type, its fixed shape and its order in memory."""
    if not isinstance(value, Node):
        return False
    new, old = value.meta.get("val"), state.meta.get("val")
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor):
        return False
    fixed = all(isinstance(size, int) for size in (*new.shape, *old.shape))
    return (
        fixed
        and new.shape == old.shape
        and new.dtype == old.dtype
        and dim_order(new) == tuple(range(new.dim()))
    )
