"""Sums, means, minima and maxima over dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgewise.backends.neutron.lowering.context import Lowering, Real, Tensor, moved
from edgewise.backends.neutron.lowering.table import SAME_QUANTIZATION, define
from edgewise.backends.neutron.tflite.schema import BuiltinOperator, ReducerOptions
from edgewise.operators.arguments import reduced_dims
from edgewise.quantize.patterns import SAME_SCALE

aten = torch.ops.aten


def _reduce(to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator) -> Real:
    keep = bool(args.get("keepdim"))

    def reduce(x: Tensor) -> Tensor:
        gone = reduced_dims(args.get("dim"), len(x.order))
        axes = to.ints(f"{node.name}_axes", sorted(x.axis(d) for d in gone))
        shape = tuple(1 if d in gone else n for d, n in enumerate(x.shape))
        made = to.result(node, shape, x.order, x.quant)
        made = to.add(code, [x, axes], made, ReducerOptions(True))
        if keep:
            return made
        rest = tuple(n for d, n in enumerate(shape) if d not in gone)
        return to.reshape(made, rest, f"{node.name}_squeezed")

    return moved(to.real(args["self"]), reduce)


for _name, _targets, _code in (
    ("mean", (aten.mean.dim, aten.mean.default), BuiltinOperator.MEAN),
    ("sum", (aten.sum.dim_IntList, aten.sum.default), BuiltinOperator.SUM),
    ("amax", (aten.amax.default,), BuiltinOperator.REDUCE_MAX),
    ("amin", (aten.amin.default,), BuiltinOperator.REDUCE_MIN),
):

    def _one(to: Lowering, node: Node, args: dict[str, Any], code: BuiltinOperator = _code) -> Real:
        return _reduce(to, node, args, code)

    define(
        _name,
        _targets,
        _one,
        (SAME_QUANTIZATION,),
        quantization=SAME_SCALE,
        also=f"{_code.name}, RESHAPE",
    )
