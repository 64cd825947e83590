"""Operators that a runtime has no kernel for are made of others, where somebody knows how.

Requires the edge dialect. Ensures it: what torch's decompositions give, beyond those to core ATen,
or what is written below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.edge.bodies import transform_bodies
from edgewise.edge.fold_constants import fold_constants
from edgewise.edge.graph import calls
from edgewise.edge.normalize import CallTracer, normalize
from edgewise.edge.program import sync_outputs
from edgewise.edge.resolve_symbolic_shapes import resolve_symbolic_shapes

aten = torch.ops.aten


def lower_around(program: ExportedProgram, lacks: Callable[[Node], bool]) -> ExportedProgram:
    """Edits the program and its bodies. lacks: whether there is no kernel for a node."""
    transform_bodies(program, lambda body, _: lower_around(body, lacks))
    tracer = CallTracer(program)
    changed = False
    for node in list(calls(program.graph)):
        if not node._erased and lacks(node):
            found = smaller(node)
            changed |= found is not None and tracer.inline(node, found) is not None
    if changed:
        normalize(program)
        fold_constants(program)
        resolve_symbolic_shapes(program)
        sync_outputs(program)
    return program


def smaller(node: Node) -> dict[Any, Callable[..., Any]] | None:
    """Decompositions of the node's operator, by operator; None if nobody knows one."""
    from torch._decomp import get_decompositions

    target: Any = node.target
    if target in _OWN:
        return {target: _OWN[target]}
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return get_decompositions([target]) or None


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Not stable, as torch says of it."""
    return aten.topk.default(x, x.shape[dim], dim, descending, True)


def _sort_stable(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    return NotImplemented if stable else _sort(x, dim, descending)


def _var_mean(
    x: torch.Tensor,
    dim: list[int] | None = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    dims = dim or list(range(x.dim()))
    variance = aten.var.correction(x, dims, correction=correction, keepdim=keepdim)
    return variance, aten.mean.dim(x, dims, keepdim)


def _left_shift(x: torch.Tensor, by: Any) -> Any:
    return x * 2**by


def _right_shift(x: torch.Tensor, by: Any) -> Any:
    """Arithmetic: towards minus infinity."""
    return torch.div(x, 2**by, rounding_mode="floor")


def _remainder(x: torch.Tensor, y: Any) -> Any:
    """Of integers, with the divisor's sign."""
    if x.is_floating_point():
        return NotImplemented
    return x - torch.div(x, y, rounding_mode="floor") * y


def _add(a: torch.Tensor, b: torch.Tensor, *, alpha: Any = 1) -> Any:
    """The product first, which is then of as many elements as the sum."""
    if alpha == 1:
        return NotImplemented
    kind = torch.result_type(a, b)
    return aten.add.Tensor(aten.mul.Scalar(b.to(kind), alpha).to(kind), a)


def _scatter(x: torch.Tensor, dim: int, index: torch.Tensor, source: Any) -> Any:
    """With indices of int64, as for `gather`. source: a tensor or a number."""
    if index.dtype == torch.int64:
        return NotImplemented
    return torch.scatter(x, dim, index.long(), source)


def _scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    if index.dtype == torch.int64:
        return NotImplemented
    return aten.scatter_add.default(x, dim, index.long(), source)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """Of float64, and of bfloat16 in float32."""
    if x.dtype == torch.bfloat16:
        return aten._log_softmax(x.float(), dim, False).to(x.dtype)
    if x.dtype != torch.float64:
        return NotImplemented
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return aten.clone.default(x)
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _resized_bytes(
    x: torch.Tensor, output_size: Any, align_corners: bool, *scales: float | None
) -> Any:
    """Integers in float32, rounded."""
    if x.is_floating_point():
        return NotImplemented
    wide = aten._upsample_bilinear2d_aa.default(x.float(), output_size, align_corners, *scales)
    return wide.round().clamp(0, 255).to(x.dtype)


def _gather(x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Any:
    """With indices of int64, which kernels take everywhere."""
    if index.dtype == torch.int64:
        return NotImplemented
    return aten.gather.default(x, dim, index.long())


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums and means: a matrix of which row is in which bag, times the rows. Of finite tables."""
    if mode not in (_SUM, _MEAN):
        return NotImplemented
    bags = offsets.shape[0] - int(include_last_offset)
    positions = torch.arange(indices.shape[0], device=indices.device)
    bag = (positions[:, None] >= offsets[None, :bags]).sum(1) - 1
    inside = torch.arange(bags, device=indices.device)[:, None] == bag[None]
    if padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    count, share = inside.sum(1), inside.to(weight.dtype)
    if per_sample_weights is not None:
        share = share * per_sample_weights
    result = share @ aten.embedding.default(weight, indices)
    if mode == _MEAN:
        result = result / count.clamp(min=1)[:, None].to(weight.dtype)
    return result, bag, count, count


_SUM, _MEAN = 0, 1


def _adaptive_max_pool2d(x: torch.Tensor, output_size: list[int]) -> Any:
    """The greatest of what is gathered for each window, the last rows and columns repeated."""
    (height, width), (rows, columns) = x.shape[-2:], output_size
    y, x_ = _windows(height, rows), _windows(width, columns)
    positions = (y[:, None, :, None] * width + x_[None, :, None]).reshape(rows * columns, -1)
    greatest, at = x.flatten(-2)[..., positions].max(-1)
    found = positions.expand(*at.shape, -1).gather(-1, at[..., None])
    shape = (*x.shape[:-2], rows, columns)
    return greatest.reshape(shape), found.reshape(shape)


def _windows(size: int, count: int) -> torch.Tensor:
    """[count, longest]: positions of each window, the last one repeated to the longest's length."""
    i = torch.arange(count)
    start, end = i * size // count, ((i + 1) * size + count - 1) // count
    longest = max(-(-(k + 1) * size // count) - k * size // count for k in range(count))
    return torch.minimum(start[:, None] + torch.arange(longest), end[:, None] - 1)


_OWN: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: _add,
    aten._upsample_bilinear2d_aa.default: _resized_bytes,
    aten.scatter.src: _scatter,
    aten.scatter.value: _scatter,
    aten.scatter_add.default: _scatter_add,
    aten._log_softmax.default: _log_softmax,
    aten.sort.default: _sort,
    aten.sort.stable: _sort_stable,
    aten.var_mean.correction: _var_mean,
    aten.remainder.Scalar: _remainder,
    aten.remainder.Tensor: _remainder,
    aten.gather.default: _gather,
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten.adaptive_max_pool2d.default: _adaptive_max_pool2d,
    aten.bitwise_left_shift.Tensor: _left_shift,
    aten.bitwise_left_shift.Tensor_Scalar: _left_shift,
    aten.bitwise_right_shift.Tensor: _right_shift,
    aten.bitwise_right_shift.Tensor_Scalar: _right_shift,
}
