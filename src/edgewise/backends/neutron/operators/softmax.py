"""Softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Computed, Lowering, Real, Tensor
from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.lowering.table import (
    Constraint,
    Query,
    along_dim,
    define,
    fine_operand,
)
from edgewise.backends.neutron.targets import (
    SOFTMAX_POSITIONS_LIMIT,
    SOFTMAX_SIZE_LIMIT,
    NeutronTarget,
)
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    BuiltinOperator,
    ConcatenationOptions,
    SoftmaxOptions,
)
from edgewise.partition.constraints import HAS_DIMS
from edgewise.quantize.patterns import ZERO_TO_ONE

aten = torch.ops.aten


def _softmax(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["self"])
    rank = len(x.order)
    dim = args["dim"] % rank
    # TFLite sums over the last dimension.
    order = tuple(d for d in x.order if d != dim)
    x = to.in_order(x, (*order, dim))

    def one(part: Tensor, quant: Quant) -> Tensor:
        made = to.result(node, part.shape, part.order, quant)
        return to.add(BuiltinOperator.SOFTMAX, [part], made, SoftmaxOptions(1.0))

    def emit(quant: Quant, _: Activation) -> Tensor:
        cut = _cut(x.shape, dim)
        if cut is None:
            return one(x, quant)
        along, count = cut
        pieces = [
            (start, min(count, x.shape[along] - start)) for start in range(0, x.shape[along], count)
        ]
        parts = [one(to.cut(x, {along: piece}, f"{node.name}_rows"), quant) for piece in pieces]
        made = to.result(node, x.shape, x.order, quant)
        options = ConcatenationOptions(made.axis(along), Activation.NONE)
        return to.add(BuiltinOperator.CONCATENATION, parts, made, options)

    made: Real = Computed(emit)
    return made


def _cut(shape: Sequence[int], dim: int) -> tuple[int, int] | None:
    """The dimension to cut along and how many of its indices a piece has, so that no piece has
    more rows than the NPU takes; None if the whole has not. (-1, 0): no dimension does."""
    rows = math.prod(shape) // max(shape[dim], 1)
    if rows <= SOFTMAX_POSITIONS_LIMIT:
        return None
    others = [d for d in range(len(shape)) if d != dim]
    along = max(others, key=lambda d: shape[d])
    count = SOFTMAX_POSITIONS_LIMIT // (rows // shape[along])
    return (along, count) if count else (-1, 0)


def _softmax_result(q: Query) -> str | None:
    fixed = (q.result.scale, q.result.zero_point) == (1 / 256, -128)
    return None if fixed else str(q.result)


def _softmax_dim(q: Query) -> str | None:
    rank = len(q.shape)
    allowed = {1, rank - 1} if rank == 4 else {rank - 1}
    dim = q.args["dim"] % rank if rank else 0
    return None if dim in allowed else f"dim={q.args['dim']} of {rank}-D"


def _softmax_sizes(q: Query) -> str | None:
    if not q.shape:
        return None
    macs, size = q.rules.target.macs, q.shape[q.args["dim"]]
    assert macs is not None
    above = above_limits(q.shape, q.args["dim"], q.rules.target)
    if above is None and size % macs:
        return f"{size} channels, no multiple of {macs}"
    return above


def above_limits(shape: Sequence[int], dim: int, target: NeutronTarget) -> str | None:
    """What of a softmax's sizes is above the target's limits; None if nothing is."""
    assert target.macs is not None
    assert target.pipes is not None
    size = shape[dim]
    rows = math.prod(shape) // max(size, 1)
    if size >= 4096 / target.pipes * 4:
        return f"{size} channels, not below {4096 // target.pipes * 4}"
    if (_cut(shape, dim % len(shape)) or (0, 0))[0] < 0:
        return f"{rows} rows that cannot be cut to {SOFTMAX_POSITIONS_LIMIT}"
    rows = min(rows, SOFTMAX_POSITIONS_LIMIT)
    if size * rows / target.macs > SOFTMAX_SIZE_LIMIT:
        return f"{size * rows} elements, above {SOFTMAX_SIZE_LIMIT * target.macs}"
    return None


define(
    "softmax",
    (aten._softmax.default,),
    _softmax,
    (
        HAS_DIMS,
        Constraint("dim is the last dimension, or the channels of an image", _softmax_dim),
        Constraint("sizes within the target's limits", _softmax_sizes),
        Constraint(
            "a result with the scale 1/256 and the zero point -128",
            _softmax_result,
            "NeutronQuantizer, which fixes it",
        ),
        fine_operand(-25),
    ),
    along=along_dim,
    also="SOFTMAX; of many rows in pieces, CONCATENATION",
    quantization=ZERO_TO_ONE,
)
