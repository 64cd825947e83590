"""Operators that move, repeat or choose elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

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
from edgewise.backends.ethosu.lowering.tosa import BOOL, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Constant, Mapped, Ones, Stored
from edgewise.edge.graph import fake, shape_of
from edgewise.edge.orders import identity
from edgewise.partition.constraints import HAS_DIMS
from edgewise.quantize.patterns import SAME_SCALE, Joined

aten = torch.ops.aten
Move = Callable[[Tensor], Tensor]
MOST_PIECES = 64
"""Slices that one operator may become."""


def moved(node: Node, value: Value, move: Move) -> Value:
    """The same elements elsewhere. What is not quantized yet is moved once it is."""
    if isinstance(value, Tensor):
        return move(value)
    if isinstance(value, Stored):
        return Stored(move(value.tensor), value.quant)
    if isinstance(value, Mapped):
        source = Stored(move(value.source.tensor), value.source.quant)
        return Mapped(source, value.function)
    return Combined((value,), sizes(node), lambda ts, quant: move(ts[0]))


def sizes(node: Node) -> tuple[int, ...]:
    return tuple(int(s) for s in shape_of(node))


def _row(
    name: str,
    target: Any,
    move: Callable[..., Move],
    *rules: Constraint,
) -> None:
    def lower(to: Lowering, node: Node, args: Args) -> Value:
        return moved(node, to.value(node.args[0]), move(to, node, args))

    define(name, (target,), lower, rules, reads=ANY, quantization=SAME_SCALE)


def _view(to: Lowering, node: Node, args: Args) -> Move:
    return lambda t: to.b.reshape(t, sizes(node))


def _permute(to: Lowering, node: Node, args: Args) -> Move:
    rank = fake(node).dim()
    return lambda t: to.b.permute(t, [d % rank for d in args["dims"]])


def _slice(to: Lowering, node: Node, args: Args) -> Move:
    before = sizes(args["self"])
    dim = args["dim"] % len(before)
    size, step = before[dim], args["step"]
    start, end, _ = slice(args["start"], args["end"]).indices(size)
    if step == 1:
        return lambda t: to.b.slice(t, {dim: start}, {dim: end - start})
    return lambda t: every(to, t, dim, start, sizes(node)[dim], step)


def every(to: Lowering, t: Tensor, dim: int, start: int, count: int, step: int) -> Tensor:
    """Every step-th element along a dimension: the first of each of several rows of `step`."""
    shape = t.shape
    missing = start + count * step - shape[dim]
    t = to.b.pad(t, {dim: (0, max(missing, 0))}, 0)
    t = to.b.slice(t, {dim: start}, {dim: count * step})
    axis, b = t.axis(dim), to.b
    before, behind = math.prod(t.dims[:axis]), math.prod(t.dims[axis + 1 :])
    rows = b.reshaped_to(t, [before, count, step, behind], identity(4))
    firsts = b.slice(rows, {}, {2: 1})
    dims = [*t.dims[:axis], count, *t.dims[axis + 1 :]]
    return b.reshaped_to(firsts, dims, t.order)


def _select(to: Lowering, node: Node, args: Args) -> Move:
    before = sizes(args["self"])
    dim = args["dim"] % len(before)
    index = args["index"] % before[dim]
    after = sizes(node)
    return lambda t: to.b.reshape(to.b.slice(t, {dim: index}, {dim: 1}), after)


def _expand(to: Lowering, node: Node, args: Args) -> Move:
    after = sizes(node)

    def move(t: Tensor) -> Tensor:
        t = to.b.with_rank(t, len(after))
        return to.b.tile(t, [n // m for n, m in zip(after, t.shape, strict=True)])

    return move


def _repeat(to: Lowering, node: Node, args: Args) -> Move:
    times = list(args["repeats"])
    return lambda t: to.b.tile(to.b.with_rank(t, len(times)), times)


def _flip(to: Lowering, node: Node, args: Args) -> Move:
    rank = fake(node).dim()

    def move(t: Tensor) -> Tensor:
        for dim in args["dims"]:
            t = _reversed(to, t, dim % rank)
        return t

    return move


def _reversed(to: Lowering, t: Tensor, dim: int) -> Tensor:
    if to.family == "U85":
        return to.b.reverse(t, dim)
    backwards = range(t.shape[dim])[::-1]
    return to.b.concat([to.b.slice(t, {dim: i}, {dim: 1}) for i in backwards], dim)


def _short(q: Ask) -> str | None:
    if q.target.family == "U85":
        return None
    shape = fake(q.args["self"]).shape
    longest = max((int(shape[d]) for d in q.args["dims"] if shape), default=0)
    return None if longest <= MOST_PIECES else f"{longest} on {q.target.name}"


def _same(to: Lowering, node: Node, args: Args) -> Move:
    return lambda t: t


def _same_type(q: Ask) -> str | None:
    source = q.node.all_input_nodes[0]
    before, after = fake(source).dtype, fake(q.node).dtype
    if source.target is aten.argmax.default and after == torch.int32:
        return None  # the NPU's indices have 32 bits already
    if (before, after) == (torch.bool, torch.float32):
        return None  # which only U85 has
    return None if before == after else f"{before} to {after}".replace("torch.", "")


def _copied(to: Lowering, node: Node, args: Args) -> Value:
    source = to.value(node.args[0])
    if isinstance(source, Tensor) and source.dtype == BOOL and fake(node).is_floating_point():
        return Ones(source)
    return moved(node, source, lambda t: t)


_row("view_copy", aten.view_copy.default, _view)
_row("squeeze_copy", aten.squeeze_copy.dims, _view)
_row("unsqueeze_copy", aten.unsqueeze_copy.default, _view)
_row("permute_copy", aten.permute_copy.default, _permute)
_row("slice_copy", aten.slice_copy.Tensor, _slice)
_row("select_copy", aten.select_copy.int, _select)
_row("expand_copy", aten.expand_copy.default, _expand)
_row("repeat", aten.repeat.default, _repeat)
_row("clone", aten.clone.default, _same)
define(
    "_to_copy",
    (aten._to_copy.default,),
    _copied,
    (
        Constraint(
            "a copy of the same data type, to int32 of an argmax, or to float32 of booleans",
            _same_type,
        ),
    ),
    reads=ANY,
)
define(
    "flip",
    (aten.flip.default,),
    lambda to, node, args: moved(node, to.value(node.args[0]), _flip(to, node, args)),
    (HAS_DIMS, Constraint(f"dimensions of at most {MOST_PIECES}, except on U85", _short)),
    reads=ANY,
    also="others than U85: slices, concatenated",
    quantization=SAME_SCALE,
)


def _cat(to: Lowering, node: Node, args: Args) -> Value:
    parts = [to.value(p) for p in args["tensors"]]
    dim = args["dim"] % fake(node).dim()
    if all(isinstance(p, Tensor) for p in parts):
        return to.b.concat(parts, dim)  # type: ignore[arg-type]
    reals = tuple(to.real(p) for p in args["tensors"])
    return Combined(reals, sizes(node), lambda ts, quant: to.b.concat(ts, dim))


def _one_rank(q: Ask) -> str | None:
    ranks = {fake(p).dim() for p in q.args["tensors"]}
    return None if len(ranks) == 1 else f"ranks {sorted(ranks)}"


define(
    "cat",
    (aten.cat.default,),
    _cat,
    (Constraint("parts of one rank", _one_rank),),
    reads=ANY,
    quantization=dict.fromkeys((aten.cat.default, aten.stack.default), Joined()),
)


def _pad(to: Lowering, node: Node, args: Args) -> Value:
    value, rank = to.value(args["self"]), fake(node).dim()
    pads, number = args["pad"], args["value"]
    amounts = {rank - 1 - i: (pads[2 * i], pads[2 * i + 1]) for i in range(len(pads) // 2)}

    def padded(t: Tensor, around: int) -> Tensor:
        cut = {d: (min(b, 0), min(a, 0)) for d, (b, a) in amounts.items()}
        t = to.b.slice(
            t,
            {d: -b for d, (b, _) in cut.items()},
            {d: t.shape[d] + b + a for d, (b, a) in cut.items()},
        )
        grown = {d: (max(b, 0), max(a, 0)) for d, (b, a) in amounts.items()}
        return to.b.pad(t, grown, around)

    if isinstance(value, Tensor):
        return padded(value, int(number))
    return Combined(
        (value,), sizes(node), lambda ts, quant: padded(ts[0], quant.number(float(number)))
    )


define("constant_pad_nd", (aten.constant_pad_nd.default,), _pad, reads=ANY, quantization=SAME_SCALE)


def _split(to: Lowering, node: Node, args: Args) -> tuple[Value, ...]:
    value = to.value(args["self"])
    rank = fake(node.args[0]).dim()  # type: ignore[arg-type]
    dim, start, found = args["dim"] % rank, 0, []
    for size in args["split_sizes"]:
        shape = list(value.shape)
        shape[dim] = size

        def move(t: Tensor, start: int = start, size: int = size) -> Tensor:
            return to.b.slice(t, {dim: start}, {dim: size})

        if isinstance(value, (Tensor, Stored, Mapped)):
            found.append(moved(node, value, move))
        else:
            found.append(Combined((value,), tuple(shape), lambda ts, q, move=move: move(ts[0])))  # type: ignore[misc]
        start += size
    return tuple(found)


define("split_with_sizes_copy", (aten.split_with_sizes_copy.default,), _split, reads=ANY)

__all__ = ["Constant", "moved", "sizes"]
