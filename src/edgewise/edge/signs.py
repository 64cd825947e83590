"""What is known of the signs of what a node computes, whatever the model's inputs are."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.edge.graph import arguments
from edgewise.edge.spellings import with_twins

aten = torch.ops.aten

_NOT_NEGATIVE = frozenset(
    with_twins(
        aten.abs.default,
        aten.relu.default,
        aten.relu6.default,
        aten.rsqrt.default,
        aten.sigmoid.default,
        aten.softmax.int,
        aten.sqrt.default,
        aten.square.default,
        aten.var.correction,
        aten.var.dim,
    )
)
"""Without the exponential function: its results lie too far apart for a reciprocal in 8 bits, which
quantizing asks for."""
_KEEP_SIGN = frozenset(
    with_twins(
        aten.adaptive_avg_pool2d.default,
        aten.amax.default,
        aten.amin.default,
        aten._to_copy.default,
        aten.to.dtype,
        aten.avg_pool2d.default,
        aten.cat.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.dropout.default,
        aten.expand.default,
        aten.flatten.using_ints,
        aten.max_pool2d.default,
        aten.mean.default,
        aten.mean.dim,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    )
)
_MULTIPLY = frozenset(with_twins(aten.mul.Tensor, aten.mul.Scalar))
_POWERS = frozenset(with_twins(aten.pow.Tensor_Scalar))
_ADD = frozenset(with_twins(aten.add.Tensor, aten.add.Scalar))
_CLAMPS = frozenset(with_twins(aten.clamp.default, aten.clamp_min.default, aten.hardtanh.default))


def is_not_negative(node: Any) -> bool:
    """Whether the numbers of a node are 0 or more; NaN may be among them."""
    if isinstance(node, (int, float)):
        return node >= 0
    if isinstance(node, (list, tuple)):
        return all(map(is_not_negative, node))
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    if node.target in _NOT_NEGATIVE:
        return True
    if node.target in _KEEP_SIGN:
        return is_not_negative(node.args[0])
    if node.target in _POWERS:
        exponent = node.args[1]
        return isinstance(exponent, (int, float)) and exponent % 2 == 0
    if node.target in _MULTIPLY:
        one, other = node.args[:2]
        return one is other or (is_not_negative(one) and is_not_negative(other))
    if node.target in _ADD:
        return arguments(node)["alpha"] >= 0 and all(map(is_not_negative, node.args[:2]))
    if node.target in _CLAMPS:
        args = arguments(node)
        low = args.get("min", args.get("min_val"))
        return isinstance(low, (int, float)) and low >= 0
    return False


def is_positive(node: Node) -> bool:
    """Whether the numbers of a node are more than 0 by an addition or a bound, such as a norm's
    epsilon; NaN may be among them."""
    if node.op != "call_function":
        return False
    if node.target in _ADD:
        numbers = [a for a in node.args[:2] if isinstance(a, (int, float))]
        adds = any(number > 0 for number in numbers) and arguments(node)["alpha"] > 0
        return adds and is_not_negative(node)
    if node.target in _CLAMPS:
        return is_not_negative(node) and arguments(node).get("min", 0) != 0
    return False
