"""What definitions need in order to turn operators into TFLite's.

TFLite's images are NHWC. A tensor here knows in which order its dimensions lie, a permutation
only changes that, and nothing is moved until an operator needs another order.

A value between a dequantization and a quantization becomes an integer tensor when its
quantization is known: TFLite's operators compute both at once.
"""

from __future__ import annotations

import math
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
from edgewise.edge.graph import arguments, fake, op_name
from edgewise.edge.integer_biases import in_coarser_steps, least_scales
from edgewise.edge.integer_constants import IntegerConstants
from edgewise.edge.layout import dim_order
from edgewise.edge.node_errors import at_node
from edgewise.edge.orders import NHWC, Perm, by_dimension, identity, perm_after_view
from edgewise.edge.quantized_decomposed import is_dequantize, is_quantize
from edgewise.errors import PartitionError
from edgewise.flatbuffer import Table
from edgewise.operators import OperatorTable, lowering
from edgewise.operators.lowering import Refused
from edgewise.partition.spec import Refusal

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
        return by_dimension(self.value.shape, self.order)

    def axis(self, dim: int) -> int:
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


class Lowering(lowering.Lowering[ModelBuilder, IntegerConstants, Real | Tensor]):
    """Nodes become operators of a TFLite program: values are real, and those of quantizations and
    inputs are tensors of integers.

    moves: the runtime reorders contiguous images at the border; so the program has them as NHWC.
    """

    backend = "Neutron"
    partitioner = "NeutronPartitioner"

    def __init__(self, constants: IntegerConstants, moves: bool = False) -> None:
        super().__init__(ModelBuilder(), constants)
        self.inputs: list[tuple[Value, bool]] = []
        """With whether the runtime must reorder dimensions."""
        self._moves = moves
        self._ordered: dict[tuple[int, Perm, Perm], Tensor] = {}

    # --- operands -----------------------------------------------------------------------

    def real(self, node: Any) -> Real:
        if node not in self.done:
            return Stored(self._constant(node))
        found = self.computed(node)
        assert not isinstance(found, Tensor)
        return found

    def tensor(self, node: Any) -> Tensor:
        """A dequantized operand, as it is stored; a constant one too."""
        found = self.real(node)
        assert isinstance(found, Stored)
        return found.tensor

    def integers(self, node: Any) -> Tensor:
        """What is computed in integers: an input, or the result of a quantization."""
        found = self.computed(node)
        assert isinstance(found, Tensor)
        return found

    def _constant(self, node: Node) -> Tensor:
        quant, (data, _, _) = Quant.of(node), self.weight(node)
        value = self.b.constant(node.name, data, tflite(quant))
        return Tensor(value, identity(data.ndim), quant)

    def weight(self, node: Node) -> tuple[Array, tuple[float, ...], int]:
        """A dequantized constant: integers, scales, and the dimension that they belong to."""
        found = self.constants.integers(node)
        assert found is not None
        return found.data.numpy(), tuple(found.scales.tolist()), found.axis or 0

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

    # --- nodes --------------------------------------------------------------------------

    def input(self, node: Node) -> Tensor:
        """Refused if it is not quantized, or lies in an order that the NPU does not take."""
        value = fake(node)
        quant = next((Quant.of(u) for u in node.users if is_dequantize(u)), None)
        if quant is None:
            raise Refused(Refusal("inputs of a partition must be quantized", f"{value.dtype}"))
        order, moved = self._format(node, self._moves)
        made = self.result(node, tuple(int(n) for n in value.shape), order, quant)
        self.inputs.append((made.value, moved))
        return made

    def output(self, node: Node) -> tuple[Value, bool]:
        """The value of a result, and whether the runtime must reorder its dimensions."""
        found = self.integers(node)
        order, moved = self._format(node, self._moves and found.order == NHWC)
        return self.in_order(found, order).value, moved

    def _format(self, node: Node, moves: bool) -> tuple[Perm, bool]:
        """How the argument's dimensions lie in TFLite; whether the runtime sees to it.

        An argument that lies channels last is marked, too: the runtime then takes it as it is, and
        refuses it unmarked.
        """
        order = dim_order(fake(node))
        if order == NHWC or (moves and order == identity(4)):
            return NHWC, True
        if order != identity(len(order)):
            raise PartitionError(
                f"{at_node(node)} inputs and outputs of a partition must be contiguous or channels "
                f"last; got dimensions in the order {order}; try .contiguous() before"
            )
        return order, False

    def lower(self, node: Node, table: OperatorTable[..., Any]) -> Any:
        """See `lowering.Lowering`; what quantizes and dequantizes has no definition."""
        if is_dequantize(node):
            return Stored(self.integers(arguments(node)["input"]))
        if not is_quantize(node):
            return super().lower(node, table)
        value, quant = self.real(arguments(node)["input"]), Quant.of(node)
        if isinstance(value, Computed):
            return value.quantized(quant)
        return self.requantized(value.tensor, quant, node.name)

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
        if len(shape) > _PADDED_RANK_LIMIT:
            for dim, pair in amounts.items():
                t = self._padded_along(t, dim, pair, number)
            return t
        made = self.result(f"{t.value.name}_padded", shape, t.order, t.quant)
        pairs = self.ints("paddings", [amounts.get(d, (0, 0)) for d in t.order])
        if number == t.quant.zero_point:
            return self.add(BuiltinOperator.PAD, [t, pairs], made)
        value = self.b.constant("pad_value", np.array([number], np.int8), tflite(t.quant))
        return self.add(BuiltinOperator.PADV2, [t, pairs, value], made)

    def _padded_along(self, t: Tensor, dim: int, amounts: tuple[int, int], number: int) -> Tensor:
        """What lies before the dimension is one, and what lies behind it."""
        axis, lying = t.order.index(dim), t.value.shape
        sizes = [math.prod(lying[:axis]), lying[axis], math.prod(lying[axis + 1 :])]
        shape = [n + sum(amounts) if d == dim else n for d, n in enumerate(t.shape)]
        name, order = t.value.name, identity(3)
        flat = self._reshaped(t, self.result(f"{name}_flat", sizes, order, t.quant))
        wide = self.padded(flat, {1: amounts}, number)
        if wide is flat:
            return t
        return self._reshaped(wide, self.result(f"{name}_along", shape, t.order, t.quant))

    def aligned(self, tensors: Sequence[Tensor], rank: int) -> list[Tensor]:
        """With one rank and order: that of the one with the most elements."""
        ranked = [
            self.reshape(t, (1,) * (rank - len(t.order)) + t.shape, f"{t.value.name}_ranked")
            for t in tensors
        ]
        order = max(ranked, key=lambda t: int(np.prod(t.shape, dtype=np.int64))).order
        return [self.in_order(t, order) for t in ranked]


_PADDED_RANK_LIMIT = 5
"""Of LiteRT's PAD and PADV2."""


def tflite(quant: Quant) -> Quantization:
    return Quantization((quant.scale,), (quant.zero_point,))


def moved(value: Real, move: Callable[[Tensor], Tensor]) -> Real:
    """What an operator that only moves or chooses elements makes of a value."""
    if isinstance(value, Stored):
        return Stored(move(value.tensor))
    return Computed(lambda quant, _: move(value.quantized(quant)))


def described(node: Node) -> str:
    return f"{node.name} ({op_name(node)})"
