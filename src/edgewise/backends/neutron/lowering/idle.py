"""Operators that compute nothing with the arguments that they have.

NXP's converter takes them out. Of a partition without any others it makes no program, and what
ends with one of them has an output of another name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.quantized import Cluster, Quant
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.operators.activations import cuts
from edgewise.edge.graph import arguments, fake
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.operators.arguments import reduced_dims

aten = torch.ops.aten
Args = dict[str, Any]


def is_idle(node: Node, cluster: Cluster, constants: Constants) -> bool:
    """Whether the node computes nothing, or only renames. A clamp does something if it cuts some
    of what is stored."""
    definition = TABLE.of(node)
    if definition is None:
        return True
    if definition.idle and not (definition.clamps and cuts(node, cluster)):
        return True
    return gives_its_operand(node, cluster, constants)


def gives_its_operand(node: Node, cluster: Cluster, constants: Constants) -> bool:
    """Whether the result is an operand, stored alike."""
    rule = _RULES.get(node.target)
    operand = rule(node, arguments(node), constants) if rule is not None else None
    if operand is None:
        return False
    stored = Quant.of(operand) if is_dequantize(operand) else None
    return stored is None or all(Quant.of(n) == stored for n in cluster.outputs)


def at_the_end(partition: Sequence[Cluster], constants: Constants) -> list[Cluster]:
    """The clusters that give their operands, behind everything else of the partition."""
    kept, dropped = list(partition), list[Cluster]()
    while True:
        inside = {n for cluster in kept for n in cluster.all_nodes}
        found = [c for c in kept if _is_at_the_end(c, inside) and _is_whole_idle(c, constants)]
        if not found:
            return dropped
        dropped += found
        kept = [c for c in kept if c not in found]


def _is_whole_idle(cluster: Cluster, constants: Constants) -> bool:
    return bool(cluster.nodes) and all(
        gives_its_operand(node, cluster, constants) for node in cluster.nodes
    )


def _is_at_the_end(cluster: Cluster, inside: set[Node]) -> bool:
    others = inside - set(cluster.all_nodes)
    return not any(u in others for n in cluster.outputs for u in n.users)


# --- operators: the operand that is the result; None if there is none -------------------------


def _if(
    check: Callable[[Node, Args], bool],
) -> Callable[[Node, Args, Constants], Node | None]:
    return lambda node, args, _: args["self"] if check(node, args) else None


def _same_shape(node: Node, args: Args) -> bool:
    return tuple(fake(args["self"]).shape) == tuple(fake(node).shape)


def _over_ones(node: Node, args: Args) -> bool:
    shape = fake(args["self"]).shape
    ones = all(shape[d] == 1 for d in reduced_dims(args.get("dim"), len(shape)))
    return ones and _same_shape(node, args)


def _with(neutral: float) -> Callable[[Node, Args, Constants], Node | None]:
    """Another operand that is this number everywhere."""

    def find(node: Node, args: Args, constants: Constants) -> Node | None:
        commutes = node.target not in (aten.sub.Tensor, aten.sub.Scalar, aten.div.Scalar)
        pairs = [("self", "other"), ("other", "self")] if commutes else [("self", "other")]
        for kept, other in pairs:
            operand = args[kept]
            if isinstance(operand, Node) and _is_everywhere(args[other], neutral, constants):
                same = math.prod(fake(operand).shape) == math.prod(fake(node).shape)
                return operand if same else None
        return None

    return find


def _is_everywhere(value: Any, number: float, constants: Constants) -> bool:
    """Of a number, a constant, or one that is quantized in the program."""
    if not isinstance(value, Node):
        return bool(value == number)
    if not is_dequantize(value) or "axis" in arguments(value):
        return False
    quant, stored = Quant.of(value), arguments(value)["input"]
    if is_quantize(stored) and arguments(stored)["input"] in constants:
        numbers = set(constants.tensor(arguments(stored)["input"]).flatten().tolist())
        return all(quant.stored(x) == quant.stored(number) for x in numbers)
    if stored not in constants:
        return False
    real = (constants.tensor(stored).double() - quant.zero_point) * quant.scale
    return bool(((real - number).abs() <= 1e-6 * abs(number)).all())  # a scale's own rounding


def _windows_of_one(node: Node, args: Args) -> bool:
    return set(args["kernel_size"]) == {1} and _same_shape(node, args)


def _same_dims(node: Node, args: Args) -> bool:
    rank = len(args["dims"])
    moving = [d % rank for d in args["dims"] if fake(args["self"]).shape[d] != 1]
    return moving == sorted(moving)


def _one_tensor(node: Node, args: Args, constants: Constants) -> Node | None:
    tensors: list[Node] = args["tensors"]
    return tensors[0] if len(tensors) == 1 else None


def _with_itself(node: Node, args: Args) -> bool:
    a, b = (arguments(args[k])["input"] if is_dequantize(args[k]) else k for k in ("self", "other"))
    return a is b


def _resized(node: Node, args: Args, constants: Constants) -> Node | None:
    source: Node = args["input"]
    return source if tuple(fake(source).shape) == tuple(fake(node).shape) else None


_RULES: dict[Any, Callable[[Node, Args, Constants], Node | None]] = {
    aten.add.Tensor: _with(0.0),
    aten.add.Scalar: _with(0.0),
    aten.sub.Tensor: _with(0.0),
    aten.sub.Scalar: _with(0.0),
    aten.mul.Tensor: _with(1.0),
    aten.mul.Scalar: _with(1.0),
    aten.div.Scalar: _with(1.0),
    aten.mean.dim: _if(_over_ones),
    aten.mean.default: _if(_over_ones),
    aten.sum.dim_IntList: _if(_over_ones),
    aten.sum.default: _if(_over_ones),
    aten.amax.default: _if(_over_ones),
    aten.amin.default: _if(_over_ones),
    aten.avg_pool2d.default: _if(_windows_of_one),
    aten._adaptive_avg_pool2d.default: _if(_same_shape),
    aten.upsample_bilinear2d.vec: _resized,
    aten.upsample_nearest2d.vec: _resized,
    aten.slice_copy.Tensor: _if(_same_shape),
    aten.constant_pad_nd.default: _if(_same_shape),
    aten.permute_copy.default: _if(_same_dims),
    aten.cat.default: _one_tensor,
    aten.maximum.default: _if(_with_itself),
    aten.minimum.default: _if(_with_itself),
}
