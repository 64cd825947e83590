"""Composite operators as smaller ones, each of which can be quantized.

For quantizers' `transform_for_annotation`: recurrent layers become a linear layer and gates for
each step, `einsum` a product of matrices. Torch's own decompositions say how, or a function of
tensors (`edgewise.quantize.composites` has some).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import Parameter
from torch.utils import _pytree as pytree

from edgewise.edge.functionalize import functionalize_graph
from edgewise.edge.graph import inherit_meta
from edgewise.edge.normalize import without_onednn
from edgewise.quantize.steps import attribute, constant

aten = torch.ops.aten

Decomposition = Callable[..., Any]
"""Takes the operator's arguments. Gives its result, with None for those of several tensors that it
does not compute, or NotImplemented, and the call stays."""


def decompose(
    model: GraphModule,
    targets: Mapping[Any, Decomposition | None],
    wanted: Callable[[Node], bool] = lambda node: True,
) -> bool:
    """Replaces calls of `targets` that are `wanted` by smaller operators, in place;
    whether it did.

    targets: None stands for torch's decomposition. What comes out is decomposed again where it is
    one of them. What is computed from constants alone becomes a constant; of parameters, a
    parameter. Calls whose sizes are symbolic stay: the number of steps of a recurrent layer would
    be the example's.
    """
    changed = False
    pending = [
        n
        for n in model.graph.nodes
        if n.op == "call_function" and n.target in targets and wanted(n)
    ]
    while pending:
        node = pending.pop()
        made = _inline(model, node, targets[node.target])
        changed |= made is not None
        pending += [n for n in made or [] if n.target in targets]
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


class _Declined(Exception):
    """The decomposition does not do this call."""


def _inline(model: GraphModule, node: Node, given: Decomposition | None) -> list[Node] | None:
    """The nodes that now stand for the call; None if it stays."""
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    target: Any = node.target
    table = {} if given else {target: _decomposition(target)}
    compute = given or target
    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    positions = [i for i, a in enumerate(flat) if isinstance(a, Node)]
    values = [flat[i].meta.get("val") for i in positions]
    if not all(isinstance(v, torch.Tensor) and _is_static(v) for v in values):
        return None

    def run(*tensors: Any) -> Any:
        filled = list(flat)
        for position, value in zip(positions, tensors, strict=True):
            filled[position] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        result = compute(*args, **kwargs)
        if result is NotImplemented:
            raise _Declined
        return result

    mode = detect_fake_mode(values)
    if mode is None:
        return None
    # Before dispatch, so that what comes out is what modules call: linear layers stay whole.
    try:
        with torch.no_grad(), mode, without_onednn():
            traced = make_fx(run, decomposition_table=table, pre_dispatch=True)(*values)
    except _Declined:
        return None
    inner = [n for n in traced.graph.nodes if n.op == "call_function"]
    if any(n.op == "get_attr" for n in traced.graph.nodes) or any(
        n.target is target for n in inner
    ):
        return None
    # What is written in place is no constant: the next call would find what this one left.
    is_functional = functionalize_graph(traced.graph) is not None
    return _splice(model, node, traced, [flat[i] for i in positions], fold=is_functional)


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _decomposition(target: Any) -> Any:
    from torch._decomp import decomposition_table

    return decomposition_table.get(target, target.decompose)


def _splice(
    model: GraphModule, node: Node, traced: GraphModule, sources: list[Node], *, fold: bool
) -> list[Node] | None:
    results: Any = traced.graph.output_node().args[0]
    if isinstance(results, (list, tuple)):
        users = {user: results[_index(user)] for user in node.users}
        if any(result is None and user.users for user, result in users.items()):
            return None
    else:
        users = {node: results}
    known = _constants(model, traced, sources) if fold else {}
    inside = [n for n in traced.graph.nodes if n.op == "placeholder"]
    env: dict[Node, Any] = dict(zip(inside, sources, strict=True))
    made: list[Node] = []

    def outside(inner: Node) -> Any:
        """The node of the model that stands for one of the traced."""
        if inner not in env:
            env[inner] = constant(model, node, known[inner])
        return env[inner]

    with model.graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op != "call_function" or inner in known:
                continue
            if inner.users and all(user in known for user in inner.users):
                continue  # several results, each of which is known
            if _changes_nothing(inner):
                env[inner] = outside(inner.all_input_nodes[0])
                continue
            env[inner] = copy = model.graph.node_copy(inner, outside)
            for key in ("stack_trace", "nn_module_stack", "seq_nr", "original_aten"):
                copy.meta.pop(key, None)
            inherit_meta(copy, node)
            made.append(copy)
        for user, result in users.items():
            if user.users:
                user.replace_all_uses_with(outside(result))
    for user in users:
        model.graph.erase_node(user)
    if node not in users:
        model.graph.erase_node(node)
    return made


def _constants(
    model: GraphModule, traced: GraphModule, sources: list[Node]
) -> dict[Node, torch.Tensor]:
    """What traced nodes compute from constants alone; tensors of several results by themselves."""
    known: dict[Node, Any] = {}
    outside = iter(sources)
    for inner in traced.graph.nodes:
        if inner.op == "placeholder":
            source = next(outside)
            if source.op == "get_attr":
                known[inner] = attribute(model, str(source.target))
        elif inner.op == "call_function" and all(n in known for n in inner.all_input_nodes):
            args, kwargs = torch.fx.node.map_arg((inner.args, inner.kwargs), known.__getitem__)
            with torch.no_grad():
                value = inner.target(*args, **kwargs)
            if isinstance(value, (tuple, list)):
                known[inner] = value
            elif isinstance(value, torch.Tensor):
                learned = any(isinstance(known[n], Parameter) for n in inner.all_input_nodes)
                keep = learned and value.is_floating_point()
                known[inner] = Parameter(value) if keep else value
    return {
        inner: value
        for inner, value in known.items()
        if inner.op == "call_function" and isinstance(value, torch.Tensor)
    }


def _index(user: Node) -> int:
    """Which of several results it takes."""
    assert user.target is operator.getitem
    index = user.args[1]
    assert isinstance(index, int)
    return index


def _changes_nothing(node: Node) -> bool:
    """A conversion to the type that its operand has."""
    before = node.args[0] if node.args else None
    if node.target is not aten.to.dtype or not isinstance(before, Node):
        return False
    return bool(node.meta["val"].dtype == before.meta["val"].dtype)


__all__ = ["Decomposition", "decompose"]
