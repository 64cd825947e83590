"""Smooth activations and normalizations of sums, products and functions that integer units have.

For processors with a logistic function and a reciprocal root, and no table of one's own. Each
step has a scale of its own; the steps are chosen so that their roundings stay below a step of the
result for signals of ordinary spread. The arguments are those of the ATen operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from edgewise.quantize.decompose import Decomposition

aten = torch.ops.aten
Tensor = torch.Tensor

_SURE = 3.3
"""Beyond it the normal distribution is 0 or 1 within half a step of 1/256."""
_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715
_SELU = (1.6732632423543772, 1.0507009873554805)
"""Slopes of the operator, as PyTorch has them."""


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times a logistic function of a cubic: both forms of the operator within 5e-4."""
    near = torch.clamp(x, -_SURE, _SURE)
    steep = near * near * (_SLOPE * _CUBIC) + _SLOPE
    return x * torch.sigmoid(near * steep)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """The positive numbers, and an exponential function of the others."""
    below = torch.exp(_times(torch.clamp(x, max=0.0), input_scale))
    factor = alpha * scale
    return _times(torch.relu(x), scale) + (_times(below, factor) - factor)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """The larger of x and 0, and what is left, between 0 and log 2."""
    del threshold  # beyond it both are the same in float32
    beside = torch.log(torch.exp(-_times(x, beta).abs()) + 1)
    return torch.relu(x) + _times(beside, 1 / beta)


def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(_softplus(x))


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


def _power(x: Tensor, exponent: Any) -> Any:
    """Products, of the second and the third power; roots, which `split_roots` knows."""
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    return {0.5: torch.sqrt, -0.5: torch.rsqrt}.get(exponent, lambda _: NotImplemented)(x)


def _sum(x: Tensor, weight: float = 1.0) -> Tensor:
    """Over the last dimension, which stays, as a linear layer: the result has its own scale."""
    return F.linear(x, torch.full((1, x.shape[-1]), weight, dtype=x.dtype))


def _mean(x: Tensor) -> Tensor:
    return _sum(x, 1 / x.shape[-1])


def _scaled_to_one(x: Tensor, eps: float) -> Tensor:
    """x divided by the root of its mean square over the last dimension."""
    return x * torch.rsqrt(_mean(x * x) + eps)


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x times the weight plus the bias, where there are any."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    del cudnn_enable
    flat = x.flatten(-len(shape)) if len(shape) > 1 else x
    normal = _scaled_to_one(flat - _mean(flat), eps)
    return affine(normal.reshape(x.shape), weight, bias)


def _rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    flat = x.flatten(-len(shape)) if len(shape) > 1 else x
    small = torch.finfo(x.dtype).eps if eps is None else eps
    return affine(_scaled_to_one(flat, small).reshape(x.shape), weight, None)


def _group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    del cudnn_enabled
    flat = x.reshape(x.shape[0], groups, -1)
    normal = _scaled_to_one(flat - _mean(flat), eps).reshape(x.shape)
    ones = [1] * (x.dim() - 2)
    shaped = [None if p is None else p.reshape(-1, *ones) for p in (weight, bias)]
    return affine(normal, *shaped)


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
    del running_mean, running_var, momentum, cudnn_enabled
    if not use_input_stats:
        return NotImplemented
    return _group_norm(x, x.shape[1], weight, bias, eps)


SMOOTH: dict[object, Decomposition | None] = {
    aten.celu.default: lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha),
    aten.celu_.default: lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha),
    aten.elu.default: _elu,
    aten.elu_.default: _elu,
    aten.gelu.default: _gelu,
    aten.mish.default: _mish,
    aten.mish_.default: _mish,
    aten.pow.Tensor_Scalar: _power,
    aten.square.default: lambda x: x * x,
    aten.silu.default: _silu,
    aten.silu_.default: _silu,
    aten.softplus.default: _softplus,
    aten.selu.default: lambda x: _elu(x, *_SELU),
    aten.selu_.default: lambda x: _elu(x, *_SELU),
}


def _over_last(
    reduce: Callable[[Tensor], Tensor], x: Tensor, dim: Any, keepdim: bool, dtype: Any
) -> Any:
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if dtype is not None or x.dim() < 2 or [d % x.dim() for d in dims] != [x.dim() - 1]:
        return NotImplemented
    y = reduce(x)
    return y if keepdim else y.squeeze(-1)


def _mean_over_last(x: Tensor, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    return _over_last(_mean, x, dim, keepdim, dtype)


def _sum_over_last(x: Tensor, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    return _over_last(_sum, x, dim, keepdim, dtype)


def _variance(x: Tensor, dim: Any, correction: float, keepdim: bool) -> Any:
    """The mean square of what is left of each element without the mean; over any dimensions."""
    if not x.dim():
        return NotImplemented
    dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    reduced = sorted(d % x.dim() for d in dims)
    kept = [d for d in range(x.dim()) if d not in reduced]
    if not all(isinstance(x.shape[d], int) for d in reduced):
        return NotImplemented
    count = math.prod(x.shape[d] for d in reduced)
    if count <= correction:
        return NotImplemented
    rows = [x.shape[d] for d in kept] or [1]
    flat = x.permute(*kept, *reduced).reshape(*rows, -1)
    rest = flat - _mean(flat)
    result = _sum(rest * rest, 1 / (count - correction))
    if keepdim:
        return result.reshape([1 if d in reduced else x.shape[d] for d in range(x.dim())])
    return result.reshape([x.shape[d] for d in kept])


def _with_correction(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    return _variance(x, dim, 1 if correction is None else correction, keepdim)


def _over_dims(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return _variance(x, dim, int(unbiased), keepdim)


def _over_all(x: Tensor, unbiased: bool = True) -> Any:
    return _variance(x, None, int(unbiased), False)


VARIANCES: dict[object, Decomposition | None] = {
    aten.var.correction: _with_correction,
    aten.var.dim: _over_dims,
    aten.var.default: _over_all,
}
REDUCTIONS: dict[object, Decomposition | None] = {
    aten.mean.dim: _mean_over_last,
    aten.sum.dim_IntList: _sum_over_last,
}
"""For processors whose reductions have their operand's scale: linear layers have their own."""
NORMALIZATIONS: dict[object, Decomposition | None] = {
    aten.group_norm.default: _group_norm,
    aten.instance_norm.default: _instance_norm,
    aten.layer_norm.default: _layer_norm,
    aten.rms_norm.default: _rms_norm,
}

__all__ = ["NORMALIZATIONS", "REDUCTIONS", "SMOOTH", "VARIANCES"]
