"""Biases are stored as int32 in the scale of the products: which must be large enough for them."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def least_scales(bias: Tensor | None, x_scale: float, bits: int = 32) -> float | Tensor:
    """Of weights for inputs with the scale `x_scale`, so that each bias takes at most half of the
    integers of `bits` bits: the other half is the products'. float64, one for each bias."""
    if bias is None:
        return 0.0
    return bias.detach().double().reshape(-1).abs() / (x_scale * 2.0 ** (bits - 2))


def in_coarser_steps(
    stored: Tensor, scales: Tensor, axis: int | None, least: float | Tensor
) -> tuple[Tensor, Tensor]:
    """The weights and their scales (float64), of which none is below `least`: what has a smaller
    one is rounded anew. axis: what the scales belong to; None for a single one.

    What that loses is nothing beside the bias, or beside a step of the result, which `least` is
    made from. Channels whose weights decayed to 1e-10 are common, and folding batch normalizations
    leaves them with biases of ordinary size.
    """
    scales = scales.double()
    needed = torch.as_tensor(least, dtype=torch.float64).reshape(-1)
    if needed.numel() > 1:  # groups of channels may share scales
        needed = needed.reshape(-1, scales.numel()).amax(0)
    if bool((needed <= scales).all()):
        return stored, scales
    coarser = torch.where(needed > scales, needed.float().double(), scales)
    shape = [1] * stored.dim()
    if axis is not None:
        shape[axis] = -1
    factors = (scales / coarser).reshape(shape)
    return (stored.double() * factors).round().to(stored.dtype), coarser


__all__ = ["in_coarser_steps", "least_scales"]
