"""Operators that only move, choose or rename elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Tensor, moved
from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.lowering.table import (
    PADDED_HINT,
    SAME_QUANTIZATION,
    Constraint,
    Query,
    along_dim,
    define,
    padded,
)
from edgewise.backends.neutron.targets import RESHAPE_RANK_LIMIT
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    ConcatenationOptions,
    MirrorPadOptions,
)
from edgewise.edge.graph import fake
from edgewise.edge.orders import permuted
from edgewise.quantize.patterns import SAME_SCALE, Joined

aten = torch.ops.aten


def _same(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return to.real(args["self"])


def _view(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    shape = tuple(int(n) for n in fake(node).shape)
    return moved(to.real(args["self"]), lambda x: to.reshape(x, shape, node.name))


def _permute(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    dims = [d % len(args["dims"]) for d in args["dims"]]

    def permute(x: Tensor) -> Tensor:
        return Tensor(x.value, permuted(x.order, dims), x.quant)

    return moved(to.real(args["self"]), permute)


def _slice(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def cut(x: Tensor) -> Tensor:
        dim = args["dim"] % len(x.order)
        start, _, _ = slice(args["start"], None).indices(x.shape[dim])
        count = int(fake(node).shape[dim])
        if args["step"] == 1 or count == 1:
            return to.cut(x, {dim: (start, count)}, node.name)
        return _every(to, x, dim, start, args["step"], count, node.name)

    return moved(to.real(args["self"]), cut)


def _every(
    to: Lowering, x: Tensor, dim: int, start: int, step: int, count: int, name: str
) -> Tensor:
    """Each `step`th element from the first: the first of each group of so many."""
    if x.shape[dim] != count * step or start >= step:
        there = min(x.shape[dim] - start, count * step)
        x = to.cut(x, {dim: (start, there)}, f"{name}_from")
        x = to.padded(x, {dim: (0, count * step - there)}, x.quant.zero_point)
        start = 0
    before, behind = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    grouped = to.reshape(x, (before, count, step * behind), f"{name}_groups")
    return to.reshape(to.cut(grouped, {2: (start * behind, behind)}, f"{name}_ones"), shape, name)


def _select(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def choose(x: Tensor) -> Tensor:
        dim = args["dim"] % len(x.order)
        one = to.cut(x, {dim: (args["index"] % x.shape[dim], 1)}, f"{node.name}_one")
        return to.reshape(one, tuple(int(n) for n in fake(node).shape), node.name)

    return moved(to.real(args["self"]), choose)


def _pad(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def pad(x: Tensor) -> Tensor:
        numbers = list(args["pad"])
        rank = len(x.order)
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        amounts = {rank - 1 - i: pair for i, pair in enumerate(pairs)}
        return to.padded(x, amounts, x.quant.stored(float(args["value"])))

    return moved(to.real(args["self"]), pad)


def _reflect(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    shape = tuple(int(n) for n in fake(node).shape)

    def pad(x: Tensor) -> Tensor:
        numbers, rank = list(args["pad"]), len(x.order)
        amounts = {rank - 1 - i: numbers[2 * i : 2 * i + 2] for i in range(len(numbers) // 2)}
        pairs = to.ints("paddings", [amounts.get(d, [0, 0]) for d in x.order])
        made = to.result(node, shape, x.order, x.quant)
        return to.add(BuiltinOperator.MIRROR_PAD, [x, pairs], made, MirrorPadOptions(0))

    return moved(to.real(args["self"]), pad)


def _mode(q: Query) -> str | None:
    return None if q.args["mode"] == "reflect" else f"mode={q.args['mode']!r}"


def _cat(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    shape = tuple(int(n) for n in fake(node).shape)
    parts = to.aligned([to.tensor(part) for part in args["tensors"]], len(shape))

    def emit(quant: Quant, _: Activation) -> Tensor:
        made = to.result(node, shape, parts[0].order, quant)
        options = ConcatenationOptions(made.axis(args["dim"]), Activation.NONE)
        return to.add(BuiltinOperator.CONCATENATION, parts, made, options)

    return Computed(emit)


def _rank(q: Query) -> str | None:
    rank = len(q.shape)
    return f"{rank}-D" if rank > RESHAPE_RANK_LIMIT else None


def _format(q: Query) -> str | None:
    found = q.args.get("memory_format")
    allowed = (None, torch.preserve_format, torch.contiguous_format, torch.channels_last)
    return None if found in allowed else str(found)


def _type(q: Query) -> str | None:
    given, made = fake(q.args["self"]).dtype, fake(q.node).dtype
    return None if given == made else f"{given} to {made}".replace("torch.", "")


def _not_empty(q: Query) -> str | None:
    return f"{list(q.shape)}" if 0 in q.shape else None


def _grows(q: Query) -> str | None:
    return f"pad={list(q.args['pad'])}" if min(q.args["pad"], default=0) < 0 else None


def _cat_channels(q: Query) -> str | None:
    """Channels are the second dimension of images, else the last. With three dimensions either
    may be: what else is delegated decides it."""
    rank = len(q.shape)
    if q.rules.options.force_delegate_cat or rank < 2:
        return None
    shapes = [*(tuple(fake(part).shape) for part in q.args["tensors"]), q.shape]
    dims = {3: (1, -1), 4: (1,)}.get(rank, (-1,))
    found = [padded(q, [shape[dim] for shape in shapes]) for dim in dims]
    return None if None in found else found[0]


def _padded_dims(args: dict[str, Any]) -> Sequence[int]:
    numbers = args["pad"]
    rank = fake(args["self"]).dim()
    return [rank - 1 - i // 2 for i, number in enumerate(numbers) if number]


_FORMAT = Constraint("the order of dimensions is kept, or contiguous or channels last", _format)
_TYPE = Constraint("a copy of the same data type", _type)
_SAME = (SAME_QUANTIZATION,)

for _name, _targets, _lower, _rules, _code in (
    ("clone", (aten.clone.default,), _same, (_FORMAT, *_SAME), "nothing"),
    ("_to_copy", (aten._to_copy.default,), _same, (_TYPE, _FORMAT, *_SAME), "nothing"),
    (
        "view_copy",
        (aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default),
        _view,
        (Constraint(f"at most {RESHAPE_RANK_LIMIT} dimensions", _rank), *_SAME),
        "RESHAPE, with TRANSPOSE of images",
    ),
):
    define(
        _name, _targets, _lower, _rules, moves=True, idle=True, also=_code, quantization=SAME_SCALE
    )

define(
    "permute_copy",
    (aten.permute_copy.default,),
    _permute,
    _SAME,
    moves=True,
    also="TRANSPOSE",
    quantization=SAME_SCALE,
)
define(
    "slice_copy",
    (aten.slice_copy.Tensor,),
    _slice,
    (Constraint("elements are left", _not_empty), *_SAME),
    moves=True,
    along=along_dim,
    also="SLICE, with RESHAPE if step is not 1",
    quantization=SAME_SCALE,
)
define(
    "select_copy",
    (aten.select_copy.int,),
    _select,
    _SAME,
    moves=True,
    also="SLICE, RESHAPE",
    quantization=SAME_SCALE,
)
define(
    "constant_pad_nd",
    (aten.constant_pad_nd.default,),
    _pad,
    (Constraint("nothing is cut off", _grows), *_SAME),
    moves=True,
    along=_padded_dims,
    also="PAD, or PADV2 with another number than zero",
    quantization=SAME_SCALE,
)
define(
    "pad",
    (aten.pad.default,),
    _reflect,
    (
        Constraint('mode="reflect" (constant_pad_nd: with a number)', _mode),
        Constraint("nothing is cut off", _grows),
        *_SAME,
    ),
    moves=True,
    keep=True,
    along=_padded_dims,
    also="MIRROR_PAD",
    quantization=SAME_SCALE,
)
define(
    "cat",
    (aten.cat.default,),
    _cat,
    (
        Constraint(
            "channels of operands and result that the target's multiply-accumulates divide "
            "(converters before 2026)",
            _cat_channels,
            PADDED_HINT,
        ),
        *_SAME,
    ),
    along=along_dim,
    also="CONCATENATION",
    quantization=Joined(),
)
