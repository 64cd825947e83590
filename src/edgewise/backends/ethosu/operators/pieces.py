"""Operators that join slices of tensors: scatters, pads that repeat elements, windows, turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lowering,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import Tensor
from edgewise.backends.ethosu.lowering.values import Combined
from edgewise.backends.ethosu.operators.shape import moved, sizes
from edgewise.edge.graph import fake
from edgewise.quantize.patterns import SAME_SCALE, Joined

aten = torch.ops.aten


_MOST = 256
"""Slices that an operator may become."""


def _many_slices(q: Ask) -> str | None:
    _, start, end = _range(q.args)
    count = len(range(start, end, q.args["step"]))
    return None if count <= _MOST else f"{count}"


def _cut(to: Lowering, t: Tensor, dim: int, start: int, end: int) -> Tensor:
    return to.b.slice(t, {dim: start}, {dim: end - start})


def _replaced(to: Lowering, node: Node, args: Args, dim: int, start: int, end: int) -> Value:
    """`src` instead of a range of the other operand."""
    whole = sizes(args["self"])

    def make(t: Tensor, new: Tensor) -> Tensor:
        new = to.b.reshape(new, (*whole[:dim], end - start, *whole[dim + 1 :]))
        parts = [new]
        if start:
            parts.insert(0, _cut(to, t, dim, 0, start))
        if end < whole[dim]:
            parts.append(_cut(to, t, dim, end, whole[dim]))
        return to.b.concat(parts, dim) if len(parts) > 1 else new

    old, new = to.value(args["self"]), to.value(args["src"])
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return make(old, new)
    reals = to.real(args["self"]), to.real(args["src"])
    return Combined(reals, whole, lambda ts, quant: make(ts[0], ts[1]))


def _slice_scatter(to: Lowering, node: Node, args: Args) -> Value:
    dim, start, end = _range(args)
    if args["step"] != 1:
        return _interleaved(to, node, args, range(start, end, args["step"]), dim)
    return _replaced(to, node, args, dim, start, end)


def _interleaved(to: Lowering, node: Node, args: Args, indices: range, dim: int) -> Value:
    """`src` at indices apart, and between them what was there."""
    whole = sizes(args["self"])

    def make(t: Tensor, new: Tensor) -> Tensor:
        parts = [_cut(to, t, dim, 0, indices[0])] if indices[0] else []
        for at, index in enumerate(indices):
            following = indices[at + 1] if at + 1 < len(indices) else whole[dim]
            parts.append(_cut(to, new, dim, at, at + 1))
            if index + 1 < following:
                parts.append(_cut(to, t, dim, index + 1, following))
        return to.b.concat(parts, dim) if len(parts) > 1 else parts[0]

    old, new = to.value(args["self"]), to.value(args["src"])
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return make(old, new)
    reals = to.real(args["self"]), to.real(args["src"])
    return Combined(reals, whole, lambda ts, quant: make(ts[0], ts[1]))


def _range(args: Args) -> tuple[int, int, int]:
    shape = fake(args["self"]).shape
    dim = args["dim"] % len(shape)
    start, end, _ = slice(args["start"], args["end"]).indices(int(shape[dim]))
    return dim, start, end


def _select_scatter(to: Lowering, node: Node, args: Args) -> Value:
    shape = sizes(args["self"])
    dim = args["dim"] % len(shape)
    index = args["index"] % shape[dim]
    return _replaced(to, node, args, dim, index, index + 1)


define(
    "slice_scatter",
    (aten.slice_scatter.default,),
    _slice_scatter,
    (
        Constraint(
            f"at most {_MOST} elements with a step",
            lambda q: None if q.args["step"] == 1 else _many_slices(q),
        ),
        Constraint(
            "a range with elements",
            lambda q: None if _range(q.args)[1] < _range(q.args)[2] else "an empty one",
        ),
    ),
    reads=ANY,
    also="slices joined",
    quantization=Joined((0, 1)),
)
define(
    "select_scatter",
    (aten.select_scatter.default,),
    _select_scatter,
    reads=ANY,
    also="slices joined",
    quantization=Joined((0, 1)),
)


def _joined(to: Lowering, t: Tensor, dim: int, ranges: Sequence[tuple[int, int]]) -> Tensor:
    return to.b.concat([_cut(to, t, dim, a, b) for a, b in ranges if a < b], dim)


def _around(mode: str, size: int, before: int, after: int) -> list[tuple[int, int]]:
    """Ranges that the padded dimension is made of."""
    if mode == "circular":
        return [(size - before, size), (0, size), (0, after)]
    if mode == "replicate":
        return [(0, 1)] * before + [(0, size)] + [(size - 1, size)] * after
    front = [(i, i + 1) for i in range(before, 0, -1)]
    return [*front, (0, size), *[(size - 2 - i, size - 1 - i) for i in range(after)]]


def _pad(to: Lowering, node: Node, args: Args) -> Value:
    pads, mode, rank = args["pad"], args["mode"], fake(node).dim()

    def move(t: Tensor) -> Tensor:
        for i in range(len(pads) // 2):
            dim, (before, after) = rank - 1 - i, pads[2 * i : 2 * i + 2]
            if before or after:
                t = _joined(to, t, dim, _around(mode, t.shape[dim], before, after))
        return t

    return moved(node, to.value(args["self"]), move)


define(
    "pad",
    (aten.pad.default,),
    _pad,
    (
        Constraint(
            "reflect, replicate or circular",
            lambda q: (
                None
                if q.args["mode"] in ("reflect", "replicate", "circular")
                else str(q.args["mode"])
            ),
        ),
        Constraint(
            f"0 to {_MOST} elements on a side",
            lambda q: None if all(0 <= p <= _MOST for p in q.args["pad"]) else str(q.args["pad"]),
        ),
    ),
    reads=ANY,
    keep=True,
    also="slices joined",
    quantization=SAME_SCALE,
)


def _roll(to: Lowering, node: Node, args: Args) -> Value:
    shape = sizes(node)

    def move(t: Tensor) -> Tensor:
        if not args["dims"]:
            flat = to.b.reshape(t, (math.prod(shape),))
            return to.b.reshape(turn(flat, 0, args["shifts"][0]), shape)
        for dim, shift in zip(args["dims"], args["shifts"], strict=True):
            t = turn(t, dim % len(shape), shift)
        return t

    def turn(t: Tensor, dim: int, shift: int) -> Tensor:
        size = t.shape[dim]
        first = -shift % size
        return _joined(to, t, dim, [(first, size), (0, first)]) if first else t

    return moved(node, to.value(args["self"]), move)


define(
    "roll", (aten.roll.default,), _roll, reads=ANY, also="slices joined", quantization=SAME_SCALE
)


def _unfold(to: Lowering, node: Node, args: Args) -> Value:
    shape, after = sizes(args["self"]), sizes(node)
    dim = args["dimension"] % len(shape)
    size, step = args["size"], args["step"]

    def move(t: Tensor) -> Tensor:
        parts = []
        for i in range(after[dim]):
            window = _cut(to, t, dim, i * step, i * step + size)
            # The window's elements last, in a row of their own.
            last = to.b.permute(window, [*(d for d in range(len(shape)) if d != dim), dim])
            parts.append(to.b.reshape(last, (*shape[:dim], 1, *shape[dim + 1 :], size)))
        return to.b.concat(parts, dim) if len(parts) > 1 else parts[0]

    return moved(node, to.value(args["self"]), move)


def _few_windows(q: Ask) -> str | None:
    shape = fake(q.node).shape
    count = int(shape[q.args["dimension"] % fake(q.args["self"]).dim()])
    return None if count <= _MOST else f"{count}"


define(
    "unfold_copy",
    (aten.unfold_copy.default,),
    _unfold,
    (Constraint(f"at most {_MOST} windows", _few_windows),),
    reads=ANY,
    also="slices joined",
    quantization=SAME_SCALE,
)
