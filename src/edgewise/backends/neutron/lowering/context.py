"""What definitions need in order to turn operators into TFLite's.

TFLite's images are NHWC. A tensor here knows in which order its dimensions lie, a permutation
only changes that, and nothing is moved until an operator needs another order.

A value between a dequantization and a quantization becomes an integer tensor when its
quantization is known: TFLite's operators compute both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from edgewise.backends.neutron.lowering.quantized import Quant
from edgewise.backends.neutron.tflite.model import ModelBuilder, Quantization, Value
from edgewise.backends.neutron.tflite.schema import (
    Activation,
    AddOptions,
    BuiltinOperator,
    ReshapeOptions,
)
from edgewise.edge.graph import arguments, op_name
from edgewise.edge.integer_biases import in_coarser_steps, least_scales
from edgewise.edge.orders import Perm, identity, perm_after_view
from edgewise.edge.program import Constants
from edgewise.edge.quantized_decomposed import is_dequantize
from edgewise.flatbuffer import Table

NHWC: Perm = (0, 2, 3, 1)
Array = NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """A TFLite tensor whose dimensions are those of `order`: dimension i is torch's order[i]."""

    value: Value
    order: Perm
    quant: Quant

    @property
    def shape(self) -> tuple[int, ...]:
        """torch's."""
        found = [0] * len(self.order)
        for dim, size in zip(self.order, self.value.shape, strict=True):
            found[dim] = size
        return tuple(found)

    def place(self, dim: int) -> int:
        """Which of the TFLite tensor's dimensions torch's `dim` is."""
        return self.order.index(dim % len(self.order))


@dataclass(frozen=True)
class Stored:
    """A dequantized tensor."""

    tensor: Tensor


@dataclass(frozen=True)
class Computed:
    """What an operator computes; `emit` adds the operator with the quantization of its result.

    fuses: the clamps that the operator can apply itself.
    """

    emit: Callable[[Quant, Activation], Tensor]
    fuses: tuple[Activation, ...] = (Activation.NONE,)

    def quantized(self, quant: Quant) -> Tensor:
        return self.emit(quant, Activation.NONE)


Real = Stored | Computed


class Lowering:
    """The program so far: `done` holds real values and, for quantizations, integer tensors."""

    def __init__(self, constants: Constants) -> None:
        self.b = ModelBuilder()
        self.constants = constants
        self.done: dict[Node, Real | Tensor] = {}
        self._ordered: dict[tuple[int, Perm, Perm], Tensor] = {}

    # --- operands -----------------------------------------------------------------------

    def real(self, node: Any) -> Real:
        if node not in self.done:
            return Stored(self._constant(node))
        found = self.done[node]
        assert not isinstance(found, Tensor)
        return found

    def tensor(self, node: Any) -> Tensor:
        """A dequantized operand, as it is stored; a constant one too."""
        if node in self.done:
            found = self.done[node]
            assert isinstance(found, Stored)
            return found.tensor
        return self._constant(node)

    def _constant(self, node: Node) -> Tensor:
        assert is_dequantize(node)
        quant = Quant.of(node)
        data = self.constants.tensor(arguments(node)["input"]).detach().numpy()
        value = self.b.constant(node.name, data, tflite(quant))
        return Tensor(value, identity(data.ndim), quant)

    def weight(self, node: Node) -> tuple[Array, tuple[float, ...], int]:
        """A dequantized constant: integers, scales, and the dimension that they belong to."""
        args = arguments(node)
        data = self.constants.tensor(args["input"]).detach().numpy()
        if "axis" in args:
            scales = self.constants.tensor(args["scales"]).double().tolist()
            return data, tuple(scales), int(args["axis"]) % data.ndim
        return data, (float(args["scale"]),), 0

    def weight_for(
        self, node: Node, bias: Node | None, x: Quant
    ) -> tuple[Array, tuple[float, ...], int]:
        """As `weight`, with scales whose products with that of `x` are large enough for the bias,
        if there is one."""
        data, scales, axis = self.weight(node)
        if bias is None:
            return data, scales, axis
        stored, coarser = in_coarser_steps(
            torch.from_numpy(data),
            torch.tensor(scales, dtype=torch.float64),
            axis if len(scales) > 1 else None,
            least_scales(torch.from_numpy(self._real(bias)), x.scale),
        )
        return stored.numpy(), tuple(coarser.tolist()), axis

    def _real(self, bias: Node) -> Array:
        if is_dequantize(bias):
            data, own, _ = self.weight(bias)
            return data.astype(np.float64).reshape(-1) * np.asarray(own, np.float64)
        return self.constants.tensor(bias).detach().double().numpy().reshape(-1)

    def factors(
        self, scales: Sequence[float], x: Quant, result: Quant
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Of weights by their scales and of their bias, as they are stored.

        A result whose step is less than 2**-10 of a product's is zero or beyond its range. So it is
        where that is 2**-8, which keeps the rescaling of sums to 32 bits: the scales say so.
        """
        factors = [scale * x.scale / result.scale for scale in scales]
        stored = [
            scale if factor <= 2.0**10 else result.scale * 2.0**8 / x.scale
            for scale, factor in zip(scales, factors, strict=True)
        ]
        return tuple(stored), tuple(scale * x.scale for scale in stored)

    def bias(
        self,
        node: Any,
        products: Sequence[float],
        scales: Sequence[float],
        outputs: int,
        part: slice = slice(None),
    ) -> Value:
        """int32, in units of the products. A missing one is zero. scales: as they are stored. part:
        of the outputs."""
        steps = np.broadcast_to(np.asarray(products, np.float64), (outputs,))
        if node is None:
            stored = np.zeros(outputs, np.int32)
        else:
            stored = np.rint(self._real(node) / steps).astype(np.int32)
        name = node.name if isinstance(node, Node) else "bias"
        if len(scales) > 1:
            scales = scales[part]
        return self.b.constant(name, stored[part], Quantization(tuple(scales), (0,) * len(scales)))

    # --- operators ----------------------------------------------------------------------

    def result(self, node: Node | str, shape: Sequence[int], order: Perm, quant: Quant) -> Tensor:
        """A tensor for what an operator computes. shape: torch's."""
        name = node if isinstance(node, str) else node.name
        value = self.b.tensor(name, [shape[d] for d in order], np.int8, tflite(quant))
        return Tensor(value, order, quant)

    def add(
        self,
        code: BuiltinOperator,
        inputs: Sequence[Tensor | Value | None],
        result: Tensor,
        options: Table | None = None,
    ) -> Tensor:
        values = [x.value if isinstance(x, Tensor) else x for x in inputs]
        self.b.operator(code, values, [result.value], options)
        return result

    def ints(self, name: str, numbers: Any) -> Value:
        """A constant of int32."""
        return self.b.constant(name, np.asarray(numbers, np.int32))

    def in_order(self, t: Tensor, order: Perm) -> Tensor:
        """The same tensor with its dimensions lying otherwise."""
        if t.order == order:
            return t
        # A permuted tensor is the same value in another order: both belong to the key.
        key = (t.value.index, t.order, order)
        if key not in self._ordered:
            perm = [t.order.index(dim) for dim in order]
            made = self.result(f"{t.value.name}_moved", t.shape, order, t.quant)
            moving = [p for p in perm if t.value.shape[p] != 1]
            if moving == sorted(moving):
                self._reshaped(t, made)
            else:
                self.add(BuiltinOperator.TRANSPOSE, [t, self.ints("perm", perm)], made)
            self._ordered[key] = made
            self._ordered[made.value.index, order, t.order] = t
        return self._ordered[key]

    def reshape(self, t: Tensor, shape: Sequence[int], name: str = "view") -> Tensor:
        """torch's view."""
        if t.shape == tuple(shape):
            return t
        order = perm_after_view(t.shape, t.order, shape)
        if order is None:
            t, order = self.in_order(t, identity(len(t.order))), identity(len(shape))
        return self._reshaped(t, self.result(name, shape, order, t.quant))

    def _reshaped(self, t: Tensor, made: Tensor) -> Tensor:
        sizes = list(made.value.shape)
        shape = self.ints("shape", sizes)
        return self.add(BuiltinOperator.RESHAPE, [t, shape], made, ReshapeOptions(sizes))

    def cut(self, t: Tensor, pieces: dict[int, tuple[int, int]], name: str) -> Tensor:
        """pieces: first element and size, by torch's dimension."""
        shape = [pieces[d][1] if d in pieces else n for d, n in enumerate(t.shape)]
        if tuple(shape) == t.shape:
            return t
        made = self.result(name, shape, t.order, t.quant)
        begin = self.ints("begin", [pieces[d][0] if d in pieces else 0 for d in t.order])
        sizes = self.ints("size", list(made.value.shape))
        return self.add(BuiltinOperator.SLICE, [t, begin, sizes], made)

    def requantized(self, t: Tensor, quant: Quant, name: str) -> Tensor:
        """The same numbers in other steps: a sum with zero, which the NPU has (see `neg`)."""
        if (t.quant.scale, t.quant.zero_point) == (quant.scale, quant.zero_point):
            return t
        zero = np.full((1,) * len(t.order), t.quant.zero_point, np.int8)
        nothing = self.b.constant(f"{name}_zero", zero, t.value.quantization)
        options = AddOptions(Activation.NONE, pot_scale_int16=False)
        made = self.result(name, t.shape, t.order, quant)
        return self.add(BuiltinOperator.ADD, [t, nothing], made, options)

    def padded(self, t: Tensor, amounts: dict[int, tuple[int, int]], number: int) -> Tensor:
        """amounts: before and after, by torch's dimension. number: as stored."""
        if not any(before or after for before, after in amounts.values()):
            return t
        shape = [n + sum(amounts.get(d, (0, 0))) for d, n in enumerate(t.shape)]
        made = self.result(f"{t.value.name}_padded", shape, t.order, t.quant)
        pairs = self.ints("paddings", [amounts.get(d, (0, 0)) for d in t.order])
        if number == t.quant.zero_point:
            return self.add(BuiltinOperator.PAD, [t, pairs], made)
        value = self.b.constant("pad_value", np.array([number], np.int8), tflite(t.quant))
        return self.add(BuiltinOperator.PADV2, [t, pairs, value], made)

    def aligned(self, tensors: Sequence[Tensor], rank: int) -> list[Tensor]:
        """With one rank and order: that of the one with the most elements."""
        ranked = [
            self.reshape(t, (1,) * (rank - len(t.order)) + t.shape, f"{t.value.name}_ranked")
            for t in tensors
        ]
        order = max(ranked, key=lambda t: int(np.prod(t.shape, dtype=np.int64))).order
        return [self.in_order(t, order) for t in ranked]


def tflite(quant: Quant) -> Quantization:
    return Quantization((quant.scale,), (quant.zero_point,))


def moved(value: Real, move: Callable[[Tensor], Tensor]) -> Real:
    """What an operator that only moves or chooses elements makes of a value."""
    if isinstance(value, Stored):
        return Stored(move(value.tensor))
    return Computed(lambda quant, _: move(value.quantized(quant)))


def described(node: Node) -> str:
    return f"{node.name} ({op_name(node)})"


def real_of(data: torch.Tensor, quant: Quant) -> torch.Tensor:
    """Real numbers, in float64."""
    return (data.double() - quant.zero_point) * quant.scale
