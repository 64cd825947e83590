"""Sums and products that only floating point reads are computed in floating point.

A sum before a layer normalization that is quantized rounds its operands and its result, and saves
nothing where the same processor computes the normalization in floating point: the result is
converted back at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.quantize._torchao import Q_ANNOTATION_KEY
from edgewise.quantize.quantizer import TableQuantizer

aten = torch.ops.aten

_SUMS = frozenset(
    {
        aten.add.Tensor,
        aten.add_.Tensor,
        aten.sub.Tensor,
        aten.sub_.Tensor,
        aten.mul.Tensor,
        aten.mul_.Tensor,
    }
)
_VIEWS = frozenset(
    {aten.dropout.default, aten.clone.default, aten.contiguous.default, aten.detach.default}
)
"""Between a layer and what reads it; nothing at run time."""


def annotated_copy(model: GraphModule, quantizer: TableQuantizer) -> GraphModule:
    """The graph as the quantizer annotates it; the model itself is not changed."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(model.graph, {}))
    found = GraphModule(model, graph)
    for node in found.graph.nodes:
        node.meta = copy.copy(node.meta)
    return quantizer.annotate(quantizer.transform_for_annotation(found))


def read_in_float(annotated: GraphModule) -> tuple[set[Node], set[Node]]:
    """(sums, others): what is annotated and only read by operators in floating point, those that
    are sums or products themselves, and the rest. Sums may be read by such sums.

    What the model returns is read by nobody here: it may be another program's input.
    """
    sums: set[Node] = set()
    others: set[Node] = set()
    floats: set[Node] = set()
    for node in reversed(annotated.graph.nodes):
        if node.op != "call_function":
            continue
        users = list(node.users)
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        quantized = annotation is not None and annotation._annotated
        by_floats = bool(users) and all(user in floats for user in users)
        if not quantized:
            floats.add(node)
        elif by_floats and node.target in _SUMS:
            sums.add(node)
            floats.add(node)
        elif by_floats and node.target in _VIEWS:
            floats.add(node)
            others.add(node)
        elif by_floats:
            others.add(node)
    return sums, others


def keep_sums_float(
    model: GraphModule, chosen: TableQuantizer, fresh: Callable[[], TableQuantizer]
) -> bool:
    """Makes `chosen` leave such sums alone; whether there are any.

    fresh: makes quantizers with the same settings, one of which is asked what it would do.
    """
    sums, _ = read_in_float(annotated_copy(model, fresh()))
    names = frozenset(node.name for node in sums)
    if names:
        chosen.set_filter_function(_others_than(names))
    return bool(names)


def _others_than(names: frozenset[str]) -> Callable[[Any], bool]:
    return lambda node: node.name not in names


__all__ = ["annotated_copy", "keep_sums_float", "read_in_float"]
