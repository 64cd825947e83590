"""Real numbers of the program, as integers that are not rounded before they must be.

Between a dequantization and a quantization the program computes in floating point. Here
each such value knows how it becomes an integer tensor once its quantization is known: a
sum of products is rescaled, a clamp or a move applied to the integers (which gives the same
numbers, for quantizing is monotonic and elementwise), a function of one tensor looked up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch

from edgewise.backends.ethosu.lowering.builder import Builder
from edgewise.backends.ethosu.lowering.quant import Quant, table_int8, table_int16
from edgewise.backends.ethosu.lowering.segments import Segment, segments
from edgewise.backends.ethosu.lowering.tosa import INT8, INT16, INT32, Tensor

Function = Callable[[torch.Tensor], torch.Tensor]


class Real(ABC):
    """A value between a dequantization and a quantization."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Logical sizes."""

    @abstractmethod
    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        """The stored numbers."""


@dataclass(frozen=True)
class Stored(Real):
    """What was dequantized: integers of 8 or 16 bits."""

    tensor: Tensor
    quant: Quant

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        if self.quant.same_numbers(quant):
            return self.tensor
        ratio = self.quant.scale / quant.scale
        made = self.tensor
        if ratio != 1 or (self.quant.zero_point, self.quant.type) != (quant.zero_point, quant.type):
            made = b.rescale(made, [ratio], quant.type, self.quant.zero_point, quant.zero_point)
        return b.clamp(made, quant.low, quant.high)


@dataclass(frozen=True)
class Sums(Real):
    """Integers of 32 or 48 bits, `scales` times as large; several scales: one for each index
    of the tensor's last dimension in memory."""

    tensor: Tensor
    scales: Sequence[float]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        ratios = [scale / quant.scale for scale in self.scales]
        made = b.rescale(self.tensor, ratios, quant.type, 0, quant.zero_point)
        return b.clamp(made, quant.low, quant.high)


@dataclass(frozen=True)
class Mapped(Real):
    """A function of each element of one tensor, as the program computes it in float32."""

    source: Stored
    function: Function

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        tensor, before = self.source.tensor, self.source.quant
        if tensor.dtype == INT8:
            made = b.table(tensor, table_int8(before, quant, self.function))
            return made if quant.type == INT8 else _widened(b, self, quant)
        parts = segments(before, quant, self.function)
        total = _segment(b, tensor, parts[0])
        for part in parts[1:]:
            more = _segment(b, tensor, part)
            total = b.binary("ADD", total, b.binary("SUB", more, b.number(part.first, more)))
        return _rounded(b, total, quant)


def _segment(b: Builder, tensor: Tensor, part: Segment) -> Tensor:
    """The table's results for its range, and a constant elsewhere."""
    if part.zoom == 1 and part.start == -(2**15):
        return b.table(tensor, part.entries)
    wide = b.rescale(tensor, [1.0], INT32)
    # As far from the range's beginning as that is from the smallest number, once multiplied.
    moved = b.binary("SUB", wide, b.number(part.start + 2**15 // part.zoom, wide))
    return b.table(b.rescale(moved, [float(part.zoom)], INT16), part.entries)


def _rounded(b: Builder, parts: Tensor, quant: Quant) -> Tensor:
    """Of what tables give: steps with 7 bits more."""
    made = b.rescale(parts, [1 / 128], quant.type, 0, quant.zero_point)
    return b.clamp(made, quant.low, quant.high)


def _widened(b: Builder, value: Mapped, quant: Quant) -> Tensor:
    """From 8 to 16 bits: the table of 513 has an entry for each of the 256 numbers."""
    source = value.source
    step = Quant(source.quant.scale / 128, 0, -(2**15), 2**15 - 1, torch.int16)
    wide = b.rescale(source.tensor, [128.0], INT16, source.quant.zero_point, 0)
    return _rounded(b, b.table(wide, table_int16(step, quant, value.function)), quant)


@dataclass(frozen=True, eq=False)
class Constant(Real):
    """Real numbers that are known."""

    values: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        return b.const(quant.quantize(self.values).numpy(), quant.type)

    def stored(self, b: Builder) -> Stored:
        """As 16 bits around zero."""
        largest = float(self.values.abs().max()) or 1.0
        quant = Quant(largest / (2**15 - 1), 0, -(2**15), 2**15 - 1, torch.int16)
        return Stored(self.quantized(b, quant), quant)


@dataclass(frozen=True)
class Ones(Real):
    """1 where booleans are true, else 0."""

    where: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.where.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        one, zero = (b.number(quant.number(n), self.where, quant.type) for n in (1.0, 0.0))
        return b.select(self.where, one, zero)


@dataclass(frozen=True)
class Clamped(Real):
    """Cut to `low..high`, in real numbers."""

    value: Real
    low: float
    high: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        low = quant.low if math.isinf(self.low) else quant.number(self.low)
        high = quant.high if math.isinf(self.high) else quant.number(self.high)
        return b.clamp(self.value.quantized(b, quant), low, high)


@dataclass(frozen=True)
class Combined(Real):
    """What an operator that only moves or chooses elements makes of its operands.

    `make` gets them quantized alike, and the quantization.
    """

    operands: tuple[Real, ...]
    sizes: tuple[int, ...]
    make: Callable[[Sequence[Tensor], Quant], Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        return self.make([o.quantized(b, quant) for o in self.operands], quant)


class WholeRows(Enum):
    """What the softmax reads where nothing is kept: numbers without a meaning, alike, or the
    scores themselves."""

    UNDEFINED = auto()
    ALIKE = auto()
    THEMSELVES = auto()


@dataclass(frozen=True, eq=False)
class Masked(Real):
    """What is minus infinity except where it is kept: only a softmax can be computed of it."""

    value: Stored
    keep: torch.Tensor | Tensor
    """Booleans, or, where they are computed, zeros and ones in 8 bits. They can be broadcast to the
    value's shape."""
    wholly: WholeRows = WholeRows.UNDEFINED

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def quantized(self, b: Builder, quant: Quant) -> Tensor:
        raise ValueError("numbers that can be quantized; got minus infinity")


def clamped(value: Real, low: float, high: float) -> Real:
    """A clamp; of a function of one tensor that, too, is one."""
    if isinstance(value, Mapped):
        inner = value.function
        return Mapped(value.source, lambda x: inner(x).clamp(low, high))
    return Clamped(value, low, high)
