"""Sums, running sums, means and extremes along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.fx import Node

from edgewise.backends.ethosu.lowering.accuracy import EXACT
from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.quant import Quant
from edgewise.backends.ethosu.lowering.table import (
    ANY,
    Args,
    Ask,
    Constraint,
    Lower,
    Lowering,
    Refused,
    Value,
    define,
)
from edgewise.backends.ethosu.lowering.tosa import INT8, INT32, Tensor
from edgewise.backends.ethosu.lowering.values import Combined, Real, Stored, Sums
from edgewise.backends.ethosu.operators.normalization import centred_squares, mean_squares
from edgewise.backends.ethosu.operators.pooling import MAX_FILTER, Means, Windows
from edgewise.backends.ethosu.operators.shape import sizes
from edgewise.edge.graph import fake
from edgewise.edge.orders import NHWC, identity
from edgewise.operators.arguments import pair, reduced_dims
from edgewise.partition.spec import Refusal
from edgewise.quantize.patterns import SAME_SCALE, UNARY, Elementwise

aten = torch.ops.aten


def _reduced(mean: bool) -> Lower:
    def lower(to: Lowering, node: Node, args: Args) -> Value:
        x = to.stored(args["self"])
        dims = reduced_dims(args.get("dim"), len(x.shape))
        count = math.prod(x.shape[d] for d in dims)
        made = _spatial(x, dims, 1 if not mean else None) or _summed(
            to, x, dims, count if mean else 1
        )
        shape = sizes(node)
        if made.shape == shape:
            return made
        return Combined((made,), shape, lambda ts, quant: to.b.reshape(ts[0], shape))

    return lower


def _spatial(x: Stored, dims: Sequence[int], divisor: int | None) -> Real | None:
    """Over height and width, as a filter of ones."""
    inner = set(dims) <= {2, 3} and len(x.shape) == 4
    if not inner or any(x.shape[d] > MAX_FILTER for d in dims):
        return None
    before = pair(x.shape[2:])
    kernel = before[0] if 2 in dims else 1, before[1] if 3 in dims else 1
    after = before[0] // kernel[0], before[1] // kernel[1]
    windows = Windows(kernel, (1, 1), (0, 0), before, after, divisor=divisor)
    return Means(x, windows)


_ROW = 1024
_MOST = 2**16
"""Elements that Vela sums at once: U55 and U65 do not take more, U85 sums others wrongly."""


def _summed(to: Lowering, x: Stored, dims: Sequence[int], count: int) -> Real:
    added, bits = math.prod(x.shape[d] for d in dims), 8 if x.tensor.dtype == INT8 else 16
    if added > 2 ** (31 - bits):
        raise Refused(Refusal(f"at most 2**{31 - bits} summands of {bits} bits", f"{added}"))
    folded, dims = _folded(to.b, x, dims)
    t = to.b.rescale(folded, [1.0], INT32, x.quant.zero_point, 0)
    for dim in dims:
        t = to.b.reduce("REDUCE_SUM", t, dim)
    return Sums(t, (x.quant.scale / count,))


def _folded(b: Builder, x: Stored, dims: Sequence[int]) -> tuple[Tensor, list[int]]:
    """A dimension of too many elements as two, filled up with zeros; and what is summed then."""
    t, found = x.tensor, list(dims)
    for dim in sorted(dims, reverse=True):
        size = t.shape[dim]
        if size <= _MOST:
            continue
        t = b.in_order(b.pad(t, {dim: (0, -size % _ROW)}, x.quant.zero_point), identity(t.rank))
        t = b.reshape(t, (*t.shape[:dim], t.shape[dim] // _ROW, _ROW, *t.shape[dim + 1 :]))
        found = [d + (d > dim) for d in found] + [dim + 1]
    return t, sorted(found)


_IN_32 = "in 32 bits; over height and width a filter of ones"
define("mean", (aten.mean.dim, aten.mean.default), _reduced(True), also=_IN_32, quantization=UNARY)
define(
    "sum",
    (aten.sum.dim_IntList, aten.sum.default),
    _reduced(False),
    also=_IN_32,
    quantization=UNARY,
)


def _variance(to: Lowering, node: Node, args: Args) -> Value:
    x, b = to.stored(args["self"]), to.b
    rank = len(x.shape)
    dims = reduced_dims(args.get("dim"), rank)
    others = [d for d in range(rank) if d not in dims]
    count = math.prod(x.shape[d] for d in dims)
    lying = b.permute(x.tensor, [*others, *dims])
    rows = (math.prod(x.shape[d] for d in others), count)
    stored = Stored(lying, x.quant)
    if x.tensor.dtype == INT8:
        _, squares, fine = centred_squares(to, stored, rows, 0.0, True)
        unit = fine**-2
    else:
        squares, unit = mean_squares(to, stored, rows)
    scale = x.quant.scale**2 * unit / max(count - _correction(args), 0.0)
    return Combined(
        (Sums(squares, (scale,)),), sizes(node), lambda ts, q: b.reshape(ts[0], sizes(node))
    )


def _correction(args: Args) -> float:
    if "unbiased" in args:
        return float(args["unbiased"])
    found = args["correction"]
    return 1.0 if found is None else float(found)


def _several(q: Ask) -> str | None:
    shape = fake(q.args["self"]).shape
    count = math.prod(int(shape[d]) for d in reduced_dims(q.args.get("dim"), len(shape)))
    return None if _correction(q.args) < count <= 2**15 else f"{count}"


define(
    "var",
    (aten.var.correction, aten.var.dim, aten.var.default),
    _variance,
    (Constraint("of more elements than are corrected for, and at most 2**15", _several),),
    also="in 32 bits",
    quantization=UNARY,
)

_MAX_RUN = 1024


def _running(to: Lowering, node: Node, args: Args) -> Value:
    """A product with a triangle of ones, as a convolution of an image of one column."""
    b, x = to.b, to.stored(args["self"])
    rank = len(x.shape)
    dim = args["dim"] % rank
    last = [*(d for d in range(rank) if d != dim), dim]
    shape = [x.shape[d] for d in last]
    count = shape[-1]
    t = b.in_order(b.permute(x.tensor, last), identity(rank))
    dims = [1, math.prod(shape[:-1]), 1, count]
    image = b.reshaped_to(t, dims, NHWC)
    triangle = np.tril(np.ones((count, count), np.int8)).reshape(count, 1, 1, count)
    sums = b.conv2d(image, triangle, np.zeros(count, np.int64), x.quant.zero_point)

    def unfold(ts: Sequence[Tensor], quant: Quant) -> Tensor:
        made = b.reshaped_to(ts[0], shape, identity(rank))
        return b.permute(made, [last.index(d) for d in range(rank)])

    return Combined((Sums(sums, (x.quant.scale,)),), x.shape, unfold)


def _run_length(q: Ask) -> str | None:
    shape = fake(q.args["self"]).shape
    if not shape:
        return "no dimension"
    length = int(shape[q.args["dim"]])
    return None if length <= _MAX_RUN else f"{length}"


define(
    "cumsum",
    (aten.cumsum.default,),
    _running,
    (Constraint(f"along a dimension of at most {_MAX_RUN} elements", _run_length),),
    also="a product with a triangle of ones",
    quantization=UNARY,
)


def _extreme(operator: str) -> Lower:
    def lower(to: Lowering, node: Node, args: Args) -> Value:
        value, shape = to.real(args["self"]), sizes(node)
        dims = reduced_dims(args.get("dim"), fake(args["self"]).dim())

        def make(ts: Sequence[Tensor], quant: Quant) -> Tensor:
            t = ts[0]
            for dim in dims:
                t = to.b.reduce(operator, t, dim)
            return to.b.reshape(t, shape)

        return Combined((value,), shape, make)

    return lower


define(
    "amax",
    (aten.amax.default, aten.max.default),
    _extreme("REDUCE_MAX"),
    reads=ANY,
    quantization={aten.amax.default: SAME_SCALE},
)
define(
    "amin",
    (aten.amin.default, aten.min.default),
    _extreme("REDUCE_MIN"),
    reads=ANY,
    quantization={aten.amin.default: SAME_SCALE},
)


_MAX_CHANNELS = 127


def _argmax(to: Lowering, node: Node, args: Args) -> Tensor:
    b, t = to.b, to.stored(args["self"]).tensor
    last = args["dim"] % t.rank
    others = [d for d in range(t.rank) if d != last]
    t = b.in_order(t, (*others, last))
    made = b.tosa.add(
        "ARGMAX",
        [t],
        t.dims[:-1],
        INT32,
        axis=len(others),
        nan_mode=b.tosa.enum("NanPropagationMode", "PROPAGATE"),
    )
    return b.reshape(made, sizes(node))


def _only_int32(q: Ask) -> str | None:
    for user in q.node.users:
        if user.target is not aten._to_copy.default or fake(user).dtype != torch.int32:
            return f"{user.name} reads int64"
    return None


def _few_channels(q: Ask) -> str | None:
    dim, shape = q.args["dim"], fake(q.args["self"]).shape
    if dim is None or len(shape) < 2:
        return None
    length = int(shape[dim])
    return None if q.target.family == "U85" or length <= _MAX_CHANNELS else f"{length}"


define(
    "argmax",
    (aten.argmax.default,),
    _argmax,
    (
        Constraint("read as int32", _only_int32, "x.argmax(dim).to(torch.int32)"),
        Constraint(
            "a dimension of several",
            lambda q: "all" if q.args["dim"] is None or fake(q.args["self"]).dim() < 2 else None,
        ),
        Constraint(f"of at most {_MAX_CHANNELS} elements, except on U85", _few_channels),
    ),
    int16=False,
    bounds=EXACT,
    quantization=Elementwise(operands=1, real=False),
)
