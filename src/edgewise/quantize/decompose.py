"""Composite operators as torch's smaller ones, each of which can be quantized.

For quantizers' `transform_for_annotation`: recurrent layers become a linear layer and gates for
each step, `einsum` a product of matrices. Torch's own decompositions say how.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from edgewise.edge.graph import inherit_meta

aten = torch.ops.aten

RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)


def decompose(model: GraphModule, targets: Collection[Any]) -> bool:
    """Puts smaller operators in the place of calls of `targets`, in place; whether it did.

    What comes out is decomposed again where it is one of the targets. Calls whose sizes are
    symbolic stay: the number of steps of a recurrent layer would be the example's.
    """
    changed = False
    pending = [n for n in model.graph.nodes if n.op == "call_function" and n.target in targets]
    while pending:
        node = pending.pop()
        made = _inline(node)
        changed |= made is not None
        pending += [n for n in made or [] if n.target in targets]
    if changed:
        model.graph.eliminate_dead_code()
        model.recompile()
    return changed


def _inline(node: Node) -> list[Node] | None:
    """The nodes that now stand for the call; None if it stays."""
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    sources = [a for a in flat if isinstance(a, Node)]
    values = [a.meta.get("val") for a in sources]
    if not all(isinstance(v, torch.Tensor) and _is_static(v) for v in values):
        return None
    places = [i for i, a in enumerate(flat) if isinstance(a, Node)]
    target: Any = node.target

    def run(*given: Any) -> Any:
        filled = list(flat)
        for place, value in zip(places, given, strict=True):
            filled[place] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return target(*args, **kwargs)

    mode = detect_fake_mode(values)
    if mode is None:
        return None
    table = {target: _decomposition(target)}
    # Before dispatch, so that what comes out is what modules call: linear layers stay whole.
    with torch.no_grad(), mode, torch.backends.mkldnn.flags(enabled=False):
        traced = make_fx(run, decomposition_table=table, pre_dispatch=True)(*values)
    inner = [n for n in traced.graph.nodes if n.op == "call_function"]
    if any(n.op == "get_attr" for n in traced.graph.nodes) or any(
        n.target is target for n in inner
    ):
        return None
    return _splice(node, traced, sources)


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _decomposition(target: Any) -> Any:
    from torch._decomp import decomposition_table

    return decomposition_table.get(target, target.decompose)


def _splice(node: Node, traced: GraphModule, sources: list[Node]) -> list[Node]:
    graph = node.graph
    env: dict[Node, Any] = {}
    arguments = iter(sources)
    made: list[Node] = []
    result: Any = None
    with graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "placeholder":
                env[inner] = next(arguments)
            elif inner.op == "output":
                result = torch.fx.node.map_arg(inner.args[0], lambda n: env[n])
            elif _changes_nothing(inner):
                env[inner] = env[inner.args[0]]
            else:
                env[inner] = copy = graph.node_copy(inner, lambda n: env[n])
                for key in ("stack_trace", "nn_module_stack", "seq_nr", "original_aten"):
                    copy.meta.pop(key, None)
                inherit_meta(copy, node)
                made.append(copy)
    if isinstance(result, (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem
            index = user.args[1]
            assert isinstance(index, int)
            user.replace_all_uses_with(result[index])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    graph.erase_node(node)
    return made


def _changes_nothing(node: Node) -> bool:
    """A conversion to the type that its operand has."""
    before = node.args[0] if node.args else None
    if node.target is not aten.to.dtype or not isinstance(before, Node):
        return False
    return bool(node.meta["val"].dtype == before.meta["val"].dtype)
