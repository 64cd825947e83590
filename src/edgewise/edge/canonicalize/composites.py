"""Functions that the runtime has no kernel of, by others that it has."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.registry import call, first_operand, rule
from edgewise.edge.graph import arguments, fake, is_static

aten = torch.ops.aten


@rule(aten.linalg_vector_norm.default)
def _vector_norm(graph: Graph, node: Node) -> Node | None:
    """A sum of powers and its root; of order 1 a sum, of infinite order a maximum."""
    named = arguments(node)
    source, result = first_operand(node), fake(node)
    before, order = fake(source), float(named["ord"])
    if not before.is_floating_point() or result.dtype != before.dtype or order == 0:
        return None
    dims: Any = named["dim"]
    dims = list(range(before.dim())) if dims is None or not before.dim() else list(dims)
    keep = named["keepdim"]
    size = call(graph, aten.abs.default, (source,), node, before)
    if math.isinf(order):
        extreme = aten.amax if order > 0 else aten.amin
        return call(graph, extreme.default, (size, dims, keep), node, result)
    if order != 1:
        size = call(graph, aten.pow.Tensor_Scalar, (size, order), node, before)
    total = call(graph, aten.sum.dim_IntList, (size, dims, keep), node, result)
    if order == 1:
        return total
    return call(graph, aten.pow.Tensor_Scalar, (total, 1 / order), node, result)


@rule(aten.hypot.default)
def _hypot(graph: Graph, node: Node) -> Node | None:
    """`a * sqrt(1 + (b / a)^2)` of the larger size a and the smaller b, which does not overflow."""
    result = fake(node)

    def size(x: Any) -> Node:
        if fake(x).dtype != result.dtype:
            cast = fake(x).to(result.dtype)
            x = call(graph, aten._to_copy.default, (x,), node, cast, dtype=result.dtype)
        return call(graph, aten.abs.default, (x,), node, fake(x))

    first, second = map(size, node.args)
    larger = call(graph, aten.maximum.default, (first, second), node, result)
    smaller = call(graph, aten.minimum.default, (first, second), node, result)
    # Both may be 0.
    least = torch.finfo(result.dtype).tiny
    divisor = call(graph, aten.clamp.default, (larger, least), node, result)
    ratio = call(graph, aten.div.Tensor, (smaller, divisor), node, result)
    square = call(graph, aten.mul.Tensor, (ratio, ratio), node, result)
    root = call(
        graph,
        aten.sqrt.default,
        (call(graph, aten.add.Scalar, (square, 1), node, result),),
        node,
        result,
    )
    return call(graph, aten.mul.Tensor, (larger, root), node, result)


@rule(aten.exp2.default)
def _exp2(graph: Graph, node: Node) -> Node | None:
    """A power. The exponential of x ln 2 would be off by the rounding of that product."""
    source = first_operand(node)
    if not fake(source).is_floating_point():
        return None
    return call(graph, aten.pow.Scalar, (2, source), node, fake(node))


@rule(aten.softshrink.default)
def _softshrink(graph: Graph, node: Node) -> Node | None:
    """x - clamp(x, -lambd, lambd); in float32, since 16 bits may not hold lambd."""
    named = arguments(node)
    source, result, bound = first_operand(node), fake(node), float(named["lambd"])
    if not result.is_floating_point() or bound < 0:
        return None
    is_half = result.dtype in (torch.float16, torch.bfloat16)
    x, value = source, result
    if is_half:
        value = result.float()
        x = call(graph, aten._to_copy.default, (source,), node, value, dtype=torch.float32)
    within = call(graph, aten.clamp.default, (x, -bound, bound), node, value)
    rest = call(graph, aten.sub.Tensor, (x, within), node, value)
    if not is_half:
        return rest
    return call(graph, aten._to_copy.default, (rest,), node, result, dtype=result.dtype)


@rule(torch.ops.prims.scalar_tensor.default)
def _scalar_tensor(graph: Graph, node: Node) -> Node | None:
    """What decompositions make of a number; its kernel has ATen's name."""
    named = arguments(node)
    number, result = named["s"], fake(node)
    return call(graph, aten.scalar_tensor.default, (number,), node, result, dtype=result.dtype)


@rule(aten.mv.default)
def _mv(graph: Graph, node: Node) -> Node | None:
    """A product with a matrix of one column."""
    matrix, vector = node.args
    assert isinstance(matrix, Node) and isinstance(vector, Node)
    result = fake(node)
    column = call(graph, aten.unsqueeze_copy.default, (vector, 1), node, fake(vector)[:, None])
    product = call(graph, aten.mm.default, (matrix, column), node, result[:, None])
    return call(graph, aten.squeeze_copy.dims, (product, [1]), node, result)


@rule(aten.roll.default)
def _roll(graph: Graph, node: Node) -> Node | None:
    """Without dimensions it is of all elements in a row."""
    named = arguments(node)
    source, result = first_operand(node), fake(node)
    if result.dim() == 0:
        return source
    if named["dims"] or not is_static(result.shape):
        return None
    line = result.new_empty([result.numel()])
    flat = call(graph, aten.view_copy.default, (source, [result.numel()]), node, line)
    rolled = call(graph, aten.roll.default, (flat, named["shifts"], [0]), node, line)
    return call(graph, aten.view_copy.default, (rolled, list(result.shape)), node, result)


@rule(aten.sum.dim_IntList)
def _sum(graph: Graph, node: Node) -> Node | None:
    """Of a tensor without dimensions over all: ExecuTorch ends the process if one is named."""
    named = arguments(node)
    if fake(first_operand(node)).dim() or not named["dim"]:
        return None
    args: tuple[Any, ...] = (first_operand(node), [], named["keepdim"])
    return call(graph, node.target, args, node, fake(node), **node.kwargs)


@rule(aten.cumsum.default, aten.cumprod.default)
def _of_one(graph: Graph, node: Node) -> Node | None:
    """Of a tensor without dimensions, which ExecuTorch refuses: what it is."""
    source, result = first_operand(node), fake(node)
    if result.dim():
        return None
    if fake(source).dtype == result.dtype:
        return source
    return call(graph, aten._to_copy.default, (source,), node, result, dtype=result.dtype)


@rule(aten.hardswish.default, aten.hardsigmoid.default)
def _hard(graph: Graph, node: Node) -> Node | None:
    """clamp(x + 3, 0, 6) / 6, times x; the quotient as a product, which is much faster."""
    source, result = first_operand(node), fake(node)
    if not result.is_floating_point():
        return None
    shifted = call(graph, aten.add.Scalar, (source, 3), node, result)
    within = call(graph, aten.clamp.default, (shifted, 0, 6), node, result)
    gate = call(graph, aten.mul.Scalar, (within, 1 / 6), node, result)
    if node.target is aten.hardsigmoid.default:
        return gate
    return call(graph, aten.mul.Tensor, (source, gate), node, result)


@rule(aten.instance_norm.default)
def _instance_norm(graph: Graph, node: Node) -> Node | None:
    """A group normalisation, each channel a group; by running statistics that of a batch."""
    named = arguments(node)
    source, result = first_operand(node), fake(node)
    shape = result.shape
    if not named["use_input_stats"]:
        keys = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
        none = result.new_empty([0])
        value = (result, none, none)
        batch = aten._native_batch_norm_legit_no_training.default
        norm = call(graph, batch, [named[key] for key in keys], node, value)
        return call(graph, operator.getitem, (norm, 0), node, result)
    if named["running_mean"] is not None:
        return None
    if not is_static(shape) or len(shape) < 3:
        return None
    n, channels, *rest = shape
    statistics = result.new_empty([n, channels])
    sizes = (n, channels, math.prod(rest), channels, named["eps"])
    args = (source, named["weight"], named["bias"], *sizes)
    value = (result, statistics, statistics)
    norm = call(graph, aten.native_group_norm.default, args, node, value)
    return call(graph, operator.getitem, (norm, 0), node, result)


@rule(aten.cat.default)
def _cat(graph: Graph, node: Node) -> Node | None:
    """Nothing is joined to what has no elements; one tensor joined to nothing is itself."""
    tensors = arguments(node)["tensors"]
    value = fake(node)
    whole = [t for t in tensors if not (is_static(fake(t).shape) and fake(t).numel() == 0)]
    if not whole or any(fake(t).dtype != value.dtype for t in whole):
        return None
    if len(whole) == 1:
        found: Node = whole[0]
        return found
    if len(whole) == len(tensors):
        return None
    return call(graph, aten.cat.default, (whole, arguments(node)["dim"]), node, value)
