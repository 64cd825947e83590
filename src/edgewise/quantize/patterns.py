"""What a quantizer can say about an operator, as data.

A definition of an operator names one of these; a backend's quantizer is the mapping from ATen
overload to pattern that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from edgewise.edge.spellings import with_twins

aten = torch.ops.aten


def never(node: Node) -> str | None:
    """Against every node of the operator."""
    return "no kernel quantizes its activations while the model runs"


def always(node: Node) -> str | None:
    """Against none."""
    return None


@dataclass(frozen=True)
class Weighted:
    """An activation, a weight, perhaps a bias.

    channel_axis: the weight's dimension of output channels.
    positions: which arguments the three are.
    one_scale: the weight has one scale, whatever the configuration says of channels.
    not_dynamic: why the node's activation may not be quantized while the model runs.
    """

    channel_axis: int = 0
    one_scale: bool = False
    positions: tuple[int, int, int] = (0, 1, 2)
    not_dynamic: Callable[[Node], str | None] = never


@dataclass(frozen=True)
class Elementwise:
    """Tensor operands in, one tensor out, each with a scale of its own.

    numbers: whether all but one of them may be numbers. first: the first operand's position.
    real: whether the result is a real number (that of a comparison is none).
    symmetric: whether the operands' zero points must be 0.
    """

    operands: int = 2
    numbers: bool = False
    first: int = 0
    real: bool = True
    symmetric: bool = False


@dataclass(frozen=True)
class SameScale:
    """The result has its operand's scale: elements are moved, chosen or averaged.

    starts: whether it is quantized behind floats, too, its operand first.
    against: why the node is not computed in integers.
    """

    starts: bool = False
    against: Callable[[Node], str | None] = always


@dataclass(frozen=True)
class Joined:
    """The tensors and the result have one scale.

    positions: which arguments the tensors are; None for a list of them as the first.
    """

    positions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Fixed:
    """A result whose range is known: `scale` and `zero_point` for int8."""

    scale: float
    zero_point: int


Pattern = Weighted | Elementwise | SameScale | Joined | Fixed

UNARY = Elementwise(operands=1)
BINARY = Elementwise(numbers=True)
SAME_SCALE = SameScale()
ZERO_TO_ONE = Fixed(1 / 256, -128)
MINUS_ONE_TO_ONE = Fixed(1 / 128, 0)


def convolutions(not_dynamic: Callable[[Node], str | None] = never) -> dict[Any, Pattern]:
    """Of one and two dimensions, and the transposed ones, by operator. not_dynamic: as
    `Weighted`'s."""
    forward, transposed = (Weighted(axis, not_dynamic=not_dynamic) for axis in (0, 1))
    return {
        aten.conv1d.default: forward,
        aten.conv1d.padding: forward,
        aten.conv2d.default: forward,
        aten.conv2d.padding: forward,
        aten.conv_transpose1d.default: transposed,
        aten.conv_transpose2d.input: transposed,
    }


ACTIVATIONS = frozenset(
    with_twins(aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default)
)
"""Clamps: part of the operator before them, whose unclamped result nobody else reads."""

GATES = frozenset(with_twins(aten.hardsigmoid.default))
"""Clamps of a line: part of the operator with weights before them, which absorb the line."""

BATCH_NORMS = frozenset(
    {aten.batch_norm.default, aten._native_batch_norm_legit.default, aten.cudnn_batch_norm.default}
)
FUSES_CLAMP = (Weighted, Elementwise)


def is_float(node: Any) -> bool:
    """Whether the node computes one tensor of numbers that can be quantized."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float16)


def chain(node: Node, pattern: Pattern, gates: bool = True) -> list[Node]:
    """The node, a batch normalisation and a clamp that belong to it.

    gates: whether a hardsigmoid does, too.
    """
    found = [node]
    if isinstance(pattern, Weighted):
        _extend(found, BATCH_NORMS)
        if gates:
            _extend(found, GATES)
    if isinstance(pattern, FUSES_CLAMP):
        _extend(found, ACTIVATIONS)
    return found


def _extend(found: list[Node], targets: frozenset[Any]) -> None:
    users = list(found[-1].users)
    if len(users) == 1 and users[0].target in targets and users[0].args[0] is found[-1]:
        found.append(users[0])


def made_of_weights(graph: Graph) -> frozenset[Node]:
    """Weights that nobody writes, and what is computed from them alone: `convert_pt2e` folds it."""
    written = {
        node.all_input_nodes[0].target
        for node in graph.nodes
        if _writes(node) and node.all_input_nodes and node.all_input_nodes[0].op == "get_attr"
    }
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            known = node.target not in written
        else:
            target = node.target
            pure = isinstance(target, torch._ops.OpOverload) and not (
                _writes(node) or torch.Tag.nondeterministic_seeded in target.tags
            )
            sources = node.all_input_nodes
            known = pure and bool(sources) and found.issuperset(sources)
        if known:
            found.add(node)
    return frozenset(found)


def _writes(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
