"""Operators that only move, choose or rename elements."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering import Computed, Lowering, Real, Tensor, moved
from edgewise.backends.neutron.quantized import Quant
from edgewise.backends.neutron.table import (
    SAME_QUANTIZATION,
    Constraint,
    OpRow,
    Query,
    add_row,
    channels,
)
from edgewise.backends.neutron.targets import RESHAPE_RANK_LIMIT
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    ConcatenationOptions,
)
from edgewise.edge.graph import fake

aten = torch.ops.aten


def _same(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    return to.real(args["self"])


def _view(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    shape = tuple(int(n) for n in fake(node).shape)
    return moved(to.real(args["self"]), lambda x: to.reshape(x, shape, node.name))


def _permute(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    dims = [d % len(args["dims"]) for d in args["dims"]]

    def permute(x: Tensor) -> Tensor:
        return Tensor(x.value, tuple(dims.index(d) for d in x.order), x.quant)

    return moved(to.real(args["self"]), permute)


def _slice(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def cut(x: Tensor) -> Tensor:
        shape = tuple(int(n) for n in fake(node).shape)
        if shape == x.shape:
            return x
        dim = args["dim"] % len(shape)
        begin = [_start(args, x.shape[dim]) if d == dim else 0 for d in x.order]
        made = to.result(node, shape, x.order, x.quant)
        sizes = to.ints("size", list(made.value.shape))
        return to.add(BuiltinOperator.SLICE, [x, to.ints("begin", begin), sizes], made)

    return moved(to.real(args["self"]), cut)


def _start(args: dict[str, Any], size: int) -> int:
    start = args["start"] or 0
    return max(start + size, 0) if start < 0 else min(start, size)


def _pad(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    def pad(x: Tensor) -> Tensor:
        numbers = list(args["pad"])
        rank = len(x.order)
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        amounts = {rank - 1 - i: pair for i, pair in enumerate(pairs)}
        return to.padded(x, amounts, x.quant.stored(float(args["value"])))

    return moved(to.real(args["self"]), pad)


def _cat(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    shape = tuple(int(n) for n in fake(node).shape)
    parts = to.aligned([to.tensor(part) for part in args["tensors"]], len(shape))

    def emit(quant: Quant, _: Activation) -> Tensor:
        made = to.result(node, shape, parts[0].order, quant)
        options = ConcatenationOptions(made.place(args["dim"]), Activation.NONE)
        return to.add(BuiltinOperator.CONCATENATION, parts, made, options)

    return Computed(emit)


def _rank(q: Query) -> str | None:
    rank = len(q.shape)
    return f"{rank}-D" if rank > RESHAPE_RANK_LIMIT else None


def _format(q: Query) -> str | None:
    found = q.args.get("memory_format")
    allowed = (None, torch.preserve_format, torch.contiguous_format, torch.channels_last)
    return None if found in allowed else str(found)


def _step(q: Query) -> str | None:
    return None if q.args["step"] == 1 else f"step={q.args['step']}"


def _not_empty(q: Query) -> str | None:
    return f"{list(q.shape)}" if 0 in q.shape else None


def _grows(q: Query) -> str | None:
    return f"pad={list(q.args['pad'])}" if min(q.args["pad"], default=0) < 0 else None


def _cat_channels(q: Query) -> str | None:
    shapes = [tuple(fake(part).shape) for part in q.args["tensors"]]
    if len(q.shape) < 2:
        return None
    return channels(q, [*shapes, q.shape], 1)


_FORMAT = Constraint("the order of dimensions is kept, or contiguous or channels last", _format)
_SAME = (SAME_QUANTIZATION,)

for _name, _targets, _lower, _rules, _code in (
    ("clone", (aten.clone.default,), _same, (_FORMAT, *_SAME), "nothing"),
    (
        "view_copy",
        (aten.view_copy.default, aten.squeeze_copy.dims, aten.unsqueeze_copy.default),
        _view,
        (Constraint(f"at most {RESHAPE_RANK_LIMIT} dimensions", _rank), *_SAME),
        "RESHAPE, with TRANSPOSE of images",
    ),
):
    add_row(OpRow(_name, _targets, _lower, _rules, moves=True, idle=True, tflite=_code))

add_row(
    OpRow(
        "permute_copy",
        (aten.permute_copy.default,),
        _permute,
        _SAME,
        moves=True,
        tflite="TRANSPOSE",
    )
)
add_row(
    OpRow(
        "slice_copy",
        (aten.slice_copy.Tensor,),
        _slice,
        (Constraint("step=1", _step), Constraint("elements are left", _not_empty), *_SAME),
        moves=True,
        tflite="SLICE",
    )
)
add_row(
    OpRow(
        "constant_pad_nd",
        (aten.constant_pad_nd.default,),
        _pad,
        (Constraint("nothing is cut off", _grows), *_SAME),
        moves=True,
        tflite="PAD, or PADV2 with another number than zero",
    )
)
add_row(
    OpRow(
        "cat",
        (aten.cat.default,),
        _cat,
        (
            Constraint(
                "numbers of channels that the target's multiply-accumulates divide (converters "
                "before 2026)",
                _cat_channels,
                "a newer converter (eiq_neutron_sdk)",
            ),
            *_SAME,
        ),
        tflite="CONCATENATION",
    )
)
