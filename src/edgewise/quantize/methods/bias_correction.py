"""Bias correction: what rounded weights add to the mean of a layer's result is taken off its bias.

With the rounded weight W' and E[x] the mean of what the layer reads, by channel,

    b' = b - (W' - W) E[x]

Of convolutions the elements of a filter are summed before, as if there were no padding.

Source: "Data-Free Quantization Through Weight Equalization and Bias Correction",
https://arxiv.org/abs/1906.04721, section 4.2 (equation 17), with means of calibration data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from edgewise.quantize.methods.layers import Layer, replace
from edgewise.quantize.methods.observed import observed_layers
from edgewise.quantize.methods.statistics import mean_by_channel
from edgewise.quantize.steps import constant

Tensor = torch.Tensor


def correct_biases(prepared: GraphModule, batches: Iterable[Sequence[Any]]) -> bool:
    """In place; whether there were layers with integer weights.

    prepared: what `prepare_pt2e` made, calibrated. batches: tuples of inputs. Layers without a
    bias get one.
    """
    found = list(observed_layers(prepared))
    axes = {one.layer.activation: one.layer.channel_axis for one in found}
    means = mean_by_channel(prepared, axes, batches) if axes else {}
    found = [one for one in found if one.layer.activation in means]
    for one in found:
        shift = bias_shift(one.layer, one.rounded() - one.layer.stored, means[one.layer.activation])
        _subtract(one.layer, shift)
    if found:
        prepared.recompile()
    return bool(found)


def bias_shift(layer: Layer, error: Tensor, mean: Tensor) -> Tensor:
    """(W' - W) E[x]: [out], in float64. error: as the weight is stored. mean: [in]."""
    by_group = layer.grouped(error).double().sum(3)
    return torch.einsum("goi,gi->go", by_group, mean.reshape(layer.groups, -1)).flatten()


def _subtract(layer: Layer, shift: Tensor) -> None:
    stored = layer.stored_bias
    if stored is not None and layer.bias is not None:
        replace(layer.model, layer.bias, (stored.double() - shift).to(stored.dtype))
        return
    value = torch.nn.Parameter(-shift.to(layer.stored.dtype), requires_grad=False)
    with layer.model.graph.inserting_before(layer.node):
        made = constant(layer.model, layer.node, value)
    rest = layer.node.args[3:]
    layer.node.args = (*layer.node.args[:2], made, *rest)


__all__ = ["bias_shift", "correct_biases"]
