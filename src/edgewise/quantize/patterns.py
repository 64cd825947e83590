"""What a quantizer can say about an operator, as data.

A backend's quantizer is a mapping from ATen overload to one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

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
    places: which arguments the three are.
    one_scale: the weight has one scale, whatever the configuration says of channels.
    not_dynamic: why the node's activation may not be quantized while the model runs.
    """

    channel_axis: int = 0
    one_scale: bool = False
    places: tuple[int, int, int] = (0, 1, 2)
    not_dynamic: Callable[[Node], str | None] = never


@dataclass(frozen=True)
class Elementwise:
    """Tensor operands in, one tensor out, each with a scale of its own.

    numbers: whether all but one of them may be numbers. first: the first operand's place.
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

    places: which arguments the tensors are; None for a list of them as the first.
    """

    places: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Fixed:
    """A result whose range is known: `scale` and `zero_point` for int8."""

    scale: float
    zero_point: int


Pattern = Weighted | Elementwise | SameScale | Joined | Fixed

ACTIVATIONS = frozenset(
    {
        aten.relu.default,
        aten.relu_.default,
        aten.relu6.default,
        aten.hardtanh.default,
        aten.hardtanh_.default,
        aten.clamp.default,
        aten.clamp_.default,
    }
)
"""Clamps: part of the operator before them, whose unclamped result nobody else reads."""

GATES = frozenset({aten.hardsigmoid.default, aten.hardsigmoid_.default})
"""Clamps of a line: part of the operator with weights before them, which absorb the line."""

BATCH_NORMS = frozenset(
    {aten.batch_norm.default, aten._native_batch_norm_legit.default, aten.cudnn_batch_norm.default}
)
FUSES_CLAMP = (Weighted, Elementwise)


MOVED = (
    aten.clamp.default,
    aten.clamp_.default,
    aten.clone.default,
    aten.constant_pad_nd.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.dropout.default,
    aten.dropout_.default,
    aten.feature_dropout.default,
    aten.feature_dropout_.default,
    aten.flatten.using_ints,
    aten.hardtanh.default,
    aten.hardtanh_.default,
    aten.max_pool2d.default,
    aten.moveaxis.int,
    aten.moveaxis.intlist,
    aten.movedim.int,
    aten.movedim.intlist,
    aten.narrow.default,
    aten.pad.default,
    aten.permute.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.relu6.default,
    aten.reshape.default,
    aten.reshape_as.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.swapaxes.default,
    aten.swapdims.default,
    aten.t.default,
    aten.transpose.int,
    aten.unflatten.int,
    aten.unsqueeze.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_nearest2d.vec,
    aten.view.default,
    aten.view_as.default,
)
"""What each backend does with integers as they are: their scale stays."""


def with_copies(targets: Iterable[Any]) -> list[Any]:
    """The overloads, and those of the same name that return a copy in the place of a view:
    `aten.select_copy.int` beside `aten.select.int`."""
    found = []
    for target in targets:
        found.append(target)
        copies = getattr(aten, f"{target.overloadpacket.__name__}_copy", None)
        if copies is not None and target._overloadname in copies.overloads():
            found.append(getattr(copies, target._overloadname))
    return found


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
