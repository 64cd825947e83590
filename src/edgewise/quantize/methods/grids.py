"""Weights that are integers times a scale already, as those of quantized checkpoints are when they
are read: rounding them keeps these integers instead of finding others.

A group of weights is on such a grid if w / s is whole for all of them, for the scale s that makes
its largest one k, 1 <= k < 2 ** bits. Weights that never were quantized are not: by chance, 32
numbers are all within 1/16 of whole ones in one group of 1e27.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor

_NEAR = 1 / 16
"""In steps: weights that were stored in bfloat16 behind their multiplication are so near."""
_SAMPLE = 16
"""Rows that are looked at first."""
_AT_ONCE = 4096
"""Groups, for caches."""


def keep_grids(stored: Any, weight: Tensor, bits: int) -> bool:
    """Gives the groups of a weight that are on a grid its integers and scales, in place.

    stored: what torchao's symmetric `IntxWeightOnlyConfig`, or that with 8-bit activations, made of
    `weight`, [out, in]. Returns whether there are any. Weights that are more steps than there are
    integers for, such as 8 (Q4_0's largest), or those of grids that are not symmetric, become the
    last integer, where the group is nearer to what it was than torchao's so.
    """
    group = int(stored.block_size[1])
    rows = weight.detach().reshape(weight.shape[0], -1, group)
    limit = 1 << (bits - 1)
    sample = rows[:: max(1, len(rows) // _SAMPLE)].flatten(0, 1)
    if not bool((_scales(sample.float(), limit) > 0).any()):
        return False
    integers, scales = stored.qdata.view(rows.shape), stored.scale.view(rows.shape[:2])
    many = max(1, _AT_ONCE // rows.shape[1])
    with torch.no_grad():
        for first in range(0, len(rows), many):
            part = slice(first, first + many)
            _keep(rows[part].float(), integers[part], scales[part], limit)
    return True


def _keep(rows: Tensor, integers: Tensor, scales: Tensor, limit: int) -> None:
    """Some rows [out, groups, n], of integers like them and scales [out, groups], in place."""
    on_grid = _scales(rows.flatten(0, 1), limit).view(scales.shape)
    found = on_grid > 0
    step = torch.where(found, on_grid, 1).unsqueeze(-1)
    made = (rows / step).round().clamp(-limit, limit - 1)
    # The scale that fits best, in the type that it is kept in.
    fitted = (rows * made).sum(-1) / made.square().sum(-1).clamp(min=1)
    fitted = fitted.to(scales.dtype)
    error = (made * fitted.float().unsqueeze(-1) - rows).square().sum(-1)
    before = integers.float() * scales.float().unsqueeze(-1)
    found &= error <= (before - rows).square().sum(-1)
    integers.copy_(torch.where(found.unsqueeze(-1), made, integers))
    scales.copy_(torch.where(found, fitted, scales))


def _scales(groups: Tensor, limit: int) -> Tensor:
    """[groups], of [groups, n] that are on a grid; 0 for the others."""
    found = torch.zeros(len(groups))
    left = torch.arange(len(groups))
    # Counts below half of the limit are on the grids of their multiples. The limit itself comes
    # behind its half: there is no such positive integer.
    for count in (*range(limit - 1, limit // 2 - 1, -1), *range(limit, 2 * limit)):
        scale = groups.abs().amax(-1) / count
        steps = groups / scale.unsqueeze(-1)
        fits = (steps - steps.round()).abs().amax(-1) <= _NEAR  # no NaN does
        found[left[fits]] = scale[fits]
        left, groups = left[~fits], groups[~fits]
    return found


__all__ = ["keep_grids"]
