"""Where a program computes with infinities, or the type's largest numbers instead, on
purpose: masks, added to scores or filled in."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from edgewise.edge.spellings import with_twins
from edgewise.quantize.patterns import SameScale, is_float
from edgewise.quantize.steps import LARGEST, attribute

aten = torch.ops.aten

_PASSED_ON = with_twins(
    aten.add.Scalar,
    aten.add.Tensor,
    aten.detach_.default,
    aten.fill.Scalar,
    aten.full.default,
    aten.full_like.default,
    aten.index_fill.int_Scalar,
    aten.index_put.default,
    aten.lift_fresh_copy.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.masked_scatter.default,
    aten.mul.Scalar,
    aten.mul.Tensor,
    aten.neg.default,
    aten.new_full.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.select_scatter.default,
    aten.slice_scatter.default,
    aten.sub.Tensor,
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
)
_CHOOSE = with_twins(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.amax.default,
    aten.amin.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.clamp.default,
    aten.hardtanh.default,
    aten.max_pool1d.default,
    aten.max_pool2d.default,
    aten.relu.default,
    aten.relu6.default,
)
"""Of the operators that keep a scale, those that do more than move elements."""


def infinite_values(model: GraphModule, patterns: dict[object, object]) -> frozenset[Node]:
    """The nodes whose results hold infinities or numbers almost as large: constants, and what adds,
    multiplies by, fills in or moves these.

    patterns: by operator; those that keep their operand's scale count.
    """
    found: set[Node] = set()
    for node in model.graph.nodes:
        if not is_float(node):
            continue
        if node.op == "get_attr":
            value = attribute(model, str(node.target))
            learned = isinstance(value, torch.nn.Parameter)
            if not learned and bool((value.abs() > LARGEST).any()):
                found.add(node)
            continue
        moves = isinstance(patterns.get(node.target), SameScale) and node.target not in _CHOOSE
        if node.target not in _PASSED_ON and not moves:
            continue
        large = any(isinstance(a, float) and abs(a) > LARGEST for a in node.args)
        if large or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return frozenset(found)


__all__ = ["infinite_values"]
