"""Both branches and a choice instead of `torch.cond`, for what quantizes and compiles one
graph only: torchao observes no branches, and a delegate is no branch's."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.bodies import COND, body_of, control_flow
from edgewise.edge.graph import inherit_meta, is_getitem
from edgewise.quantize.steps import constant, step

aten = torch.ops.aten


def choose_of_branches(model: GraphModule) -> bool:
    """Computes both branches of each `torch.cond` and chooses of their results, in place; whether
    it did.

    What computes is the same: branches have no effects but their results. A call stays if its
    predicate is no tensor, or if a branch has a loop or a result that is no tensor of static sizes.
    """
    changed = False
    while any(_replaced(model, node) for node in model.graph.nodes if node.target is COND):
        changed = True  # those within branches are now the graph's
    if changed:
        model.graph.eliminate_dead_code()
        model.delete_all_unused_submodules()
        model.recompile()
    return changed


def _replaced(model: GraphModule, node: Node) -> bool:
    flow = control_flow(node)
    predicate = node.args[0]
    if flow is None or not _is_tensor(predicate):
        return False
    branches = [body_of(model, attr) for attr in flow.bodies]
    users = list(node.users)
    if not all(map(_is_plain, branches)) or any(not is_getitem(user) for user in users):
        return False
    with model.graph.inserting_before(node):
        results = [_inlined(model, node, branch, flow.captured) for branch in branches]
        for user in users:
            index: Any = user.args[1]
            yes, no = (found[index] for found in results)
            made = yes if yes is no else step(user, aten.where.self, predicate, yes, no)
            user.replace_all_uses_with(made)
    for user in users:
        model.graph.erase_node(user)
    model.graph.erase_node(node)
    return True


def _is_tensor(value: Any) -> bool:
    held = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(held, torch.Tensor) and all(isinstance(s, int) for s in held.shape)


def _is_plain(branch: GraphModule) -> bool:
    inner = [n for n in branch.graph.nodes if n.op == "call_function"]
    flows = [n for n in inner if isinstance(n.target, torch._ops.HigherOrderOperator)]
    results: Any = branch.graph.output_node().args[0]
    return all(n.target is COND for n in flows) and all(map(_is_tensor, results))


def _inlined(
    model: GraphModule, node: Node, branch: GraphModule, captured: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The branch's results, computed before the node."""
    given = iter(captured)
    env: dict[Node, Any] = {}
    for old in branch.graph.nodes:
        if old.op == "placeholder":
            env[old] = next(given)
        elif old.op == "get_attr":
            env[old] = _held(model, node, branch, old)
        elif old.op == "output":
            return tuple(torch.fx.node.map_arg(old.args[0], env.__getitem__))
        else:
            env[old] = model.graph.node_copy(old, env.__getitem__)
            inherit_meta(env[old], node)
    raise AssertionError("a graph without an output")


def _held(model: GraphModule, node: Node, branch: GraphModule, old: Node) -> Node:
    """A constant of the branch, or the graph of a branch within it, as the model's own."""
    value = attrgetter(str(old.target))(branch)
    if isinstance(value, torch.Tensor):
        return constant(model, node, value)
    number = 0
    while hasattr(model, f"branch_{number}"):
        number += 1
    model.add_submodule(f"branch_{number}", value)
    return model.graph.get_attr(f"branch_{number}")


__all__ = ["choose_of_branches"]
