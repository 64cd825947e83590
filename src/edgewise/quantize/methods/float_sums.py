"""Sums and products that only floating point reads, or makes, are computed in floating point.

A sum before a layer normalization that is quantized rounds its operands and its result, and saves
nothing where the same processor computes the normalization in floating point: the result is
converted back at once. So does a product behind a normalization.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FloatNeighbours:
    """Of an annotated graph, what floating point surrounds.

    sums: sums and products that nothing but operators in floating point reads, or that read
    nothing but their results and constants; such sums count as floating point themselves.
    read: what else is annotated and only read in floating point.

    What the model returns, and its inputs, are another program's matter: they count as integers.
    """

    sums: frozenset[Node]
    read: frozenset[Node]


def float_neighbours(annotated: GraphModule) -> FloatNeighbours:
    """annotated: what a quantizer's `annotate` returned."""
    sums: set[Node] = set()
    calls = [node for node in annotated.graph.nodes if node.op == "call_function"]
    floats = {node for node in calls if not _is_quantized(node)}
    for node in calls:
        sources = [n for n in node.all_input_nodes if n.op != "get_attr"]
        if node.target in _SUMS and sources and floats.issuperset(sources):
            sums.add(node)
            floats.add(node)
    read: set[Node] = set()
    for node in reversed(calls):
        if node in floats or not node.users or not floats.issuperset(node.users):
            continue
        if node.target in _SUMS:
            sums.add(node)
            floats.add(node)
            continue
        read.add(node)
        if node.target in _VIEWS:
            floats.add(node)
    return FloatNeighbours(frozenset(sums), frozenset(read))


def _is_quantized(node: Node) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return annotation is not None and annotation._annotated


def keep_sums_float(
    model: GraphModule, chosen: TableQuantizer, fresh: Callable[[], TableQuantizer]
) -> bool:
    """Makes `chosen` leave such sums alone; whether there are any.

    fresh: makes quantizers with the same settings, one of which is asked what it would do.
    """
    sums = float_neighbours(annotated_copy(model, fresh())).sums
    names = frozenset(node.name for node in sums)
    if names:
        chosen.set_filter_function(_others_than(names))
    return bool(names)


def _others_than(names: frozenset[str]) -> Callable[[Any], bool]:
    return lambda node: node.name not in names


__all__ = ["FloatNeighbours", "annotated_copy", "float_neighbours", "keep_sums_float"]
