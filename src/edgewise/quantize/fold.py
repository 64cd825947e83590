"""What a model computes from nothing (positions by `arange`, masks, filters of `ones`) as
constants, so that quantizers find constants there and observers need not watch them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from edgewise.edge.fold_constants import GROWTH_LIMIT, may_fold
from edgewise.edge.graph import arguments, call, replace
from edgewise.quantize.patterns import made_of_weights
from edgewise.quantize.steps import attribute, constant

aten = torch.ops.aten


def fold_constants(model: GraphModule) -> bool:
    """Buffers instead of calls that nothing but such calls, numbers that are written out, and
    buffers that nobody writes leads to; in place; whether there were any.

    Parameters are left alone: they may be trained. So are results much larger than what they are
    made of, which the device can compute, and random ones.
    """
    _fill(model)
    known: dict[Node, Any] = {}
    written = written_values(model)
    for node in model.graph.nodes:
        if node.op != "call_function" or node in written or not may_fold(node):
            continue
        sources = node.all_input_nodes
        if all(n in known or _is_buffer(model, n, written) for n in sources):
            value = _evaluate(model, node, known)
            if value is not None:
                known[node] = value
    made: set[Node] = set()  # what is made of buffers alone is found anyway
    for node in known:
        sources = node.all_input_nodes
        if not sources or node.target is _WRITTEN_OUT or not made.isdisjoint(sources):
            made.add(node)
    changed = False
    for node in made:
        value = known[node]
        if isinstance(value, torch.Tensor) and any(user not in made for user in node.users):
            with model.graph.inserting_before(node):
                new = constant(model, node, value.contiguous())
            node.replace_all_uses_with(new, delete_user_cb=lambda user: user not in made)
            changed = True
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


def _fill(model: GraphModule) -> None:
    """Tensors of one number, instead of those that take their size or type from others."""
    for node in [n for n in model.graph.nodes if n.target in _FILLED or n.target is _TYPE_AS]:
        value = node.meta["val"]
        if not all(isinstance(size, int) for size in value.shape):
            continue
        with model.graph.inserting_before(node):
            if node.target is _TYPE_AS:
                made = call(model.graph, aten.to.dtype, (node.args[0], value.dtype), node, value)
            else:
                number = _FILLED[node.target]
                filled = arguments(node)["fill_value"] if number is None else number
                args = list(value.shape), filled
                made = call(model.graph, aten.full.default, args, node, value, dtype=value.dtype)
        replace(node, made)


_TYPE_AS = aten.type_as.default
_FILLED = {
    aten.ones_like.default: 1,
    aten.new_ones.default: 1,
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.full_like.default: None,
    aten.new_full.default: None,
}


def drop_notes(model: GraphModule) -> None:
    """Takes out what export notes and computes nothing, since quantizers look at what reads a node:
    checks of types at each conversion, `detach_` of what `torch.tensor` makes in a `forward`."""
    notes = [n for n in model.graph.nodes if n.target in (_CHECK, _DETACH)]
    for node in notes:
        if node.users:
            node.replace_all_uses_with(node.args[0])
        model.graph.erase_node(node)
    if notes:
        model.recompile()


def drop_dropouts_of_weights(model: GraphModule) -> None:
    """Takes out dropouts that drop nothing, of what weights alone lead to: `convert_pt2e` folds
    what is computed of these, but takes each dropout for a random one."""
    dropouts = {n for n in model.graph.nodes if n.target is _DROPOUT and n.args[2] is False}
    while dropouts and (found := _read_by(made_of_weights(model.graph)) & dropouts):
        for node in found:
            replace(node, node.all_input_nodes[0])
        dropouts -= found
        model.recompile()


def _read_by(nodes: Iterable[Node]) -> set[Node]:
    return {user for node in nodes for user in node.users}


_DROPOUT = aten.dropout.default
_WRITTEN_OUT = aten.lift_fresh_copy.default
_CHECK = aten._assert_tensor_metadata.default
_DETACH = aten.detach_.default


def known_value(model: GraphModule, node: Node) -> torch.Tensor | None:
    """What a node holds that buffers alone lead to, which nobody writes; None of others."""
    written = written_values(model)
    known: dict[Node, Any] = {}
    pending = [node]
    while pending:
        at = pending[-1]
        missing = [n for n in at.all_input_nodes if n not in known]
        if missing and may_fold(at):
            pending += missing
            continue
        if _is_buffer(model, at, written):
            known[at] = attribute(model, str(at.target))
        elif at.op == "call_function" and may_fold(at) and at not in written:
            known[at] = _evaluate(model, at, known)
        if known.get(at) is None:
            return None
        pending.pop()
    value = known[node]
    return value if isinstance(value, torch.Tensor) else None


def _is_buffer(model: GraphModule, node: Node, written: set[Node]) -> bool:
    """Whether the node is a buffer that nobody writes."""
    if node.op != "get_attr" or node in written:
        return False
    return not isinstance(attribute(model, str(node.target)), torch.nn.Parameter)


def written_values(model: GraphModule) -> set[Node]:
    """What in-place calls write, and what that is a view of."""
    pending = [n.all_input_nodes[0] for n in model.graph.nodes if _writes(n)]
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        if node.op == "get_attr":
            same = [n for n in model.graph.nodes if n.op == "get_attr"]
            pending += [n for n in same if n.target == node.target]
        elif _may_be_view(node):
            pending += node.all_input_nodes
    return found


def _may_be_view(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return any(r.alias_info is not None for r in target._schema.returns)


def _writes(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and target._schema.is_mutable
        and bool(node.all_input_nodes)
    )


def _evaluate(model: GraphModule, node: Node, known: dict[Node, Any]) -> Any:
    """None if it is too large."""

    def operand(source: Node) -> Any:
        return known[source] if source in known else attribute(model, str(source.target))

    operands = [operand(n) for n in node.all_input_nodes]
    size = sum(t.nbytes for t in operands if isinstance(t, torch.Tensor))
    value = node.meta["val"]
    results = value if isinstance(value, (tuple, list)) else [value]
    if sum(v.numel() * v.element_size() for v in results) > size + GROWTH_LIMIT:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), operand)
    # Constants before it may lie otherwise than in the trace.
    target = aten.reshape.default if node.target is aten.view.default else node.target
    with torch.no_grad():
        return target(*args, **kwargs)  # type: ignore[operator]


__all__ = [
    "drop_dropouts_of_weights",
    "drop_notes",
    "fold_constants",
    "known_value",
    "written_values",
]
