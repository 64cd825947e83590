"""Operators that no runtime has a kernel of and that torch does not decompose, in terms of others.

Each is a function with the operator's arguments; NotImplemented for those that it has no answer to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["DECOMPOSITIONS", "decomposes"]

aten = torch.ops.aten


def decomposes(target: Any) -> bool:
    """Whether it is decomposed here; not if somebody has registered a kernel of the operator."""
    if isinstance(target, torch._ops.OpOverload) and target._schema.name in _OF_LIBRARIES:
        DECOMPOSITIONS[target] = _OF_LIBRARIES[target._schema.name]
    if target not in DECOMPOSITIONS:
        return False
    try:
        from edgewise.runtime import Runtime
    except ImportError:  # it was not built
        return True
    name = target._schema.name
    known = Runtime.get().operator_registry.operator_names
    return not any(one.startswith(f"{name}.") for one in known)


def _addmv(x: Any, matrix: Any, vector: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * x + alpha * (matrix @ vector)


def _addbmm(x: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * x + alpha * torch.bmm(first, second).sum(0)


def _signbit(x: torch.Tensor) -> torch.Tensor:
    """Of -0.0, too, whose angle is half a turn; not of NaN."""
    if not x.is_floating_point():
        return x < 0
    return torch.atan2(torch.zeros_like(x), x) > 1


def _copysign(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    size = x.to(torch.result_type(x, other)).abs()
    return torch.where(_signbit(other), -size, size)


def _copysign_scalar(x: torch.Tensor, other: float) -> torch.Tensor:
    return -x.abs() if math.copysign(1, other) < 0 else x.abs()


def _angle(x: torch.Tensor) -> torch.Tensor:
    half = torch.where(x < 0, math.pi, 0.0)
    return torch.where(torch.isnan(x), x, half) if x.is_floating_point() else half


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    return x * torch.pow(2.0, exponent)


def _dist(x: torch.Tensor, other: torch.Tensor, p: float = 2) -> Any:
    return torch.linalg.vector_norm(x - other, p)


def _before(x: torch.Tensor, dim: int, hidden: float) -> torch.Tensor:
    """[..., n, n] of [..., n], the dimension moved there: a row of each element and those before
    it, `hidden` in the place of others."""
    x = x.movedim(dim, -1)
    count = x.shape[-1]
    is_before = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()
    return torch.where(is_before, x.unsqueeze(-2), hidden)


def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    if x.dim() == 0:
        return x.clone()
    return torch.logsumexp(_before(x, dim, -math.inf), -1).movedim(-1, dim)


def _cumulative(largest: bool) -> Callable[[torch.Tensor, int], Any]:
    """Of equal values the index is the last one's."""

    def rule(x: torch.Tensor, dim: int) -> Any:
        if x.dim() == 0:
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        if x.dtype == torch.bool:
            values, last = rule(x.to(torch.uint8), dim)
            return values.to(torch.bool), last
        hidden = -math.inf if largest else math.inf
        if not x.is_floating_point():
            limits = torch.iinfo(x.dtype)
            hidden = limits.min if largest else limits.max
        rows = _before(x, dim, hidden).flip(-1)
        values, found = rows.max(-1) if largest else rows.min(-1)
        # What is filled in may be as large as all before it.
        own = torch.arange(x.shape[dim], device=x.device)
        last = torch.minimum(x.shape[dim] - 1 - found, own)
        return values.movedim(-1, dim), last.movedim(-1, dim)

    return rule


def _kthvalue(x: torch.Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.topk(x, k, dim, largest=False)
    values, indices = (t.narrow(dim, k - 1, 1) for t in (values, indices))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    moved = x.movedim((dim1, dim2), (0, 1))
    positions = torch.arange(source.shape[-1], device=x.device)
    rows, columns = positions + max(-offset, 0), positions + max(offset, 0)
    made = moved.index_put((rows, columns), source.movedim(-1, 0))
    return made.movedim((0, 1), (dim1, dim2))


def _as_strided_scatter(
    x: torch.Tensor, src: torch.Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> torch.Tensor:
    """Strides are those of elements in order, as a program's tensors lie."""
    indices = torch.arange(x.numel()).as_strided(size, stride, storage_offset or 0)
    written = x.reshape(-1).index_put([indices.reshape(-1)], src.reshape(-1))
    return written.reshape(x.shape)


def _index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    if x.dim() == 0:
        row = _index_reduce(
            x.view(1), 0, index.view(-1), source.view(-1), reduce, include_self=include_self
        )
        return row.view(())
    if source.dim() == 0:
        source = source.view(1)
    shape = [1] * source.dim()
    shape[dim] = -1
    where = index.long().view(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, where, source, reduce, include_self=include_self)


def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)


def _put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _histc(x: torch.Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    x = x.reshape(-1)
    if min == max == 0:  # the range is that of the data
        min, max = x.min(), x.max()
        apart = torch.where(min == max, 1.0, 0.0)
        min, max = min - apart, max + apart
    elif min == max:
        min, max = min - 1, max + 1
    bin_ = ((x - min) * (bins / (max - min))).floor().clamp(max=bins - 1)
    bin_ = torch.where((x >= min) & (x <= max), bin_, -1.0)
    return (bin_ == torch.arange(bins, device=x.device)[:, None]).to(x.dtype).sum(1)


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    product: Any = 1
    for operand, dims in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in dims:
            operand = operand.unsqueeze(dim)
        product = product * operand
    return product.sum(list(sumdim)) if sumdim else product


def _normal_functional(x: Any, mean: float = 0, std: float = 1, *, generator: Any = None) -> Any:
    return torch.randn_like(x) * std + mean


def _uniform(x: Any, low: float = 0, high: float = 1, *, generator: Any = None) -> Any:
    return torch.rand_like(x) * (high - low) + low


def _exponential(x: Any, rate: float = 1, *, generator: Any = None) -> Any:
    return torch.log1p(-torch.rand_like(x)) * (-1 / rate)


def _geometric(x: Any, p: float, *, generator: Any = None) -> Any:
    return (torch.log1p(-torch.rand_like(x)) * (1 / math.log1p(-p))).floor() + 1


def _log_normal(x: Any, mean: float = 1, std: float = 2, *, generator: Any = None) -> Any:
    return torch.exp(torch.randn_like(x) * std + mean)


def _cauchy(x: Any, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Any:
    return torch.tan((torch.rand_like(x) - 0.5) * math.pi) * sigma + median


def _normal(mean: Any, std: Any, *, generator: Any = None) -> Any:
    like = mean if isinstance(mean, torch.Tensor) else std
    if isinstance(std, torch.Tensor):
        like = torch.empty(torch.broadcast_shapes(like.shape, std.shape), dtype=std.dtype)  # type: ignore[no-untyped-call]
    return torch.randn(like.shape, dtype=like.dtype, device=like.device) * std + mean


def _randint_like(x: Any, high: int, **rest: Any) -> Any:
    return _randint_like_from(x, 0, high, **rest)


def _randint_like_from(x: Any, low: int, high: int, *, dtype: Any = None, **rest: Any) -> Any:
    drawn = torch.rand(x.shape, device=x.device) * (high - low)
    return (drawn.floor().clamp(max=high - low - 1) + low).to(dtype or x.dtype)


def _multinomial(
    weights: torch.Tensor, count: Any, replacement: bool = False, *, generator: Any = None
) -> Any:
    """By the largest of logarithms with Gumbel noise."""
    shape = [*weights.shape[:-1], count, weights.shape[-1]] if replacement else weights.shape
    uniform = torch.rand(list(shape), dtype=weights.dtype, device=weights.device)
    noise = -torch.log(-torch.log(uniform.clamp(min=torch.finfo(weights.dtype).tiny)))
    scores = torch.log(weights)
    if replacement:
        return (scores.unsqueeze(-2) + noise).argmax(-1)
    return torch.topk(scores + noise, count, -1)[1]


_WRITTEN_OUT = 4
"""Up to this size an inverse is made of determinants."""
_LARGEST_MATRIX = 32
"""Each column is eliminated by calls of its own."""


def _elements(a: torch.Tensor) -> list[list[torch.Tensor]]:
    """[..., 1, 1] each, of an [..., n, n] matrix."""
    count = a.shape[-1]
    return [[a[..., i : i + 1, j : j + 1] for j in range(count)] for i in range(count)]


def _determinant_of(rows: list[list[torch.Tensor]]) -> Any:
    """By the first row."""
    if len(rows) == 1:
        return rows[0][0]
    total: Any = None
    for j, factor in enumerate(rows[0]):
        term = factor * _determinant_of([row[:j] + row[j + 1 :] for row in rows[1:]])
        total = term if total is None else (total - term if j % 2 else total + term)
    return total


def _may_be_solved(a: torch.Tensor) -> bool:
    count = a.shape[-1]
    return isinstance(count, int) and 1 <= count <= _LARGEST_MATRIX and a.is_floating_point()


def _solved(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The x of `a @ x = b`, and the determinant of a [...], for [..., n, n] and [..., n, m]."""
    if a.shape[-1] > _WRITTEN_OUT:
        return _eliminated(a, b)
    elements = _elements(a)
    count = len(elements)
    determinant = _determinant_of(elements)
    if count == 1:
        return b / a, determinant[..., 0, 0]

    def cofactor(i: int, j: int) -> Any:
        rows = [row[:j] + row[j + 1 :] for k, row in enumerate(elements) if k != i]
        minor = _determinant_of(rows)
        return -minor if (i + j) % 2 else minor

    adjugate = [torch.cat([cofactor(j, i) for j in range(count)], -1) for i in range(count)]
    return torch.cat(adjugate, -2) / determinant @ b, determinant[..., 0, 0]


def _eliminated(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_solved`, by Gauss and Jordan, with the largest pivot of each column."""
    count = a.shape[-1]
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    m = torch.cat([a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])], -1)
    rows = torch.arange(count, device=a.device)
    determinant: Any = 1.0
    for k in range(count):
        size = torch.where(rows >= k, m[..., k].abs(), -1.0)
        pivot = size.argmax(-1, keepdim=True)
        is_pivot = (rows == pivot).unsqueeze(-1)
        is_row = (rows == k).unsqueeze(-1)
        upper, lower = m[..., k : k + 1, :], torch.where(is_pivot, m, 0.0).sum(-2, keepdim=True)
        m = torch.where(is_row, lower, torch.where(is_pivot, upper, m))
        found = lower[..., k : k + 1]
        determinant = determinant * torch.where(pivot.unsqueeze(-1) == k, found, -found)
        row = lower / found
        m = torch.where(is_row, row, m - m[..., k : k + 1] * row)
    return m[..., count:], determinant[..., 0, 0]


def _identity(a: torch.Tensor) -> torch.Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def _inv_ex(a: torch.Tensor, *, check_errors: bool = False) -> Any:
    if not _may_be_solved(a):
        return NotImplemented
    inverse, determinant = _solved(a, _identity(a))
    return inverse, (determinant == 0).to(torch.int32)


def _determinant(a: torch.Tensor) -> torch.Tensor:
    if a.shape[-1] > _WRITTEN_OUT:
        return _eliminated(a, _identity(a))[1]
    found: torch.Tensor = _determinant_of(_elements(a))
    return found[..., 0, 0]


def _det(a: torch.Tensor) -> Any:
    if not _may_be_solved(a):
        return NotImplemented
    return _determinant(a), a.clone(), _no_pivots(a)


def _slogdet(a: torch.Tensor) -> Any:
    if not _may_be_solved(a):
        return NotImplemented
    determinant = _determinant(a)
    return determinant.sign(), determinant.abs().log(), a.clone(), _no_pivots(a)


def _solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    if not _may_be_solved(a):
        return NotImplemented
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    wide = b.unsqueeze(-1) if is_vector else b
    if left or is_vector:
        result, determinant = _solved(a if left else a.mT, wide)
    else:
        result, determinant = _solved(a.mT, wide.mT)
        result = result.mT
    result = result.squeeze(-1) if is_vector else result
    return result, a.clone(), _no_pivots(a), (determinant == 0).to(torch.int32)


def _solve_triangular(
    a: torch.Tensor, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if not _may_be_solved(a):
        return NotImplemented
    a = a.triu(int(unitriangular)) if upper else a.tril(-int(unitriangular))
    a = a + _identity(a) if unitriangular else a
    return _solved(a, b)[0] if left else _solved(a.mT, b.mT)[0].mT


def _cholesky_ex(a: torch.Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Column by column; `info` tells the first one without a root."""
    if not _may_be_solved(a):
        return NotImplemented
    a = a.mT if upper else a
    count = a.shape[-1]
    rows = torch.arange(count, device=a.device)
    factor = torch.zeros_like(a)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    for k in range(count):
        column = a[..., k : k + 1] - factor @ factor[..., k : k + 1, :].mT
        square = column[..., k : k + 1, :]
        is_bad = (square[..., 0, 0] <= 0) & (info == 0)
        info = torch.where(is_bad, k + 1, info).to(torch.int32)
        column = torch.where(rows.unsqueeze(-1) >= k, column / square.sqrt(), 0.0)
        factor = torch.where(rows == k, column, factor)
    return (factor.mT if upper else factor), info


def _grouped_mm(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows [s, k] by one of several matrices [e, k, n] each: matrix i for those between ends i - 1
    and i. Zeros for rows behind the last end.

    Few rows take their matrices; many rows are multiplied by all of them, one after the other.
    """
    rows = torch.arange(x.shape[0], device=x.device)[:, None]
    count = weights.shape[0]
    if isinstance(x.shape[0], int) and x.shape[0] <= count:
        of_row = (rows >= ends[None]).sum(1)
        products = torch.bmm(x[:, None], weights[of_row.clamp(max=count - 1)])[:, 0]
        return torch.where(of_row[:, None] < count, products, 0.0)
    made = torch.zeros_like(x[:, :1]).expand(-1, weights.shape[2])
    for index in range(count):
        own = rows < ends[index]
        if index > 0:
            own = own & (rows >= ends[index - 1])
        made = torch.where(own, x @ weights[index], made)
    return made


def _grouped_mm_of_aten(
    x: torch.Tensor,
    weights: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    if ends is None or bias is not None or x.dim() != 2 or weights.dim() != 3:
        return NotImplemented
    return _grouped_mm(x, weights, ends).to(out_dtype or x.dtype)


def _no_pivots(a: torch.Tensor) -> torch.Tensor:
    """Of a factorization that nobody asks for."""
    return torch.zeros(a.shape[:-1], dtype=torch.int32, device=a.device)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.addmv.default: _addmv,
    aten.addbmm.default: _addbmm,
    aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign_scalar,
    aten.angle.default: _angle,
    aten.ldexp.Tensor: _ldexp,
    aten.dist.default: _dist,
    aten.logcumsumexp.default: _logcumsumexp,
    aten.cummax.default: _cumulative(largest=True),
    aten.cummin.default: _cumulative(largest=False),
    aten.kthvalue.default: _kthvalue,
    aten.as_strided_scatter.default: _as_strided_scatter,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.index_reduce.default: _index_reduce,
    aten.put.default: _put,
    aten.take.default: _take,
    aten.histc.default: _histc,
    aten._trilinear.default: _trilinear,
    aten._grouped_mm.default: _grouped_mm_of_aten,
    aten.normal_functional.default: _normal_functional,
    aten.uniform.default: _uniform,
    aten.exponential.default: _exponential,
    aten.geometric.default: _geometric,
    aten.log_normal.default: _log_normal,
    aten.cauchy.default: _cauchy,
    aten.normal.Tensor_Tensor: _normal,
    aten.normal.Tensor_float: _normal,
    aten.normal.float_Tensor: _normal,
    aten.randint_like.default: _randint_like,
    aten.randint_like.low_dtype: _randint_like_from,
    aten.multinomial.default: _multinomial,
    aten.linalg_inv_ex.default: _inv_ex,
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten._linalg_solve_ex.default: _solve_ex,
    aten.linalg_solve_triangular.default: _solve_triangular,
    aten.linalg_cholesky_ex.default: _cholesky_ex,
}
if hasattr(aten, "cholesky"):  # until torch 2.14
    DECOMPOSITIONS[aten.cholesky.default] = lambda a, upper=False: _cholesky_ex(a, upper=upper)[0]

_OF_LIBRARIES: dict[str, Callable[..., Any]] = {
    # Of experts, where torch's own takes no float32.
    "transformers::grouped_mm_fallback": _grouped_mm,
}
"""By name: such an operator is there once its library is imported."""
