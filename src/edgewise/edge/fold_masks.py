"""What models compute about their inputs' positions, as far as it is known ahead of time.

Runs on the operators of the export, before any is decomposed: a mask that depends on no
input becomes a constant, and a constant part of one that does is taken out:

| call                                                        | becomes             |
|-------------------------------------------------------------|---------------------|
| anything whose operands are all constants                   | a constant          |
| `x and c`, c all true; `x or c`, c all false                | x, expanded         |
| `x[c, ...]`, the indices reading every element once, in order | a view of x        |
| `gather(c, ...)`, `c[...]`, c of one value throughout       | a constant          |
| `x + 0`, x of integers, or only softmax reads it            | x                   |
| attention with a mask that is all true, or all zeros        | without a mask      |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from edgewise.edge.canonicalize import is_nothing
from edgewise.edge.fold_constants import GROWTH_LIMIT, fold_constants
from edgewise.edge.graph import (
    arguments,
    call,
    calls,
    erase_dead,
    fake,
    is_static,
    replace,
    same_shape,
)
from edgewise.edge.program import Constants, drop_unused_constants

aten = torch.ops.aten


def fold_masks(program: ExportedProgram) -> bool:
    """Requires a functional graph; views are allowed. Returns whether it modified."""
    graph = program.graph
    changed = False
    for node in calls(graph):
        if is_nothing(node):
            graph.erase_node(node)
            changed = True
    changed |= fold_constants(program)
    constants = Constants(program)
    found = False
    for node in calls(graph):
        known = _RULES.get(node.target)
        if known is None or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        with graph.inserting_before(node):
            new = known(graph, node, constants)
        if new is not None:
            replace(node, new)
            found = True
    if found:
        erase_dead(graph)
        fold_constants(program)
        drop_unused_constants(program)
    return changed or found


_Rule = Callable[[Graph, Node, Constants], "Node | None"]


def _logical(neutral: bool) -> _Rule:
    def rule(graph: Graph, node: Node, constants: Constants) -> Node | None:
        if fake(node).dtype != torch.bool:
            return None
        for known, other in (node.args[:2], node.args[1::-1]):
            if not (isinstance(other, Node) and isinstance(known, Node) and known in constants):
                continue
            if not is_static(fake(node).shape) or fake(other).dtype != torch.bool:
                continue
            if bool((constants.tensor(known) == neutral).all()):
                return _expanded(graph, other, node)
        return None

    return rule


def _expanded(graph: Graph, source: Node, like: Node) -> Node:
    shape = list(fake(like).shape)
    if list(fake(source).shape) == shape:
        return source
    return call(graph, aten.expand.default, (source, shape), like, fake(like))


def _index(graph: Graph, node: Node, constants: Constants) -> Node | None:
    source, indices = node.args
    assert isinstance(source, Node) and isinstance(indices, Sequence)
    if not (is_static(fake(source).shape) and is_static(fake(node).shape)):
        return None
    if _uniform(source, constants):
        return _filled(graph, node, constants.tensor(source))
    count = fake(source).numel()
    if count != fake(node).numel() or not all(i is None or i in constants for i in indices):
        return None
    positions = torch.arange(count).reshape(fake(source).shape)
    known = (constants.tensor(i) if isinstance(i, Node) else slice(None) for i in indices)
    read = positions[tuple(known)]
    if not torch.equal(read.reshape(-1), positions.reshape(-1)):
        return None
    return call(graph, aten.reshape.default, (source, list(read.shape)), node, fake(node))


def _gather(graph: Graph, node: Node, constants: Constants) -> Node | None:
    source = node.args[0]
    if not _uniform(source, constants) or not is_static(fake(node).shape):
        return None
    assert isinstance(source, Node)
    return _filled(graph, node, constants.tensor(source))


def _uniform(node: Any, constants: Constants) -> bool:
    if node not in constants:
        return False
    value = constants.tensor(node)
    # Only small ones are looked at: a weight is not uniform.
    if not 0 < value.numel() <= 1 << 16 or value.dtype.is_floating_point:
        return False
    return bool((value == value.reshape(-1)[0]).all())


def _filled(graph: Graph, node: Node, value: torch.Tensor) -> Node | None:
    result = fake(node)
    if result.numel() * result.element_size() > GROWTH_LIMIT:
        return None
    fill = value.reshape(-1)[0].item()
    args = (list(result.shape), fill)
    return call(graph, aten.full.default, args, node, result, dtype=result.dtype)


def _add_nothing(graph: Graph, node: Node, constants: Constants) -> Node | None:
    named = arguments(node)
    source, other = named["self"], named["other"]
    if isinstance(other, Node) and other in constants and fake(other).dim() == 0:
        other = constants.tensor(other).item()
    if not isinstance(source, Node):
        return None
    before, after = fake(source), fake(node)
    if before.dtype != after.dtype or not same_shape(before.shape, after.shape):
        return None
    # A sum of floats has no negative zeros, which softmax does not tell from others.
    if after.dtype.is_floating_point and not all(user.target in _SOFTMAX for user in node.users):
        return None
    if isinstance(other, Node):
        return source if other in constants and not constants.tensor(other).any() else None
    return source if other == 0 else None


def _attention(graph: Graph, node: Node, constants: Constants) -> Node | None:
    mask = arguments(node)["attn_mask"]
    if not isinstance(mask, Node) or mask not in constants:
        return None
    value = constants.tensor(mask)
    if not (value.all() if value.dtype == torch.bool else not value.any()):
        return None
    kwargs = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
    args = [None if index == _MASK else value for index, value in enumerate(node.args)]
    return call(graph, node.target, tuple(args), node, fake(node), **kwargs)


_MASK = 3
"""Which argument of attention."""
_SOFTMAX = (aten.softmax.int, aten._softmax.default)


_RULES: dict[Any, _Rule] = {
    aten.logical_and.default: _logical(True),
    aten.bitwise_and.Tensor: _logical(True),
    aten.__and__.Tensor: _logical(True),
    aten.logical_or.default: _logical(False),
    aten.bitwise_or.Tensor: _logical(False),
    aten.__or__.Tensor: _logical(False),
    aten.index.Tensor: _index,
    aten.gather.default: _gather,
    aten.add.Tensor: _add_nothing,
    aten.sub.Tensor: _add_nothing,
    aten.scaled_dot_product_attention.default: _attention,
}
