"""Softmax, variances and normalizations in steps, each of which is quantized.

For backends that compute them as one operator in 8 bits only: of 16 bits each step keeps enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.quantize.decompose import Decomposition
from edgewise.quantize.smooth_and_norms import affine

aten = torch.ops.aten


def _exponentials(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """How far the numbers are below the largest, the exponentials of that, and their sum."""
    below = x - x.amax(dim, keepdim=True)
    parts = below.exp()
    return below, parts, parts.sum(dim, keepdim=True)


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    if x.dim() == 0:
        return NotImplemented
    _, parts, total = _exponentials(x, dim)
    return parts * total.reciprocal()


def _log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    if x.dim() == 0:
        return NotImplemented
    below, _, total = _exponentials(x, dim)
    return below - total.log()


def _moments(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Deviations from the mean, and the mean of their squares."""
    over = list(dims)
    deviations = x - x.mean(over, keepdim=True)
    return deviations, deviations.square().mean(over, keepdim=True)


def _layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    deviations, squares = _moments(x, tuple(range(-len(shape), 0)))
    return affine(deviations * (squares + eps).rsqrt(), weight, bias)


def _rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    squares = x.square().mean(tuple(range(-len(shape), 0)), keepdim=True)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return affine(x * (squares + eps).rsqrt(), weight, None)


def _group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    sizes = list(x.shape)
    deviations, squares = _moments(x.reshape(sizes[0], groups, -1), (2,))
    normal = (deviations * (squares + eps).rsqrt()).reshape(sizes)
    across = [-1, *[1] * (len(sizes) - 2)]
    parts = (None if p is None else p.reshape(across) for p in (weight, bias))
    return affine(normal, *parts)


def _instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    if not use_input_stats:
        return NotImplemented
    return _group_norm(x, x.shape[1], weight, bias, eps)


def _variance(x: Tensor, dims: Sequence[int] | None, correction: float, keepdim: bool) -> Any:
    dims = [d % x.dim() for d in dims or range(x.dim())]
    count = math.prod(x.shape[d] for d in dims)
    if x.dim() == 0 or count <= correction:
        return NotImplemented
    _, squares = _moments(x, dims)
    if correction:
        squares = squares * (count / (count - correction))
    return (
        squares if keepdim else squares.reshape([n for d, n in enumerate(x.shape) if d not in dims])
    )


def _var_correction(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    return _variance(x, dim, 1 if correction is None else correction, keepdim)


def _var_dim(
    x: Tensor, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False
) -> Any:
    return _variance(x, dim, int(unbiased), keepdim)


def _var(x: Tensor, unbiased: bool = True) -> Any:
    return _variance(x, None, int(unbiased), False)


STATISTICS: dict[object, Decomposition | None] = {
    aten.group_norm.default: _group_norm,
    aten.instance_norm.default: _instance_norm,
    aten.layer_norm.default: _layer_norm,
    aten.log_softmax.int: _log_softmax,
    aten.rms_norm.default: _rms_norm,
    aten.softmax.int: _softmax,
    aten.var.correction: _var_correction,
    aten.var.default: _var,
    aten.var.dim: _var_dim,
}
