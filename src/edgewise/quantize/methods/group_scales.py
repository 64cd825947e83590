"""Scales of groups of weights by least squares; weights that are integers times a scale already.

For integers q of a group w, the scale that fits best is s = w.q / q.q, and what is left of w's
square is w.w - (w.q)^2 / q.q. So of several ways to round a group, that with the largest
(w.q)^2 / q.q is nearest to it. Those that are tried make the largest weight 7, 7.5, 8 or 8.5 steps
(for 4 bits): to clip it a little, or to use all of the negative range, is often nearer than
torchao's 7.5. The sums weigh each error by |w|^1.5: without, the few large weights that some layers
live of are clipped too easily. Of the powers 0, 1, 1.5 and 2 it is the one that loses least on any
network of `benchmarks/accuracy.py` (0.4 dB, and up to 1.6 won).

Weights of quantized checkpoints are whole steps of some scale: rounding keeps these integers. A
group is on such a grid if w / s is whole for all of it, for the scale s that makes its largest
weight k, 1 <= k < 2 ** bits. Weights that never were quantized are not: by chance, 32 numbers are
all within 1/16 of whole ones in one group of 1e27.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor

_NEAR = 1 / 16
"""In steps: weights that were stored in bfloat16 behind their multiplication are so near."""
_SAMPLE = 16
"""Groups that are looked at first."""
_AT_ONCE = 4096
"""Groups, for caches."""


def fit_groups(stored: Any, weight: Tensor, bits: int) -> None:
    """Gives the groups of a weight nearer integers and scales, in place.

    stored: what torchao's symmetric `IntxWeightOnlyConfig`, or that with 8-bit activations, made of
    `weight`, [out, in]. Scales are rounded to the type that it holds them in. Groups of zeros, or
    of what is not finite, stay as they are.
    """
    group = int(stored.block_size[1])
    rows = weight.detach().reshape(-1, group)
    limit = 1 << (bits - 1)
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    has_grid = bool((_grid(sample.float().t(), limit) > 0).any())
    integers, scales = stored.qdata.view(rows.shape), stored.scale.view(-1)
    with torch.no_grad():
        for first in range(0, len(rows), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            # Sums run over the first dimension: many groups side by side.
            groups = rows[part].float().t().contiguous()
            kept = _fitted(groups, limit, has_grid).to(scales.dtype)
            is_found = kept > 0
            made = _rounded(groups, torch.where(is_found, kept, 1).float(), limit)
            integers[part] = torch.where(is_found, made, integers[part].t()).t().to(integers.dtype)
            scales[part] = torch.where(is_found, kept, scales[part])


def _fitted(groups: Tensor, limit: int, has_grid: bool) -> Tensor:
    """The best scales [groups], of [n, groups]; 0 where there is none."""
    largest = groups.abs().amax(0)
    units = groups / largest  # no square is beyond the range of floats
    tried: list[Any] = [1 / (limit + more) for more in (-1, -0.5, 0, 0.5)]
    if has_grid:
        on_grid = _grid(units, limit)
        tried.append(torch.where(on_grid > 0, on_grid, 1))
    counts = units.abs()
    counts *= counts.sqrt()
    counted = units * counts
    best, found = torch.zeros_like(largest), torch.zeros_like(largest)
    for scale in tried:
        made = _rounded(units, scale, limit)
        product = (counted * made).sum(0)
        square = made.square_().mul_(counts).sum(0)
        gain = product.square() / square
        is_better = gain > best  # no NaN is
        best = torch.where(is_better, gain, best)
        found = torch.where(is_better, product / square, found)
    scales: Tensor = found * largest.nan_to_num(0)
    return scales


def _rounded(groups: Tensor, scale: Any, limit: int) -> Tensor:
    made: Tensor = (groups / scale).round_().clamp_(-limit, limit - 1)
    return made


def _grid(groups: Tensor, limit: int) -> Tensor:
    """The scales [groups] of groups [n, groups] that are on a grid; 0 for the others."""
    found = torch.zeros(groups.shape[1])
    left, largest = torch.arange(groups.shape[1]), groups.abs().amax(0)
    # Counts below half of the limit are on the grids of their multiples. The limit itself comes
    # behind its half: there is no such positive integer.
    for count in (*range(limit - 1, limit // 2 - 1, -1), *range(limit, 2 * limit)):
        scale = largest / count
        steps = groups / scale
        fits = (steps - steps.round()).abs_().amax(0) <= _NEAR  # no NaN does
        found[left[fits]] = scale[fits]
        left, largest, groups = left[~fits], largest[~fits], groups[:, ~fits]
    return found


__all__ = ["fit_groups"]
