"""AWQ: channels with large activations get finer steps of weights that are rounded in groups.

Behind a normalization, channel j of the activations is divided by s_j, and the weights that read it
are multiplied by the same, as in `smoothing`; here for weights of few bits and activations in
floating point:

    s_j = (mean|X_j|) ** alpha, divided by sqrt(max s * min s)

with the alpha of twenty from 0 on for which the rounded layers' results have the least error. The
division is folded into the normalization.

Source: "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration",
https://arxiv.org/abs/2306.00978, equations 4 and 5, and the normalization of its authors' code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from edgewise.quantize.methods.moments import moments
from edgewise.quantize.methods.smoothing import NormedLayers, normed_layers
from edgewise.quantize.methods.statistics import mean_by_channel
from edgewise.quantize.observers import LEAST

Tensor = torch.Tensor

CHOICES = 20
_SMALLEST = 1e-4


def awq(
    model: GraphModule, batches: Iterable[Sequence[Any]], group_size: int, bits: int = 4
) -> bool:
    """In place, behind normalizations that nothing but linear layers reads; whether there were any.
    The graph computes what it did.

    model: `torch.export.export(...).module()`. batches: tuples of inputs. group_size, bits: how
    the weights will be rounded.
    """
    held = list(batches)
    groups = [group for group in normed_layers(model) if not group.shared]
    if not groups:
        return False
    axes = {group.norm: group.norm.meta["val"].dim() - 1 for group in groups}
    means = mean_by_channel(model, axes, held, magnitudes=True)
    groups = [group for group in groups if group.norm in means]
    second = moments(model, [group.layers[0] for group in groups], held)
    for group in groups:
        seen = means[group.norm].float()
        group.divide(_best_factors(group, seen, second[group.layers[0].node][0], group_size, bits))
    return bool(groups)


def awq_factors(mean: Tensor, alpha: float) -> Tensor:
    """s_j of the mean magnitudes: [channels]."""
    factors = mean.clamp(min=_SMALLEST) ** alpha
    return factors / (factors.amax() * factors.amin()).sqrt()


def rounded_in_groups(weight: Tensor, group_size: int, bits: int = 4) -> Tensor:
    """The weight [out, in] as symmetric integers stand for it, as torchao's
    `IntxWeightOnlyConfig` rounds it."""
    limit = 2 ** (bits - 1)
    groups = weight.reshape(len(weight), -1, group_size)
    scale = (groups.abs().amax(2, keepdim=True) / (limit - 0.5)).clamp(min=LEAST)
    found: Tensor = (groups / scale).round().clamp(-limit, limit - 1) * scale
    return found.flatten(1)


def _best_factors(
    group: NormedLayers, mean: Tensor, second: Tensor, group_size: int, bits: int
) -> Tensor:
    best: tuple[float, Tensor] | None = None
    for index in range(CHOICES):
        factors = awq_factors(mean, index / CHOICES)
        error = 0.0
        for layer in group.layers:
            weight = layer.stored
            change = rounded_in_groups(weight * factors, group_size, bits) / factors - weight
            error += float(((change @ second) * change).sum())
        if best is None or error < best[0]:
            best = error, factors
    assert best is not None
    return best[1]


__all__ = ["awq", "awq_factors", "rounded_in_groups"]
