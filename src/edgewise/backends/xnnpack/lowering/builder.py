"""Building an XNNPACK subgraph while walking an edge graph.

Layout is lazy: every tensor is known by a physical value and a permutation, where
dimension `perm[i]` of the logical tensor is the value's dimension `i`. A permutation of
the logical tensor therefore costs nothing, channels-last is a permutation like any
other, and a transpose is put in only where a node needs another order than the one at
hand, or where a program's output has to be in its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgewise.backends.xnnpack.lowering.graph import Graph, Node, Value
from edgewise.backends.xnnpack.lowering.quant import PerChannel, PerTensor, Quant
from edgewise.backends.xnnpack.lowering.quantized_constants import Stored, store
from edgewise.backends.xnnpack.lowering.reshape import Drop, Insert, Merge, OutOfReach, Step, plan
from edgewise.backends.xnnpack.node_kinds import BY_NAME
from edgewise.edge.graph import Dim
from edgewise.edge.orders import (
    Perm,
    by_dimension,
    identity,
    order_that_matters,
    perm_after_view,
    permuted,
)
from edgewise.edge.sizes import (
    at,
    broadcast,
    same_sizes,
    shown,
    symbolic_sizes,
)


@dataclass(frozen=True, eq=False)
class Ref:
    """A logical tensor: `value.dims[i]` is the size of its dimension `perm[i]`."""

    value: Value
    perm: Perm

    def __post_init__(self) -> None:
        # ExecuTorch refuses a result with another number of dimensions than the program gives it.
        assert len(self.perm) == len(self.value.dims), (self.perm, self.value.dims)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return by_dimension(self.value.dims, self.perm)

    @property
    def rank(self) -> int:
        return len(self.perm)

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype


Operand = Ref | torch.Tensor
"""A computed tensor, or a constant in its logical order."""


class Builder:
    """Makes values and nodes; knows nothing of ATen."""

    def __init__(self, stored: Mapping[int, Stored] | None = None) -> None:
        """stored: tensors (by address) that stand for quantized constants."""
        self.graph = Graph()
        self._stored = {} if stored is None else stored
        self.origin = 0
        self._ordered: dict[tuple[Value, Perm, Perm], Ref] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._kept: list[torch.Tensor] = []

    # --- values ----------------------------------------------------------------------

    def input(self, shape: Sequence[Dim], dtype: torch.dtype, perm: Perm) -> Ref:
        """The next external input, laid out as `perm`."""
        dims = tuple(shape[d] for d in perm)
        value = Value(dims, dtype, input_index=len(self.graph.inputs))
        self.graph.inputs.append(value)
        return Ref(value, perm)

    def output(self, operand: Operand, perm: Perm) -> None:
        """Makes the operand the next external output, laid out as `perm`."""
        ref = self.in_order(self.ref(operand), perm)
        value = ref.value
        if value.data is not None or value.input_index is not None or value in self.graph.outputs:
            copied = self.node("Copy", [value], value.dims, value.dtype)
            value = copied
        value.output_index = len(self.graph.outputs)
        self.graph.outputs.append(value)

    def constant(self, tensor: torch.Tensor, perm: Perm | None = None) -> Value:
        """A constant laid out as `perm` (default: as it is). One value per content and order."""
        order = identity(tensor.dim()) if perm is None else perm
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), order)
        if key not in self._constants:
            laid = tensor.detach().permute(order).contiguous() if tensor.dim() else tensor.detach()
            laid = laid.reshape(1) if tensor.dim() == 0 else laid
            self._constants[key] = Value(tuple(laid.shape), tensor.dtype, data=laid)
            stored = self._stored.get(tensor.data_ptr())
            if stored is not None:
                store(self._constants[key], stored, tensor, order)
            self._kept.append(tensor)  # keeps data_ptr unique while it is a key
        return self._constants[key]

    def in_groups(
        self, tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], groups: int
    ) -> Value:
        """`change(tensor)` as a constant: of several groups a copy, stored in integers if the
        tensor is."""
        stored = self._stored.get(tensor.data_ptr())
        view = None if stored is None or groups == 1 else stored.view(tensor)
        quant = None if view is None else _of_all_groups(view[1], groups)
        if stored is None or view is None or quant is None:
            return self.constant(change(tensor))
        laid = change(view[0]).contiguous()
        return Value(tuple(laid.shape), stored.dtype, data=laid, quant=quant)

    def ref(self, operand: Operand) -> Ref:
        """The operand as a value; a constant in its logical order."""
        if isinstance(operand, Ref):
            return operand
        value = self.constant(operand)
        return Ref(value, identity(len(value.dims)))

    # --- nodes -----------------------------------------------------------------------

    def node(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        dims: Sequence[Dim],
        dtype: torch.dtype,
        clamp: tuple[float, float] | None = None,
        **params: Any,
    ) -> Value:
        """Adds a node with one output of physical shape `dims`, and returns that."""
        output = Value(tuple(dims), dtype)
        if not dtype.is_floating_point and inputs[0] is not None:
            output.quant = inputs[0].quant  # moved integers mean what they did
        self.graph.nodes.append(Node(kind, list(inputs), [output], params, clamp, self.origin))
        return output

    def unary(self, kind: str, x: Ref, clamp: Any = None, **params: Any) -> Ref:
        """An elementwise node: any order will do."""
        if not BY_NAME[kind].float16 and x.dtype != torch.float32:
            wide = self.unary(kind, self.convert(x, torch.float32), clamp, **params)
            return self.convert(wide, x.dtype)
        return Ref(self.node(kind, [x.value], x.value.dims, x.dtype, clamp, **params), x.perm)

    def binary(
        self, kind: str, a: Operand, b: Operand, clamp: tuple[float, float] | None = None
    ) -> Ref:
        """An elementwise node with broadcasting. At least one operand is computed."""
        left, right, perm = self._same_order(a, b)
        dims = broadcast(left.dims, right.dims)
        return Ref(self.node(kind, [left, right], dims, left.dtype, clamp), perm)

    def convert(self, x: Ref, dtype: torch.dtype) -> Ref:
        """x as float32 or float16."""
        if x.dtype == dtype:
            return x
        return Ref(self.node("Convert", [x.value], x.value.dims, dtype), x.perm)

    def scale(self, x: Ref, factor: float) -> Ref:
        """x times a number: in float32 if x is float16, which does not hold the number."""
        if factor == 1:
            return x
        wide = x if holds(x.dtype, factor) else self.convert(x, torch.float32)
        product = self.binary("Multiply", wide, scalar(factor, wide.dtype))
        return self.convert(product, x.dtype)

    def shift(self, x: Ref, amount: float, clamp: tuple[float, float] | None = None) -> Ref:
        return self.binary("Add", x, scalar(amount, x.dtype), clamp)

    def fully_connected(self, x: Ref, weight: torch.Tensor, bias: torch.Tensor | None) -> Ref:
        """x [..., in], weight [out, in], bias [out] -> [..., out], in any order of what leads."""
        last = x.rank - 1
        if x.perm[-1] != last:
            x = self.in_order(x, identity(x.rank))
        filters = self.constant(weight)
        biases = None if bias is None else self.constant(bias)
        dims = (*x.value.dims[:-1], weight.shape[0])
        return Ref(self.node("FullyConnected", [x.value, filters, biases], dims, x.dtype), x.perm)

    # --- layout ----------------------------------------------------------------------

    def in_order(self, x: Ref, perm: Perm) -> Ref:
        """The same logical tensor laid out as `perm`."""
        if x.perm == perm:
            return x
        key = (x.value, x.perm, perm)
        if key not in self._ordered:
            shape = x.shape
            dims = tuple(shape[d] for d in perm)
            only_ones_move = order_that_matters(x.perm, shape) == order_that_matters(perm, shape)
            if only_ones_move and symbolic_sizes(dims) <= 1:
                value = self._reshaped(x.value, dims)
            else:
                moved = [x.perm.index(d) for d in perm]
                value = self.node(
                    "StaticTranspose",
                    [x.value],
                    dims,
                    x.dtype,
                    num_dims=len(moved),
                    perm=moved,
                )
            self._ordered[key] = Ref(value, perm)
        return self._ordered[key]

    def permute(self, x: Ref, dims: Sequence[int]) -> Ref:
        """Dimension i of the result is dimension dims[i] of x. Costs nothing."""
        return Ref(x.value, permuted(x.perm, dims))

    def view(self, x: Ref, shape: Sequence[Dim]) -> Ref:
        """The same elements under another logical shape, without a transpose where possible.

        Definitions ask `reshape.refusal` before: it says whether there is a way at all.
        """
        target = tuple(shape)
        if same_sizes(target, x.shape):
            return x
        perm = perm_after_view(x.shape, x.perm, target)
        if perm is not None:
            dims = tuple(target[d] for d in perm)
            if same_sizes(dims, x.value.dims):
                return Ref(x.value, perm)
        if symbolic_sizes(target) > 1:
            return self._view_in_steps(x, target)
        if perm is None:
            x = self.in_order(x, identity(x.rank))
            perm = identity(len(target))
            dims = target
        return Ref(self._reshaped(x.value, dims), perm)

    def _view_in_steps(self, x: Ref, target: Sequence[Dim]) -> Ref:
        steps = plan(x.shape, target)
        if steps is None:
            raise OutOfReach(
                f"a reshape has one symbolic size in its result or keeps them apart; "
                f"got {shown(x.shape)} to {shown(target)}"
            )
        for step in steps:
            x = self._take(step, x)
        # What is left to do is to say which size of one is which.
        shape = x.shape
        name: dict[int, int] = {}
        for ones in (True, False):
            sources = [d for d in range(x.rank) if (shape[d] == 1) == ones]
            targets = [d for d in range(x.rank) if (target[d] == 1) == ones]
            name.update(zip(sources, targets, strict=True))
        return Ref(x.value, tuple(name[d] for d in x.perm))

    def _take(self, step: Step, x: Ref) -> Ref:
        if isinstance(step, Insert):
            return self._with_rank(x, x.rank + 1)
        if isinstance(step, Drop):
            gone = (step.first, step.second)
            rest = [d for d in x.perm if d not in gone]
            x = self.in_order(x, (*rest[:-1], *gone, rest[-1]))
            dims = tuple(x.shape[d] for d in rest)
            value = self.node("GlobalAvgPooling2d", [x.value], dims, x.dtype)
            return Ref(value, tuple(d - sum(1 for g in gone if g < d) for d in rest))
        if isinstance(step, Merge):
            count = x.shape[step.outer]
            assert isinstance(count, int)
            pieces = [self.slice(x, step.outer, i, 1).value for i in range(count)]
            return Ref(self.concatenate(pieces, x.perm.index(step.inner)), x.perm)
        size = x.shape[step.dim]
        assert isinstance(size, int)
        part = size // step.count
        x = self.permute(self._with_rank(x, x.rank + 1), _first_to(step.dim, x.rank + 1))
        pieces = [self.slice(x, step.dim + 1, i * part, part).value for i in range(step.count)]
        return Ref(self.concatenate(pieces, x.perm.index(step.dim)), x.perm)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """Joins values along a physical dimension. XNNPACK joins up to five at once; more are
        joined in a tree."""
        parts = list(values)
        while len(parts) > 1:
            joined = []
            for i in range(0, len(parts), 5):
                some = parts[i : i + 5]
                if len(some) == 1:
                    joined += some
                    continue
                dims = list(some[0].dims)
                dims[axis] = sum(v.dims[axis] for v in some)
                kind = f"Concatenate{len(some)}"
                joined.append(self.node(kind, some, dims, some[0].dtype, axis=axis))
            parts = joined
        return parts[0]

    def slice(self, x: Ref, dim: int, start: int, length: int) -> Ref:
        """Elements from `start` on along a dimension; of a symbolic one those that it must have."""
        physical = x.perm.index(dim)
        dims = list(x.value.dims)
        if dims[physical] == length:
            return x
        offsets = [0] * len(dims)
        dims[physical], offsets[physical] = length, start
        value = self.node(
            "StaticSlice",
            [x.value],
            dims,
            x.dtype,
            num_dims=len(dims),
            offsets=offsets,
            sizes=list(dims),
        )
        return Ref(value, x.perm)

    def _reshaped(self, value: Value, dims: tuple[Dim, ...]) -> Value:
        """At most one of `dims` is symbolic, unless they are the value's own."""
        if same_sizes(value.dims, dims):
            return value
        if symbolic_sizes(dims) > 1:
            raise OutOfReach(f"a reshape infers one size; got {shown(dims)}")
        return self.node(
            "StaticReshape",
            [value],
            dims,
            value.dtype,
            num_dims=len(dims),
            new_shape=list(dims),
        )

    def _same_order(self, a: Operand, b: Operand) -> tuple[Value, Value, Perm]:
        """Both operands with equal order of dimensions, ready for broadcasting."""
        if isinstance(a, torch.Tensor):
            assert isinstance(b, Ref)
            right, left, perm = self._same_order(b, a)
            return left, right, perm
        if isinstance(b, torch.Tensor) and b.dim() == 0:
            b = b.reshape(1)  # no payload has a constant without dimensions
        rank = max(a.rank, b.dim() if isinstance(b, torch.Tensor) else b.rank)
        if isinstance(b, torch.Tensor):
            if b.numel() == 1 and a.rank == rank:
                return a.value, self.constant(b.reshape(1)), a.perm
            # A constant of more dimensions broadcasts the operand, whatever its own are.
            perm = _leading(a.perm, rank)
            return a.value, self.constant(_lead(b, rank), perm), perm
        # An operand of fewer dimensions broadcasts as it is where the other's order allows.
        if a.rank < rank and _leading(a.perm, rank) == b.perm:
            return a.value, b.value, b.perm
        if b.rank < rank and _leading(b.perm, rank) == a.perm:
            return a.value, b.value, a.perm
        a, b = self._with_rank(a, rank), self._with_rank(b, rank)
        if a.perm != b.perm:
            # Move the smaller operand.
            if self._elements(a) >= self._elements(b):
                b = self.in_order(b, a.perm)
            else:
                a = self.in_order(a, b.perm)
        return a.value, b.value, a.perm

    def _elements(self, x: Ref) -> int:
        return math.prod(at(size, self.graph.symbols) for size in x.value.dims)

    def _with_rank(self, x: Ref, rank: int) -> Ref:
        """More dimensions of size one in front."""
        more = rank - x.rank
        if more == 0:
            return x
        if symbolic_sizes(x.value.dims) <= 1:
            value = self._reshaped(x.value, (1,) * more + x.value.dims)
        else:
            one = self.constant(torch.ones((1,) * rank, dtype=x.dtype))
            dims = (1,) * more + x.value.dims
            value = self.node("Multiply", [x.value, one], dims, x.dtype)
        return Ref(value, _leading(x.perm, rank))


def _of_all_groups(quant: Quant, groups: int) -> Quant | None:
    """Scales of one group's channels, along dimension 1, as those of all, along dimension 0."""
    if isinstance(quant, PerChannel) and quant.axis == 1:
        return PerChannel(quant.scales.repeat(groups), 0, quant.bits)
    return quant if isinstance(quant, PerTensor) else None


def scalar(number: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([number], dtype=dtype)


def holds(dtype: torch.dtype, number: float) -> bool:
    """Whether it is what float16 makes of it. float32 is what PyTorch computes with."""
    return dtype != torch.float16 or float(scalar(number, dtype)) == number


def _lead(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    return tensor.reshape((1,) * (rank - tensor.dim()) + tuple(tensor.shape))


def _leading(perm: Perm, rank: int) -> Perm:
    """The order with dimensions put in front of all others."""
    more = rank - len(perm)
    return (*range(more), *(d + more for d in perm))


def _first_to(dim: int, rank: int) -> list[int]:
    """The permutation that moves the first dimension to `dim`."""
    dims = list(range(1, rank))
    dims.insert(dim, 0)
    return dims
