"""Operators on tensors whose order in memory is free until something needs one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewise.backends.ethosu.lowering.moving import MovingBuilder
from edgewise.backends.ethosu.lowering.quant import MIN_SHIFT, ScaleOutOfReach, multipliers
from edgewise.backends.ethosu.lowering.tosa import (
    BOOL,
    INT4,
    INT8,
    INT16,
    INT32,
    INT48,
    RANGE,
    Tensor,
    little_endian,
)
from edgewise.edge.orders import NHWC, identity

MOST_STEPS = 3
"""The largest stride that the processors have."""


class Builder(MovingBuilder):
    """Adds operators to a TOSA graph. Shapes, dimensions and axes are logical, as torch's."""

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
        index of the last of `dims`. ScaleOutOfReach where TOSA has no multiplier for one."""
        wide = t.dtype == INT48
        scales = _within(scales, t.dtype, dtype)
        factors, shifts = multipliers(scales)
        if wide:
            # Of 48 bits TOSA multiplies by 16.
            pairs = [_short(m, s) for m, s in zip(factors, shifts, strict=True)]
            factors, shifts = [m for m, _ in pairs], [s for _, s in pairs]
        constants = [
            self.tosa.const(factors, INT16 if wide else INT32),
            self.tosa.const(shifts, INT8),
            self.tosa.const([zero], t.dtype),
            self.tosa.const([to_zero], dtype),
        ]

        def again(source: Tensor) -> Tensor:
            return self.tosa.add(
                "RESCALE",
                [source, *constants],
                source.dims,
                dtype,
                source.order,
                scale32=not wide,
                rounding_mode=self.tosa.enum("RoundingMode", "SINGLE_ROUND"),
                per_channel=len(factors) > 1,
                input_unsigned=False,
                output_unsigned=False,
            )

        made = self.of_each(t, again)
        self._lies_as(t, made, again)  # the operator behind it does both
        return made

    def clamp(self, t: Tensor, low: int, high: int) -> Tensor:
        least, most = RANGE[t.dtype]
        if low <= least and high >= most:
            return t
        low, high = max(low, least), min(high, most)
        attributes = {
            "min_val": little_endian(low, t.dtype),
            "max_val": little_endian(high, t.dtype),
            "nan_mode": self.tosa.enum("NanPropagationMode", "PROPAGATE"),
        }
        return self.of_each(
            t, lambda s: self.tosa.add("CLAMP", [s], s.dims, s.dtype, s.order, **attributes)
        )

    def table(self, t: Tensor, values: Any) -> Tensor:
        """int8: 256 results. int16: 513, between which is interpolated; int32 with 7 bits more."""
        dtype = INT8 if t.dtype == INT8 else INT32
        entries = self.tosa.const(values, t.dtype)
        return self.of_each(
            t,
            lambda s: self.tosa.add("TABLE", [s, entries], s.dims, dtype, s.order),
            by_table=True,
        )

    def unary(self, operator: str, t: Tensor, dtype: str | None = None) -> Tensor:
        return self.of_each(
            t, lambda s: self.tosa.add(operator, [s], s.dims, dtype or s.dtype, s.order)
        )

    def binary(
        self,
        operator: str,
        a: Tensor,
        b: Tensor,
        dtype: str = "",
        shift: int = 0,
        **attributes: Any,
    ) -> Tensor:
        """With broadcasting, as torch's. Products of 32 bits are divided by `2**shift` and rounded
        before they must fit again. ValueError for shifts to the right: Vela lets U55 and
        U65 round them whatever TOSA's attribute says, and TOSA rounds in another way."""
        if operator.endswith("RIGHT_SHIFT"):
            raise ValueError(f"shifts to the right are rescales; got {operator}")
        if self.takes_apart and b.rank > 4 and math.prod(a.dims) == 1 != math.prod(b.dims):
            # Vela reads one number before a tensor of more dimensions as if there were several.
            flat = self.reshaped_to(b, (math.prod(b.dims[:-2]), *b.dims[-2:]), identity(3))
            if a.name in self._numbers:
                first = self.number(self._numbers[a.name], flat, a.dtype)
            else:
                first = self.reshaped_to(a, (1, 1, 1), identity(3))
            made = self.binary(operator, first, flat, dtype, shift, **attributes)
            return self.reshaped_to(made, b.dims, b.order)
        a, b = self._broadcast_once(*self.aligned([a, b]))
        sizes = [max(m, n) if 0 not in (m, n) else 0 for m, n in zip(a.dims, b.dims, strict=True)]
        inputs = [a, b]
        if operator == "MUL":
            inputs.append(self.tosa.const([shift], INT8))
        if operator in ("MAXIMUM", "MINIMUM"):
            attributes["nan_mode"] = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        return self.tosa.add(operator, inputs, sizes, dtype or a.dtype, a.order, **attributes)

    def _broadcast_once(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """U55 and U65 broadcast one operand. Where both must be, Vela makes one of them larger,
        and takes the other one for it if they come from one tensor."""
        grows_a = any(m == 1 < n for m, n in zip(a.dims, b.dims, strict=True))
        grows_b = any(n == 1 < m for m, n in zip(a.dims, b.dims, strict=True))
        if not (self.takes_apart and grows_a and grows_b):
            return a, b
        return self.tile(a, [n if m == 1 else 1 for m, n in zip(a.shape, b.shape, strict=True)]), b

    def reverse(self, t: Tensor, dim: int) -> Tensor:
        if t.shape[dim] == 1:
            return t
        axis = t.axis(dim)
        if self.takes_apart or t.dtype == BOOL:
            return self.tosa.add("REVERSE", [t], t.dims, t.dtype, t.order, axis=axis)
        # Vela makes one operator of a table or clamp, this and one behind it, and drops one.
        t = self._plus_zero(t)
        return self._plus_zero(self.tosa.add("REVERSE", [t], t.dims, t.dtype, t.order, axis=axis))

    def _plus_zero(self, t: Tensor) -> Tensor:
        """The same numbers, by an operator that no other one takes in."""
        wide = t if t.dtype == INT32 else self.rescale(t, [1.0], INT32)
        total = self.binary("ADD", wide, self.number(0, wide))
        return total if t.dtype == INT32 else self.rescale(total, [1.0], t.dtype)

    def _in_own_shape(self, t: Tensor) -> Tensor:
        """What is another tensor in another shape, as one of its own."""
        if t.name not in self._views:
            return self.written(t)
        # Behind a window each element is computed in the window's shape, but not sums of two.
        wide = t if t.dtype == INT32 else self.rescale(t, [1.0], INT32)
        wide = self._copy(wide)
        return wide if t.dtype == INT32 else self.rescale(wide, [1.0], t.dtype)

    def _complement(self, t: Tensor) -> Tensor:
        """-1 - t, exactly, of 8 or 16 bits."""
        if t.dtype == INT8:
            return self.table(t, np.arange(-128, 128)[::-1])
        wide = self.rescale(t, [1.0], INT32)
        return self.rescale(self.binary("SUB", self.number(-1, wide), wide), [1.0], t.dtype)

    def select(self, where: Tensor, a: Tensor, b: Tensor) -> Tensor:
        where, a, b = self.aligned([where, a, b])
        # Vela makes three operators of it, and mistakes the shapes of what has another elsewhere.
        a, b = self._selectable(a), self._selectable(b)
        self._selected |= {a.name, b.name}
        dims = [max(sizes) for sizes in zip(where.dims, a.dims, b.dims, strict=True)]
        return self.tosa.add("SELECT", [where, a, b], dims, a.dtype, a.order)

    def _selectable(self, t: Tensor) -> Tensor:
        if t.name in self._moved:
            return self._in_own_shape(t)
        return self.written(t) if t.name in self._reshaped or self.source(t) != t.name else t

    def reduce(self, operator: str, t: Tensor, dim: int) -> Tensor:
        """Keeps the dimension, with size 1."""
        if t.shape[dim] == 1:
            return t  # Vela reads a padded result from outside its memory
        t = self.whole(t)
        if self.source(t) != t.name:
            # The memory of a reshaped tensor may be too small for the order that Vela gives it.
            t = self._in_own_shape(t)
        if operator == "REDUCE_MIN" and self.takes_apart:
            # Vela negates, too, and mistakes where the result lies if it is reshaped.
            return self._complement(self.reduce("REDUCE_MAX", self._complement(t), dim))
        axis = t.axis(dim)
        dims = [1 if i == axis else n for i, n in enumerate(t.dims)]
        attributes: dict[str, Any] = {"axis": axis}
        if operator in ("REDUCE_MAX", "REDUCE_MIN"):
            attributes["nan_mode"] = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        made = self.tosa.add(operator, [t], dims, t.dtype, t.order, **attributes)
        if operator == "REDUCE_SUM" and math.prod(t.dims[axis + 1 :]) > 1:
            # With 8 or 16 bits behind it Vela gives the sum an order in which the result, whose
            # dimensions it exchanges, is larger than its memory. Of 32 bits it does not.
            return self.binary("ADD", made, self.number(0, made))
        self._reduced.add(made.name)
        return made

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
        if max(stride) > MOST_STEPS and any(edges):
            image, edges = self._bordered(image, edges, zero), [0] * 4
        if depthwise and weight.shape[3] > 1:
            image = self.whole(image)  # of several filters a channel Vela begins where that does
        before = image.dims
        if n > 1 and (kh, kw) == stride == (1, 1) and not any(edges):
            # Of several images Vela makes lines of another width, unless they are one.
            image = self.reshaped_to(image, [1, n * before[1], *before[2:]], NHWC)
            sizes = [n * sizes[0], sizes[1]]
        made = self._sums(
            "DEPTHWISE_CONV2D" if depthwise else "CONV2D",
            image,
            weight,
            bias,
            zero,
            [image.dims[0], *sizes, outputs],
            pad=edges,
            stride=list(stride),
            dilation=list(dilation),
        )
        if image.dims == before:
            return made
        return self.reshaped_to(made, [n, *before[1:3], outputs], NHWC)

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
        image = self.whole(self.in_order(image, NHWC))  # Vela begins where the whole tensor does
        dims = [image.dims[0], *sizes, weight.shape[0]]
        return self._sums(
            "TRANSPOSE_CONV2D",
            image,
            weight,
            bias,
            zero,
            dims,
            out_pad=list(pad),
            stride=list(stride),
        )

    def _sums(
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
        made = self.tosa.add(
            operator,
            inputs,
            dims,
            sums,
            NHWC,
            local_bound=False,
            acc_type=self.tosa.accumulator(sums),
            **attributes,
        )
        self._windowed.add(made.name)
        return made

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
        image = self.slice(image, {}, cut)
        if image.shape[0] > 1 and any(edges):
            image = self.whole(image)  # of several slices with a border Vela reads other rows
        return image, edges

    def matmul(self, a: Tensor, b: Tensor, zero_a: int, zero_b: int) -> Tensor:
        """[N, H, C] times [N, C, W]"""
        a, b = self.in_order(a, identity(3)), self.in_order(b, identity(3))
        a, b = self.whole(a), self.whole(b)
        sums = INT48 if a.dtype == INT16 else INT32
        inputs = [a, b, self.tosa.const([zero_a], a.dtype), self.tosa.const([zero_b], b.dtype)]
        made = self.tosa.add("MATMUL", inputs, [*a.dims[:2], b.dims[2]], sums)
        if self.takes_apart:
            self._products.add(made.name)
        return made

    def _bordered(self, image: Tensor, edges: Sequence[int], number: int) -> Tensor:
        """The image with its border written out. Of strides that the processor has not Vela adds up
        what it makes of shifted images, and forgets the border; and where a slice begins."""
        around = {2: (edges[0], edges[1]), 3: (edges[2], edges[3])}
        return self.pad(self.whole(image), around, number)

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
        if max(stride) > MOST_STEPS and any(edges):
            if operator == "AVG_POOL2D":
                raise ValueError(f"strides up to {MOST_STEPS} at borders; got {max(stride)}")
            image, edges = self._bordered(image, edges, RANGE[image.dtype][0]), [0] * 4
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
        made = self.tosa.add(operator, inputs, dims, image.dtype, NHWC, **attributes)
        self._windowed.add(made.name)
        return made


def _weights_type(weight: Any, image: str) -> str:
    """INT4 where the numbers fit, which images of 8 bits allow: 4-bit weights are stored so."""
    low, high = RANGE[INT4]
    fits = image == INT8 and low <= np.min(weight, initial=0) and np.max(weight, initial=0) <= high
    return INT4 if fits else INT8


_LARGEST = {INT8: 2.0**21, INT16: 2.0**15 - 2.0**-16}
"""Scales of these types' numbers: TOSA multiplies what is below 2**(shift - 1) only."""


def _within(scales: Sequence[float], source: str, dtype: str) -> Sequence[float]:
    """Scales that take the source's numbers. With a larger one, which calibration gives a result
    that is nearly zero, each number but zero is cut to the type, and so it is with the largest."""
    largest = _LARGEST.get(source, math.inf)
    if max(scales) <= largest:
        return scales
    if dtype not in (INT8, INT16):
        raise ScaleOutOfReach(f"[rescale] scales of {source} must be below {largest:g}")
    return [min(scale, largest) for scale in scales]


def _short(multiplier: int, shift: int) -> tuple[int, int]:
    """A multiplier of 31 bits by one of 15. ScaleOutOfReach where no shift is left."""
    short, shift = (multiplier + (1 << 15)) >> 16, shift - 16
    if short > 2**15 - 1:
        short, shift = short >> 1, shift - 1
    if shift < MIN_SHIFT:
        raise ScaleOutOfReach(
            f"[rescale] scales of 48 bits must be below 2**13; got {short / 2.0**shift}"
        )
    return short, shift
