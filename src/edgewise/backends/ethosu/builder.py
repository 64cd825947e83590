"""Operators on tensors whose order in memory is free until something needs one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewise.backends.ethosu.quant import multipliers
from edgewise.backends.ethosu.tosa import (
    INT4,
    INT8,
    INT16,
    INT32,
    INT48,
    RANGE,
    Order,
    Tensor,
    Tosa,
    identity,
    little_endian,
    permuted,
)

NHWC: Order = (0, 2, 3, 1)


class Builder:
    """Adds operators to a TOSA graph. Shapes, dimensions and axes are logical, as torch's."""

    def __init__(self, tosa: Tosa | None = None) -> None:
        self.tosa = tosa or Tosa()
        self._ordered: dict[tuple[str, Order], Tensor] = {}
        self._known: dict[str, Any] = {}

    # --- moving -------------------------------------------------------------------------

    def in_order(self, t: Tensor, order: Order) -> Tensor:
        """The same tensor, lying as `order` says."""
        if t.order == order:
            return t
        if t.name in self._known:
            return self.const(self._known[t.name], t.dtype, order)
        key = (t.name, (*t.order, -1, *order))
        if key not in self._ordered:
            perms = [t.order.index(dim) for dim in order]
            dims = [t.dims[p] for p in perms]
            moved = [p for p in perms if t.dims[p] != 1]
            if moved == sorted(moved):  # only dimensions of size 1 change place
                made = self.tosa.add("RESHAPE", [t, self.tosa.shape(dims)], dims, t.dtype, order)
            else:
                made = self.tosa.add("TRANSPOSE", [t], dims, t.dtype, order, perms=perms)
            self._ordered[key] = made
            # Nothing has to be moved back either.
            self._ordered[made.name, (*order, -1, *t.order)] = t
        return self._ordered[key]

    def reshape(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        """The elements in another shape, in the order of the logical dimensions."""
        if t.shape == tuple(shape):
            return t
        kept = _kept_order(t, shape)
        if kept is None:
            t, kept = self.in_order(t, identity(t.rank)), identity(len(shape))
        dims = [shape[d] for d in kept]
        return self.tosa.add("RESHAPE", [t, self.tosa.shape(dims)], dims, t.dtype, kept)

    def permute(self, t: Tensor, dims: Sequence[int]) -> Tensor:
        return permuted(t, dims)

    def with_rank(self, t: Tensor, rank: int) -> Tensor:
        """Dimensions of size 1 put before all others, up to the rank."""
        extra = rank - t.rank
        if extra == 0:
            return t
        if t.name in self._known:
            values = self._known[t.name]
            return self.const(values.reshape((*(1,) * extra, *values.shape)), t.dtype)
        order = (*range(extra), *(d + extra for d in t.order))
        dims = (*(1,) * extra, *t.dims)
        return self.tosa.add("RESHAPE", [t, self.tosa.shape(dims)], dims, t.dtype, order)

    def const(self, values: Any, dtype: str, order: Order | None = None) -> Tensor:
        """values: an array in logical order, laid out as `order` says."""
        array = np.asarray(values)
        order = order or identity(array.ndim)
        lying = array if order == identity(array.ndim) else array.transpose(order)
        made = self.tosa.const(np.ascontiguousarray(lying), dtype, lying.shape)
        if made.order != order:
            # Of one content, known by its name in one order.
            made = Tensor(made.name, made.dims, dtype, order)
        self._known[made.name] = array
        return made

    def number(self, value: int, like: Tensor, dtype: str = INT32) -> Tensor:
        """A constant of one element, that can be combined with `like`."""
        made = self.tosa.const(np.full((1,) * like.rank, value), dtype)
        return Tensor(made.name, made.dims, dtype, like.order)

    def concat(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        order = _common_order(parts)
        parts = [self.in_order(p, order) for p in parts]
        axis = order.index(dim)
        dims = list(parts[0].dims)
        dims[axis] = sum(p.dims[axis] for p in parts)
        return self.tosa.add("CONCAT", parts, dims, parts[0].dtype, order, axis=axis)

    def slice(self, t: Tensor, start: Mapping[int, int], size: Mapping[int, int]) -> Tensor:
        """Elements from `start` on, `size` of them, by dimension; others whole."""
        first = [start.get(d, 0) for d in t.order]
        sizes = [size.get(d, n) for d, n in zip(t.order, t.dims, strict=True)]
        if sizes == list(t.dims):
            return t
        shapes = [self.tosa.shape(first), self.tosa.shape(sizes)]
        return self.tosa.add("SLICE", [t, *shapes], sizes, t.dtype, t.order)

    def pad(self, t: Tensor, amounts: Mapping[int, tuple[int, int]], number: int) -> Tensor:
        pairs = [amounts.get(d, (0, 0)) for d in t.order]
        if not any(before or after for before, after in pairs):
            return t
        dims = [n + b + a for n, (b, a) in zip(t.dims, pairs, strict=True)]
        flat = self.tosa.shape([n for pair in pairs for n in pair])
        value = self.tosa.const([number], t.dtype)
        return self.tosa.add("PAD", [t, flat, value], dims, t.dtype, t.order)

    def tile(self, t: Tensor, repeats: Sequence[int]) -> Tensor:
        times = [repeats[d] for d in t.order]
        if all(n == 1 for n in times):
            return t
        dims = [n * r for n, r in zip(t.dims, times, strict=True)]
        return self.tosa.add("TILE", [t, self.tosa.shape(times)], dims, t.dtype, t.order)

    def reverse(self, t: Tensor, dim: int) -> Tensor:
        axis = t.place(dim)
        return self.tosa.add("REVERSE", [t], t.dims, t.dtype, t.order, axis=axis)

    def copy(self, t: Tensor) -> Tensor:
        return self.tosa.add("IDENTITY", [t], t.dims, t.dtype, t.order)

    # --- arithmetic ---------------------------------------------------------------------

    def rescale(
        self,
        t: Tensor,
        scales: Sequence[float],
        dtype: str,
        zero: int = 0,
        to_zero: int = 0,
    ) -> Tensor:
        """`round((t - zero) * scale) + to_zero`, cut to the type. Several scales: one for each
        index of the last of `dims`."""
        wide = t.dtype == INT48
        factors, shifts = multipliers(scales)
        if wide:
            # Of 48 bits TOSA multiplies by 16.
            pairs = [_short(m, s) for m, s in zip(factors, shifts, strict=True)]
            factors, shifts = [m for m, _ in pairs], [s for _, s in pairs]
        inputs = [
            t,
            self.tosa.const(factors, INT16 if wide else INT32),
            self.tosa.const(shifts, INT8),
            self.tosa.const([zero], t.dtype),
            self.tosa.const([to_zero], dtype),
        ]
        return self.tosa.add(
            "RESCALE",
            inputs,
            t.dims,
            dtype,
            t.order,
            scale32=not wide,
            rounding_mode=self.tosa.enum("RoundingMode", "SINGLE_ROUND"),
            per_channel=len(factors) > 1,
            input_unsigned=False,
            output_unsigned=False,
        )

    def clamp(self, t: Tensor, low: int, high: int) -> Tensor:
        least, most = RANGE[t.dtype]
        if low <= least and high >= most:
            return t
        low, high = max(low, least), min(high, most)
        return self.tosa.add(
            "CLAMP",
            [t],
            t.dims,
            t.dtype,
            t.order,
            min_val=little_endian(low, t.dtype),
            max_val=little_endian(high, t.dtype),
            nan_mode=self.tosa.enum("NanPropagationMode", "PROPAGATE"),
        )

    def table(self, t: Tensor, values: Any) -> Tensor:
        """int8: 256 results. int16: 513, between which is interpolated; int32 with 7 bits more."""
        dtype = INT8 if t.dtype == INT8 else INT32
        entries = self.tosa.const(values, t.dtype)
        return self.tosa.add("TABLE", [t, entries], t.dims, dtype, t.order)

    def unary(self, operator: str, t: Tensor, dtype: str | None = None) -> Tensor:
        return self.tosa.add(operator, [t], t.dims, dtype or t.dtype, t.order)

    def binary(
        self, operator: str, a: Tensor, b: Tensor, dtype: str = "", **attributes: Any
    ) -> Tensor:
        """With broadcasting, as torch's. ValueError for shifts to the right: Vela lets U55 and
        U65 round them whatever TOSA's attribute says, and TOSA rounds in another way."""
        if operator.endswith("RIGHT_SHIFT"):
            raise ValueError(f"shifts to the right are rescales; got {operator}")
        a, b = self.aligned([a, b])
        dims = [max(m, n) if 0 not in (m, n) else 0 for m, n in zip(a.dims, b.dims, strict=True)]
        inputs = [a, b]
        if operator == "MUL":
            inputs.append(self.tosa.const([0], INT8))
        if operator in ("MAXIMUM", "MINIMUM"):
            attributes["nan_mode"] = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        return self.tosa.add(operator, inputs, dims, dtype or a.dtype, a.order, **attributes)

    def select(self, where: Tensor, a: Tensor, b: Tensor) -> Tensor:
        where, a, b = self.aligned([where, a, b])
        dims = [max(sizes) for sizes in zip(where.dims, a.dims, b.dims, strict=True)]
        return self.tosa.add("SELECT", [where, a, b], dims, a.dtype, a.order)

    def aligned(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Of one rank and order: that of the largest."""
        rank = max(p.rank for p in parts)
        parts = [self.with_rank(p, rank) for p in parts]
        order = max(parts, key=lambda p: math.prod(p.dims)).order
        return [self.in_order(p, order) for p in parts]

    def reduce(self, operator: str, t: Tensor, dim: int) -> Tensor:
        """Keeps the dimension, with size 1."""
        axis = t.place(dim)
        dims = [1 if i == axis else n for i, n in enumerate(t.dims)]
        attributes: dict[str, Any] = {"axis": axis}
        if operator in ("REDUCE_MAX", "REDUCE_MIN"):
            attributes["nan_mode"] = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        return self.tosa.add(operator, [t], dims, t.dtype, t.order, **attributes)

    # --- images -------------------------------------------------------------------------

    def conv2d(
        self,
        image: Tensor,
        weight: Any,
        bias: Any,
        zero: int,
        *,
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
        dilation: tuple[int, int] = (1, 1),
        depthwise: bool = False,
    ) -> Tensor:
        """[N, C, H, W] -> [N, O, H', W'], in sums of 32 bits (48 for 16-bit images).

        weight: OHWI, or HWCM if depthwise. pad: top, bottom, left, right.
        """
        image = self.in_order(image, NHWC)
        n, h, w, _ = image.dims
        kh, kw = weight.shape[:2] if depthwise else weight.shape[1:3]
        outputs = weight.shape[2] * weight.shape[3] if depthwise else weight.shape[0]
        sizes = [
            (size + before + after - d * (k - 1) - 1) // s + 1
            for size, before, after, d, k, s in (
                (h, pad[0], pad[1], dilation[0], kh, stride[0]),
                (w, pad[2], pad[3], dilation[1], kw, stride[1]),
            )
        ]
        image, edges = self._fitted(image, sizes, pad, (kh, kw), stride, dilation)
        return self._weighted(
            "DEPTHWISE_CONV2D" if depthwise else "CONV2D",
            image,
            weight,
            bias,
            zero,
            [n, *sizes, outputs],
            pad=edges,
            stride=list(stride),
            dilation=list(dilation),
        )

    def transpose_conv2d(
        self,
        image: Tensor,
        weight: Any,
        bias: Any,
        zero: int,
        *,
        stride: tuple[int, int],
        pad: tuple[int, int, int, int],
        sizes: tuple[int, int],
    ) -> Tensor:
        """weight: OHWI. pad: what is put around the result (mostly negative)."""
        image = self.in_order(image, NHWC)
        dims = [image.dims[0], *sizes, weight.shape[0]]
        return self._weighted(
            "TRANSPOSE_CONV2D",
            image,
            weight,
            bias,
            zero,
            dims,
            out_pad=list(pad),
            stride=list(stride),
        )

    def _weighted(
        self,
        operator: str,
        image: Tensor,
        weight: Any,
        bias: Any,
        zero: int,
        dims: Sequence[int],
        **attributes: Any,
    ) -> Tensor:
        sums = INT48 if image.dtype == INT16 else INT32
        stored = _weights_type(weight, image.dtype)
        inputs = [
            image,
            self.tosa.const(weight, stored),
            self.tosa.const(bias, sums),
            self.tosa.const([zero], image.dtype),
            self.tosa.const([0], stored),
        ]
        return self.tosa.add(
            operator,
            inputs,
            dims,
            sums,
            NHWC,
            local_bound=False,
            acc_type=self.tosa.accumulator(sums),
            **attributes,
        )

    def _fitted(
        self,
        image: Tensor,
        sizes: Sequence[int],
        pad: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
    ) -> tuple[Tensor, list[int]]:
        """The image and the padding with which the last window ends at the border, as TOSA
        wants it: rows and columns that no window reaches are cut off."""
        edges: list[int] = []
        cut: dict[int, int] = {}
        for i, dim in enumerate((2, 3)):
            size, before = image.shape[dim], pad[2 * i]
            reach = (sizes[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
            after = reach - size - before
            if after < 0:
                cut[dim] = size + after
            edges += [before, max(after, 0)]
        return self.slice(image, {}, cut), edges

    def matmul(self, a: Tensor, b: Tensor, zero_a: int, zero_b: int) -> Tensor:
        """[N, H, C] times [N, C, W]"""
        a, b = self.in_order(a, identity(3)), self.in_order(b, identity(3))
        sums = INT48 if a.dtype == INT16 else INT32
        inputs = [a, b, self.tosa.const([zero_a], a.dtype), self.tosa.const([zero_b], b.dtype)]
        return self.tosa.add("MATMUL", inputs, [*a.dims[:2], b.dims[2]], sums)

    def pool(
        self,
        operator: str,
        image: Tensor,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pad: tuple[int, int, int, int],
        sizes: Sequence[int],
        zero: int = 0,
    ) -> Tensor:
        """sizes: height and width of the result."""
        image = self.in_order(image, NHWC)
        dims = [image.dims[0], *sizes, image.dims[3]]
        image, edges = self._fitted(image, sizes, pad, kernel, stride, (1, 1))
        attributes: dict[str, Any] = {
            "kernel": list(kernel),
            "stride": list(stride),
            "pad": edges,
        }
        inputs = [image]
        if operator == "AVG_POOL2D":
            inputs += [self.tosa.const([zero], image.dtype)] * 2
            attributes["acc_type"] = self.tosa.accumulator(INT32)
        else:
            attributes["nan_mode"] = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        return self.tosa.add(operator, inputs, dims, image.dtype, NHWC, **attributes)


def _weights_type(weight: Any, image: str) -> str:
    """INT4 where the numbers fit, which images of 8 bits allow: 4-bit weights are stored so."""
    low, high = RANGE[INT4]
    fits = image == INT8 and low <= np.min(weight, initial=0) and np.max(weight, initial=0) <= high
    return INT4 if fits else INT8


def _short(multiplier: int, shift: int) -> tuple[int, int]:
    """A multiplier of 31 bits by one of 15."""
    short = (multiplier + (1 << 15)) >> 16
    if short > 2**15 - 1:
        return short >> 1, shift - 17
    return short, shift - 16


def _kept_order(t: Tensor, shape: Sequence[int]) -> Order | None:
    """The order of a reshaped tensor where no element moves in memory; None if one does."""
    large = [d for d in t.order if t.shape[d] != 1]
    if large == sorted(large):
        return identity(len(shape))
    # The same large dimensions: those of size 1 came or went.
    mine = [d for d in range(t.rank) if t.shape[d] != 1]
    theirs = [d for d in range(len(shape)) if shape[d] != 1]
    if [t.shape[d] for d in mine] != [shape[d] for d in theirs]:
        return None
    other = dict(zip(mine, theirs, strict=True))
    kept = [other[d] for d in large]
    small = [d for d in range(len(shape)) if shape[d] == 1]
    if len(shape) == 4 and t.order == NHWC and 0 in small:
        kept = [0, *kept]
        small.remove(0)
    return (*[d for d in small if d not in kept], *kept)


def _common_order(parts: Sequence[Tensor]) -> Order:
    """The order that the most elements have already."""
    weight: dict[Order, int] = {}
    for part in parts:
        weight[part.order] = weight.get(part.order, 0) + math.prod(part.dims)
    return max(weight, key=weight.__getitem__)
