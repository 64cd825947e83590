"""Numbers that are computed from sizes: `x * x.shape[-1] ** -0.5`.

Runtimes have sums, products, quotients and comparisons of numbers. Powers and roots are computed
as tensors of no dimensions, in float64, whose results are numbers again.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.registry import call, rule
from edgewise.edge.graph import replace

aten = torch.ops.aten

_LONGEST_PRODUCT = 16


@rule(operator.pow)
def _pow(graph: Graph, node: Node) -> Node | None:
    base, exponent = node.args
    if isinstance(exponent, int) and isinstance(node.meta["val"], torch.SymInt):
        if not 1 <= exponent <= _LONGEST_PRODUCT:
            return None
        return _fold(graph, operator.mul, [base] * exponent, node)
    if isinstance(exponent, Node):
        tensors = (_as_tensor(graph, base, node), _as_tensor(graph, exponent, node))
        return _as_number(graph, aten.pow.Tensor_Tensor, tensors, node)
    arguments = (_as_tensor(graph, base, node), float(exponent))  # type: ignore[arg-type]
    return _as_number(graph, aten.pow.Tensor_Scalar, arguments, node)


@rule(torch.sym_sqrt)
def _sqrt(graph: Graph, node: Node) -> Node | None:
    return _as_number(graph, aten.sqrt.default, (_as_tensor(graph, node.args[0], node),), node)


@rule(torch.sym_sum)
def _sum(graph: Graph, node: Node) -> Node | None:
    (items,) = node.args
    assert isinstance(items, (tuple, list))
    return _fold(graph, operator.add, list(items), node) if items else None


@rule(aten.size.default, aten.sym_size.default)
def _size(graph: Graph, node: Node) -> Node | None:
    """Each size of its own: `x.size()` computes a list."""
    (source,) = node.args
    sizes = node.meta["val"]
    for user in list(node.users):
        if user.target is not operator.getitem:
            return None
        dim = user.args[1]
        assert isinstance(dim, int)
        replace(user, call(graph, aten.sym_size.int, (source, dim % len(sizes)), node, sizes[dim]))
    return source if isinstance(source, Node) else None


def _fold(graph: Graph, op: Any, items: list[Any], like: Node) -> Node | None:
    made = items[0]
    for item in items[1:]:
        value = op(*(i.meta["val"] if isinstance(i, Node) else i for i in (made, item)))
        made = call(graph, op, (made, item), like, value)
    return made if isinstance(made, Node) else None


def _as_tensor(graph: Graph, number: Any, like: Node) -> Node:
    return call(graph, aten.full.default, ([], number), like, _scalar(graph), dtype=torch.float64)


def _as_number(graph: Graph, op: Any, args: tuple[Any, ...], like: Node) -> Node:
    tensor = call(graph, op, args, like, _scalar(graph))
    return call(graph, aten._local_scalar_dense.default, (tensor,), like, like.meta["val"])


def _scalar(graph: Graph) -> torch.Tensor:
    """A fake tensor of no dimensions."""
    values = (node.meta.get("val") for node in graph.nodes)
    tensor = next(value for value in values if isinstance(value, torch.Tensor))
    return tensor.new_empty((), dtype=torch.float64)
