"""Outputs of a layer that floating point reads get a scale for each channel.

The kernel of a layer has one scale for all that it computes. If a few output channels are far
larger than the others, and what reads them computes in floating point, the rows of the weight
(and the bias) are divided by the size of their channel, so that all channels fill the range, and
the result is multiplied by it in floating point:

    W x + b = r * ((W / r) x + b / r),    r_c = max|(W x + b)_c| / max over c of the same

Weights with a scale for each output channel lose nothing by it: the scale takes the factor. The
product is one more operation on the result, so this is done only where channels differ much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from edgewise.quantize.methods.float_sums import annotated_copy, float_neighbours
from edgewise.quantize.methods.layers import Layer, layers_of
from edgewise.quantize.methods.statistics import largest_by_channel
from edgewise.quantize.quantizer import TableQuantizer
from edgewise.quantize.steps import constant, step

aten = torch.ops.aten

UNEVEN = 8.0
"""A largest channel so many times as large as the median one is worth a product."""

SMALLEST = 2.0**-10
"""Of the factors: a channel that is all but constant needs no range of its own."""


def scale_outputs(
    model: GraphModule,
    batches: Iterable[Sequence[Any]],
    fresh: Callable[[], TableQuantizer],
    uneven: float = UNEVEN,
) -> bool:
    """In place; whether there were any such layers. The graph computes what it did.

    model: `torch.export.export(...).module()`. batches: tuples of inputs. fresh: makes the
    quantizer that will annotate the graph, to know what stays in floating point. uneven: how
    many times as large as the median a layer's largest channel must be.
    """
    read = float_neighbours(annotated_copy(model, fresh())).read
    names = {node.name for node in read}
    layers = [one for one in layers_of(model) if one.is_linear and one.node.name in names]
    axes = {layer.node: layer.channel_axis for layer in layers}
    largest = largest_by_channel(model, axes, batches) if axes else {}
    changed = False
    for layer in layers:
        if layer.node not in largest:
            continue
        seen = largest[layer.node]
        top = seen.amax()
        if top < uneven * seen.median() or not bool(top > 0):
            continue
        factors = output_factors(seen)
        layer.multiply(outputs=1 / factors)
        _multiply_result(model, layer, factors)
        changed = True
    if changed:
        model.recompile()
    return changed


def output_factors(largest: torch.Tensor) -> torch.Tensor:
    """r_c of the largest magnitudes of the channels."""
    return (largest / largest.amax()).clamp(min=SMALLEST)


def _multiply_result(model: GraphModule, layer: Layer, factors: torch.Tensor) -> Node:
    node = layer.node
    users = list(node.users)
    with model.graph.inserting_after(node):
        kept = constant(model, node, factors.to(layer.stored.dtype))
    with model.graph.inserting_after(kept):
        made = step(node, aten.mul.Tensor, node, kept)
    for user in users:
        user.replace_input_with(node, made)
    return made


__all__ = ["SMALLEST", "UNEVEN", "output_factors", "scale_outputs"]
