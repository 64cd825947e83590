"""AdaRound: each weight is rounded up or down for the least error of the layer's result.

The rounded weight is s (floor(W / s) + h(V)), with the rectified sigmoid
h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1) of a learned V, and the loss

    E |(W' - W) x|^2 + lambda sum(1 - |2 h(V) - 1| ** beta)

where beta falls from 20 to 2, so that at the end each h is 0 or 1. V starts where W' = W.

Source: "Up or Down? Adaptive Rounding for Post-Training Quantization",
https://arxiv.org/abs/2004.10568, equations 21 to 25. The expectation is taken by second moments
(`moments`), the optimizer is Adam.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from edgewise.quantize.methods.moments import moments
from edgewise.quantize.methods.observed import observed_layers

Tensor = torch.Tensor

STEPS = 300
_STRETCH = 1.2
_RATE = 0.02
_WEIGHT = 1.0
"""Of the regularizer, beside an error in units of what rounding to nearest leaves."""
_WARM = 0.2
"""Share of the steps without regularizer."""


def adaround(prepared: GraphModule, batches: Iterable[Sequence[Any]], steps: int = STEPS) -> bool:
    """In place; whether there were layers with integer weights.

    prepared: what `prepare_pt2e` made, calibrated. Its scales stay. batches: tuples of inputs.
    Where the loss is not below that of rounding to nearest, that stays.
    """
    found = list(observed_layers(prepared))
    seen = moments(prepared, [one.layer for one in found], batches)
    changed = False
    for one in found:
        second = seen.get(one.layer.node)
        if second is None:
            continue
        weight = one.layer.grouped().flatten(2)
        one.set_grouped(round_adaptively(weight, one.scales(), second, one.limits, steps))
        changed = True
    return changed


def round_adaptively(
    weight: Tensor, scale: Tensor, second: Tensor, limits: tuple[int, int], steps: int = STEPS
) -> Tensor:
    """The rounded weight, in floating point.

    weight: [groups, out, in]. scale: such that it can be divided by it. second: [groups, in, in].
    limits: of the integers.
    """
    low, high = limits
    exact = weight / scale
    floor = exact.floor()
    nearest = exact.round().clamp(low, high)
    least = rounding_error((nearest - exact) * scale, second)
    start = ((exact - floor) + 0.1) / _STRETCH
    logits = torch.logit(start.clamp(1e-4, 1 - 1e-4)).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=_RATE)
    unit = max(float(least), 1e-20)
    count = weight.numel()
    for index in range(steps):
        up = rectified_sigmoid(logits)
        change = ((floor + up).clamp(low, high) - exact) * scale
        loss = rounding_error(change, second) / unit
        progress = (index / steps - _WARM) / (1 - _WARM)
        if progress > 0:
            beta = 20 + (2 - 20) * progress
            loss = loss + _WEIGHT * (1 - (2 * up - 1).abs() ** beta).sum() / count
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        chosen = (floor + (rectified_sigmoid(logits) >= 0.5)).clamp(low, high)
        better = rounding_error((chosen - exact) * scale, second) < least
        return (chosen if better else nearest) * scale


def rectified_sigmoid(logits: Tensor) -> Tensor:
    """h(V)"""
    return (_STRETCH * torch.sigmoid(logits) - 0.1).clamp(0, 1)


def rounding_error(change: Tensor, second: Tensor) -> Tensor:
    """E |D x|^2, summed over all outputs. change: [groups, out, in]."""
    return ((change @ second) * change).sum()


__all__ = ["adaround", "rectified_sigmoid", "round_adaptively", "rounding_error"]
