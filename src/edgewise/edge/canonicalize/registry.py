"""The table of rules, and what rules are made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.graph import call as add_call
from edgewise.edge.graph import replace, same_shape
from edgewise.edge.layout import settle

aten = torch.ops.aten
Rule = Callable[[Graph, Node], "Node | None"]
RULES: dict[Any, Rule] = {}

_NOTHING = (
    aten._assert_tensor_metadata.default,
    aten._assert_scalar.default,
    aten._assert_async.msg,
    aten._linalg_check_errors.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)


def call(graph: Graph, op: Any, args: Sequence[Any], like: Node, val: Any, **kwargs: Any) -> Node:
    node = add_call(graph, op, args, like, val, **kwargs)
    settle(node)
    return node


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for op in ops:
            RULES[op] = function
        return function

    return register


def apply_rule(graph: Graph, node: Node) -> bool:
    """Replaces the node by the rule's result; False if the rule does not apply."""
    with graph.inserting_before(node):
        new = RULES[node.target](graph, node)
    if new is None:
        return False
    replace(node, new)
    return True


def is_nothing(node: Node) -> bool:
    """Whether the node only asserts something that export has settled."""
    return node.target in _NOTHING and not node.users


def sizes_as_arguments(shape: Sequence[Any]) -> list[int] | None:
    """The shape as a view takes it: -1 for the one symbolic size; None if there are more."""
    open_sizes = sum(1 for size in shape if not isinstance(size, int))
    if open_sizes > 1 or (open_sizes and 0 in [s for s in shape if isinstance(s, int)]):
        return None
    return [size if isinstance(size, int) else -1 for size in shape]


def expansion_as_arguments(before: Sequence[Any], after: Sequence[Any]) -> list[int] | None:
    """The shape as an expansion takes it: -1 for a symbolic size that stays as it is; None if a
    symbolic size is new."""
    kept = [None] * (len(after) - len(before)) + list(before)
    for old, new in zip(kept, after, strict=True):
        if not isinstance(new, int) and (old is None or not same_shape((old,), (new,))):
            return None
    return [size if isinstance(size, int) else -1 for size in after]


def first_operand(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source
