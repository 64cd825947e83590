"""Softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering import Computed, Lowering, Real
from edgewise.backends.neutron.table import Constraint, OpRow, Query, add_row, along_dim
from edgewise.backends.neutron.targets import SOFTMAX_POSITIONS_LIMIT, SOFTMAX_SIZE_LIMIT
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, SoftmaxOptions

aten = torch.ops.aten


def _softmax(to: Lowering, node: Node, args: dict[str, Any]) -> Real:
    x = to.tensor(args["self"])
    rank = len(x.order)
    dim = args["dim"] % rank
    # TFLite sums over the last dimension.
    order = tuple(d for d in x.order if d != dim)
    x = to.in_order(x, (*order, dim))
    made: Real = Computed(
        lambda quant, _: to.add(
            BuiltinOperator.SOFTMAX,
            [x],
            to.result(node, x.shape, x.order, quant),
            SoftmaxOptions(1.0),
        )
    )
    return made


def _softmax_result(q: Query) -> str | None:
    fixed = (q.result.scale, q.result.zero_point) == (1 / 256, -128)
    return None if fixed else str(q.result)


def _softmax_dim(q: Query) -> str | None:
    rank = len(q.shape)
    allowed = {1, rank - 1} if rank == 4 else {rank - 1}
    dim = q.args["dim"] % rank if rank else 0
    return None if dim in allowed else f"dim={q.args['dim']} of {rank}-D"


def _softmax_sizes(q: Query) -> str | None:
    target = q.rules.target
    assert target.macs is not None
    assert target.pipes is not None
    size = q.shape[q.args["dim"]]
    rows = math.prod(q.shape) // max(size, 1)
    if size % target.macs:
        return f"{size} channels, no multiple of {target.macs}"
    if size >= 4096 / target.pipes * 4:
        return f"{size} channels, not below {4096 // target.pipes * 4}"
    if rows > SOFTMAX_POSITIONS_LIMIT:
        return f"{rows} rows, above {SOFTMAX_POSITIONS_LIMIT}"
    if size * rows / target.macs > SOFTMAX_SIZE_LIMIT:
        return f"{size * rows} elements, above {SOFTMAX_SIZE_LIMIT * target.macs}"
    return None


def _at_least_2d(q: Query) -> str | None:
    return None if len(q.shape) >= 2 else f"{len(q.shape)}-D"


add_row(
    OpRow(
        "softmax",
        (aten._softmax.default,),
        _softmax,
        (
            Constraint("at least two dimensions", _at_least_2d),
            Constraint("dim is the last dimension, or the channels of an image", _softmax_dim),
            Constraint("sizes within the target's limits", _softmax_sizes),
            Constraint(
                "a result with the scale 1/256 and the zero point -128",
                _softmax_result,
                "NeutronQuantizer, which fixes it",
            ),
        ),
        along=along_dim,
        tflite="SOFTMAX",
    )
)
