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


_SCALAR_FIRST: dict[Any, Any] = {
    aten.remainder.Scalar_Tensor: aten.remainder.Tensor,
    aten.bitwise_and.Scalar_Tensor: aten.bitwise_and.Tensor,
    aten.bitwise_or.Scalar_Tensor: aten.bitwise_or.Tensor,
    aten.bitwise_xor.Scalar_Tensor: aten.bitwise_xor.Tensor,
}


@rule(*_SCALAR_FIRST)
def _scalar_first(graph: Graph, node: Node) -> Node | None:
    """No runtime has an operator of a number and a tensor."""
    made = call(graph, _SCALAR_FIRST[node.target], node.args, node, node.meta["val"])
    tensors_of_numbers(made)
    return made


def tensors_of_numbers(node: Node, *, known: bool = True) -> bool:
    """Numbers where the operator takes tensors, such as sizes in `sub(x.shape[0], x)`, become
    tensors without dimensions. Returns whether it modified.

    known: numbers that are written in the program, too, which backends may take as they are, and
    which files have as tensors.

    Their type is that of the other operands, unless the number is of a higher kind: so the result
    has the type that it had with the number.
    """
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or not node.args:
        return False
    takes_tensor = [str(argument.type) == "Tensor" for argument in target._schema.arguments]
    operands = list(zip(node.args, takes_tensor, strict=False))
    numbers = [
        index
        for index, (operand, wanted) in enumerate(operands)
        if wanted and _is_number(operand) and (known or isinstance(operand, Node))
    ]
    if not numbers:
        return False
    tensors = [a.meta["val"] for a in node.all_input_nodes if not _is_number(a)]
    kind = max((t.dtype for t in tensors), key=_category, default=torch.bool)
    for index in numbers:
        number: Any = node.args[index]
        value = number.meta["val"] if isinstance(number, Node) else number
        own = _dtype_of_number(value)
        dtype = kind if _category(kind) >= _category(own) else own
        with node.graph.inserting_before(node):
            value = _scalar(node.graph, dtype)
            made = call(node.graph, aten.full.default, ([], number), node, value, dtype=dtype)
        node.update_arg(index, made)
    return True


def _is_number(operand: Any) -> bool:
    if isinstance(operand, Node):
        operand = operand.meta.get("val")
    return isinstance(operand, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _dtype_of_number(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.get_default_dtype()


def _category(dtype: torch.dtype) -> int:
    """Of torch's type promotion."""
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


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


def _scalar(graph: Graph, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A fake tensor of no dimensions."""
    values = (node.meta.get("val") for node in graph.nodes)
    tensor = next(value for value in values if isinstance(value, torch.Tensor))
    return tensor.new_empty((), dtype=dtype)
