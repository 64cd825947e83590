"""One operator for each computation."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.canonicalize.numbers import tensors_of_numbers
from edgewise.edge.canonicalize.registry import (
    RULES,
    Rule,
    call,
    first_operand,
    rule,
    sizes_as_arguments,
)
from edgewise.edge.graph import arguments, fake, is_static, same_shape
from edgewise.edge.layout import dim_order

aten = torch.ops.aten


@rule(
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
)
def _conv(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    rank = fake(node).dim() - 2
    if fake(first_operand(node)).dim() != fake(named["weight"]).dim():
        return None  # without batch dimension
    stride, dilation = _spread(named["stride"], rank), _spread(named["dilation"], rank)
    padding = named["padding"]
    if isinstance(padding, str):
        kernel = [int(k) for k in fake(named["weight"]).shape[2:]]
        total = [
            d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)
        ]
        if any(t % 2 for t in total):
            return None  # asymmetric: torch pads first
        padding = [t // 2 for t in total]
    args = (
        named["input"],
        named["weight"],
        named["bias"],
        stride,
        _spread(padding, rank),
        dilation,
        False,
        [0] * rank,
        named["groups"],
    )
    return call(graph, aten.convolution.default, args, node, fake(node))


@rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _conv_transpose(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    rank = fake(node).dim() - 2
    if fake(first_operand(node)).dim() != fake(named["weight"]).dim():
        return None
    args = (
        named["input"],
        named["weight"],
        named["bias"],
        _spread(named["stride"], rank),
        _spread(named["padding"], rank),
        _spread(named["dilation"], rank),
        True,
        _spread(named["output_padding"], rank),
        named["groups"],
    )
    return call(graph, aten.convolution.default, args, node, fake(node))


def _spread(value: Any, rank: int) -> list[int]:
    items = [value] if isinstance(value, int) else list(value)
    return items * rank if len(items) == 1 else items


@rule(aten.constant_pad_nd.default)
def _constant_pad(graph: Graph, node: Node) -> Node | None:
    """Negative padding is a slice: only that runs everywhere."""
    named = arguments(node)
    pad, part = list(named["pad"]), first_operand(node)
    if not is_static(pad) or all(p >= 0 for p in pad) or not is_static(fake(node).shape):
        return None
    rank = fake(node).dim()
    for i in range(len(pad) // 2):
        dim, (before, after) = rank - 1 - i, pad[2 * i : 2 * i + 2]
        size = fake(part).shape[dim]
        start, end = max(-before, 0), size + min(after, 0)
        if (start, end) != (0, size):
            shape = [*fake(part).shape[:dim], end - start, *fake(part).shape[dim + 1 :]]
            value = fake(part).new_empty(shape)
            part = call(graph, aten.slice_copy.Tensor, (part, dim, start, end), node, value)
    pad = [max(p, 0) for p in pad]
    if not any(pad):
        return part
    args = (part, pad, named["value"])
    return call(graph, aten.constant_pad_nd.default, args, node, fake(node))


@rule(aten.pad.default)
def _pad(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    if not all(isinstance(p, int) for p in named["pad"]):
        return None
    if named["mode"] in _FRAMES:
        return _framed(graph, node, _FRAMES[named["mode"]])
    if named["mode"] == "circular":
        return _circular(graph, node)
    if named["mode"] != "constant":
        return None
    if not any(named["pad"]):
        return first_operand(node)
    # Spelt from here on as if the export had: negative padding has a rule of its own.
    node.target = aten.constant_pad_nd.default
    node.args = (first_operand(node), list(named["pad"]), named["value"] or 0)
    node.kwargs = {}
    padded = _constant_pad(graph, node)
    if padded is not None:
        return padded
    return call(graph, aten.constant_pad_nd.default, node.args, node, fake(node))


_FRAMES = {
    "reflect": (
        aten.reflection_pad1d.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad3d.default,
    ),
    "replicate": (
        aten.replication_pad1d.default,
        aten.replication_pad2d.default,
        aten.replication_pad3d.default,
    ),
}


def _framed(graph: Graph, node: Node, operators: Sequence[Any]) -> Node | None:
    """Of sizes that are open: by the kernel for as many dimensions, which moves rows. Torch's
    decomposition looks each element up in a table, which is computed then; one that is known
    backends read as pieces."""
    source, pad = first_operand(node), list(arguments(node)["pad"])
    dims, rank = len(pad) // 2, fake(source).dim()
    if not 1 <= dims <= 3 or rank not in (dims + 1, dims + 2) or min(pad) < 0:
        return None
    if is_static(fake(node).shape):
        return None
    if dim_order(fake(source)) != tuple(range(rank)):
        return None  # ExecuTorch has kernels for rows alone
    return call(graph, operators[dims - 1], (source, pad), node, fake(node))


def _circular(graph: Graph, node: Node) -> Node | None:
    """The end, the whole and the beginning, concatenated. Torch's decomposition writes into a
    tensor that it fills with nothing first, which no backend takes."""
    part, pad = first_operand(node), list(arguments(node)["pad"])
    if min(pad) < 0 or not is_static(fake(part).shape):
        return None
    for i in range(len(pad) // 2):
        dim, (before, after) = fake(part).dim() - 1 - i, pad[2 * i : 2 * i + 2]
        whole, pieces = fake(part), [part]
        size = whole.shape[dim]

        def resized(count: int, whole: torch.Tensor = whole, dim: int = dim) -> torch.Tensor:
            return whole.new_empty([*whole.shape[:dim], count, *whole.shape[dim + 1 :]])

        if before:
            args = (part, dim, size - before, size)
            pieces.insert(0, call(graph, aten.slice_copy.Tensor, args, node, resized(before)))
        if after:
            args = (part, dim, 0, after)
            pieces.append(call(graph, aten.slice_copy.Tensor, args, node, resized(after)))
        if len(pieces) > 1:
            value = resized(before + size + after)
            part = call(graph, aten.cat.default, (pieces, dim), node, value)
    return part


@rule(aten.stack.default)
def _stack(graph: Graph, node: Node) -> Node | None:
    value = fake(node)
    if not is_static(value.shape):
        return None
    parts = arguments(node)["tensors"]
    dim, rank = arguments(node)["dim"] % value.dim(), value.dim() - 1
    if dim < rank and all(dim_order(fake(part)) == tuple(range(rank)) for part in parts):
        # One view of the whole, instead of one of each part.
        joined = list(value.shape[:dim]) + list(value.shape[dim + 1 :])
        joined[dim] *= len(parts)
        whole = value.new_empty(joined)
        made = call(graph, aten.cat.default, (list(parts), dim), node, whole)
        return call(graph, aten.view_copy.default, (made, list(value.shape)), node, value)
    shape = [1 if d == dim else size for d, size in enumerate(value.shape)]
    rows = [
        call(graph, aten.unsqueeze_copy.default, (part, dim), node, fake(part).new_empty(shape))
        for part in parts
    ]
    return call(graph, aten.cat.default, (rows, dim), node, value)


@rule(aten.batch_norm.default)
def _batch_norm(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    if named["training"] or named["running_mean"] is None:
        return None
    keys = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
    empty = fake(node).new_empty([0])
    value = (fake(node), empty, empty)
    args = [named[key] for key in keys]
    norm = call(graph, aten._native_batch_norm_legit_no_training.default, args, node, value)
    return call(graph, operator.getitem, (norm, 0), node, fake(node))


@rule(aten.softmax.int, aten.log_softmax.int)
def _softmax(graph: Graph, node: Node) -> Node | None:
    named = arguments(node)
    if named["dtype"] is not None and named["dtype"] != fake(first_operand(node)).dtype:
        return None
    core = aten._softmax if node.target is aten.softmax.int else aten._log_softmax
    return call(graph, core.default, (first_operand(node), named["dim"], False), node, fake(node))


@rule(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default)
def _full_like(graph: Graph, node: Node) -> Node | None:
    """Of the operand only the shape is needed: it is known, and the result a constant."""
    value = fake(node)
    if not is_static(value.shape):
        return None
    fills: dict[Any, Any] = {aten.zeros_like.default: 0, aten.ones_like.default: 1}
    fill = fills.get(node.target, arguments(node).get("fill_value"))
    shape = list(value.shape)
    return call(graph, aten.full.default, (shape, fill), node, value, dtype=value.dtype)


@rule(aten.relu6.default)
def _relu6(graph: Graph, node: Node) -> Node | None:
    return call(graph, aten.hardtanh.default, (first_operand(node), 0.0, 6.0), node, fake(node))


@rule(aten.matmul.default)
def _matmul(graph: Graph, node: Node) -> Node | None:
    """Without the expands that a general decomposition puts around a batched product."""
    zeros = _empty_product(graph, node)
    if zeros is not None:
        return zeros
    a, b = node.args
    assert isinstance(a, Node) and isinstance(b, Node)
    left, right = fake(a), fake(b)
    if left.dim() == 2 and right.dim() == 2:
        return call(graph, aten.mm.default, (a, b), node, fake(node))
    if left.dim() == 3 and right.dim() == 3 and same_shape(left.shape[:1], right.shape[:1]):
        return call(graph, aten.bmm.default, (a, b), node, fake(node))
    if left.dim() > 2 and right.dim() == 2:
        flat = [math.prod(left.shape[:-1]), left.shape[-1]]
        a2 = _view(graph, node, a, flat)
        product = None
        if a2 is not None:
            value = left.new_empty([flat[0], right.shape[-1]])
            product = call(graph, aten.mm.default, (a2, b), node, value)
        return _view(graph, node, product, fake(node).shape)
    lead = left.shape[:-2]
    if left.dim() == right.dim() and left.dim() > 3 and same_shape(lead, right.shape[:-2]):
        batch = math.prod(lead)
        a3 = _view(graph, node, a, [batch, *left.shape[-2:]])
        b3 = _view(graph, node, b, [batch, *right.shape[-2:]])
        product = None
        if a3 is not None and b3 is not None:
            value = left.new_empty([batch, left.shape[-2], right.shape[-1]])
            product = call(graph, aten.bmm.default, (a3, b3), node, value)
        return _view(graph, node, product, fake(node).shape)
    return None


_DRAWS: dict[Any, Any] = {
    aten.rand.generator: aten.rand.default,
    aten.randn.generator: aten.randn.default,
    aten.randint.generator: aten.randint.default,
    aten.randint.low_generator: aten.randint.low,
    aten.randperm.generator: aten.randperm.default,
    aten.rand_like.generator: aten.rand_like.default,
    aten.randn_like.generator: aten.randn_like.default,
}


@rule(*_DRAWS)
def _without_generator(graph: Graph, node: Node) -> Node | None:
    """Of `generator=None`, as libraries pass it on."""
    options = dict(node.kwargs)
    if options.pop("generator", None) is not None:
        return None
    return call(graph, _DRAWS[node.target], node.args, node, fake(node), **options)


_SHIFTS: dict[Any, Any] = {
    aten.__lshift__.Tensor: aten.bitwise_left_shift.Tensor,
    aten.__rshift__.Tensor: aten.bitwise_right_shift.Tensor,
    aten.__lshift__.Scalar: aten.bitwise_left_shift.Tensor_Scalar,
    aten.__rshift__.Scalar: aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor: aten.bitwise_left_shift.Tensor,
    aten.bitwise_right_shift.Scalar_Tensor: aten.bitwise_right_shift.Tensor,
}


@rule(*_SHIFTS)
def _shift(graph: Graph, node: Node) -> Node | None:
    """`x << y` of integers; a number on the left as a tensor of it."""
    if fake(node).dtype.is_floating_point or isinstance(node.args[1], float):
        return None  # floating numbers multiply by powers of two
    made = call(graph, _SHIFTS[node.target], node.args, node, fake(node))
    tensors_of_numbers(made)
    return made


@rule(aten.eq.Scalar, aten.ne.Scalar)
def _compared(graph: Graph, node: Node) -> Node | None:
    """Booleans compared with 0 or 1: themselves, or their negation."""
    source, number = first_operand(node), arguments(node)["other"]
    if fake(source).dtype != torch.bool or number not in (0, 1):
        return None
    if (node.target is aten.eq.Scalar) == bool(number):
        return source
    return call(graph, aten.logical_not.default, (source,), node, fake(node))


@rule(aten._int_mm.default)
def _int_mm(graph: Graph, node: Node) -> Node | None:
    """A product of int32, to which the operands are widened."""
    wide = [
        call(graph, aten._to_copy.default, (x,), node, fake(x).int(), dtype=torch.int32)
        for x in node.all_input_nodes
    ]
    a, b = wide if len(wide) == 2 else wide * 2
    return call(graph, aten.mm.default, (a, b), node, fake(node))


def _view(graph: Graph, like: Node, node: Node | None, shape: Sequence[Any]) -> Node | None:
    """None if more sizes than one are symbolic: the general decomposition computes them."""
    size = sizes_as_arguments(shape)
    if node is None or size is None:
        return None
    value = fake(node).new_empty(list(shape))
    return call(graph, aten.view_copy.default, (node, size), like, value)


def _scalar_twin(op: Any) -> Rule:
    def rewrite(graph: Graph, node: Node) -> Node | None:
        """`add.Tensor(x, 2)` is `add.Scalar(x, 2)`: the second operand is no tensor."""
        a, b = node.args[0], node.args[1]
        if isinstance(b, Node) and isinstance(b.meta.get("val"), torch.Tensor):
            return None
        if not isinstance(a, Node) or not isinstance(a.meta.get("val"), torch.Tensor):
            return None
        named = arguments(node)
        rest = [named["alpha"]] if named.get("alpha", 1) != 1 else []
        return call(graph, op, (a, b, *rest), node, fake(node))

    return rewrite


@rule(aten.add.Tensor, aten.add.Scalar)
def _add_number(graph: Graph, node: Node) -> Node | None:
    """In the sum's type: ExecuTorch adds no number of a higher one, such as 0.5 to integers."""
    spelled = node if node.target is aten.add.Scalar else _ADD(graph, node)
    if spelled is None or fake(first_operand(spelled)).dtype == fake(node).dtype:
        return None if spelled is node else spelled
    source, other, *rest = spelled.args
    kind = fake(node).dtype
    value = fake(first_operand(spelled)).to(kind)
    cast = call(graph, aten._to_copy.default, (source,), node, value, dtype=kind)
    args = (cast, other, *rest)
    return call(graph, aten.add.Scalar, args, node, fake(node), **spelled.kwargs)


@rule(aten.mm.default, aten.bmm.default)
def _empty_product(graph: Graph, node: Node) -> Node | None:
    """Zeros, where there is nothing to add up: ExecuTorch leaves such a result as it was."""
    result, count = fake(node), fake(first_operand(node)).shape[-1]
    if not isinstance(count, int) or count != 0 or not is_static(result.shape):
        return None
    return call(graph, aten.full.default, (list(result.shape), 0), node, result, dtype=result.dtype)


_ADD = _scalar_twin(aten.add.Scalar)
RULES[aten.sub.Tensor] = _scalar_twin(aten.sub.Scalar)
RULES[aten.mul.Tensor] = _scalar_twin(aten.mul.Scalar)
RULES[aten.div.Tensor] = _scalar_twin(aten.div.Scalar)
