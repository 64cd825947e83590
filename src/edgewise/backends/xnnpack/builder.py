"""Building an XNNPACK subgraph while walking an edge graph.

Layout is lazy: every tensor is known by a physical value and a permutation, where
dimension `perm[i]` of the logical tensor is the value's dimension `i`. A permutation of
the logical tensor therefore costs nothing, channels-last is a permutation like any
other, and a transpose is put in only where a node needs another order than the one at
hand, or where a program's output has to be in its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgewise.backends.xnnpack.graph import Graph, Node, Value

NHWC = (0, 2, 3, 1)
Perm = tuple[int, ...]


def identity(rank: int) -> Perm:
    return tuple(range(rank))


@dataclass(frozen=True, eq=False)
class Ref:
    """A logical tensor: `value.dims[i]` is the size of its dimension `perm[i]`."""

    value: Value
    perm: Perm

    @property
    def shape(self) -> tuple[int, ...]:
        logical = [0] * len(self.perm)
        for physical, dim in enumerate(self.perm):
            logical[dim] = self.value.dims[physical]
        return tuple(logical)

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

    def __init__(self) -> None:
        self.graph = Graph()
        self.origin = 0
        self._ordered: dict[tuple[Value, Perm], Ref] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}
        self._kept: list[torch.Tensor] = []

    # --- values ----------------------------------------------------------------------

    def input(self, shape: Sequence[int], dtype: torch.dtype, perm: Perm) -> Ref:
        """The next external input, laid out as `perm`."""
        dims = tuple(int(shape[d]) for d in perm)
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
            self._kept.append(tensor)  # keeps data_ptr unique while it is a key
        return self._constants[key]

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
        dims: Sequence[int],
        dtype: torch.dtype,
        clamp: tuple[float, float] | None = None,
        **params: Any,
    ) -> Value:
        """Adds a node with one output of physical shape `dims`, and returns that."""
        output = Value(tuple(int(d) for d in dims), dtype)
        self.graph.nodes.append(Node(kind, list(inputs), [output], params, clamp, self.origin))
        return output

    def unary(self, kind: str, x: Ref, clamp: Any = None, **params: Any) -> Ref:
        """An elementwise node: any order will do."""
        return Ref(self.node(kind, [x.value], x.value.dims, x.dtype, clamp, **params), x.perm)

    def binary(
        self, kind: str, a: Operand, b: Operand, clamp: tuple[float, float] | None = None
    ) -> Ref:
        """An elementwise node with broadcasting. At least one operand is computed."""
        left, right, perm = self._same_order(a, b)
        dims = np.broadcast_shapes(left.dims, right.dims)
        return Ref(self.node(kind, [left, right], dims, left.dtype, clamp), perm)

    def scale(self, x: Ref, factor: float) -> Ref:
        return x if factor == 1 else self.binary("Multiply", x, scalar(factor, x.dtype))

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
        key = (x.value, perm)
        if key not in self._ordered:
            shape = x.shape
            dims = tuple(shape[d] for d in perm)
            if _order_that_matters(x.perm, shape) == _order_that_matters(perm, shape):
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
        place = {dim: i for i, dim in enumerate(dims)}
        return Ref(x.value, tuple(place[d] for d in x.perm))

    def view(self, x: Ref, shape: Sequence[int]) -> Ref:
        """The same elements under another logical shape, without a transpose where possible."""
        target = tuple(int(s) for s in shape)
        if target == x.shape:
            return x
        perm = _perm_after_view(x.shape, x.perm, target)
        if perm is None:
            x = self.in_order(x, identity(x.rank))
            perm = identity(len(target))
        dims = tuple(target[d] for d in perm)
        return Ref(self._reshaped(x.value, dims), perm)

    def slice(self, x: Ref, dim: int, start: int, length: int) -> Ref:
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

    def _reshaped(self, value: Value, dims: tuple[int, ...]) -> Value:
        if value.dims == dims:
            return value
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
        rank = max(a.rank, b.dim() if isinstance(b, torch.Tensor) else b.rank)
        a = self._with_rank(a, rank)
        if isinstance(b, torch.Tensor):
            if b.numel() == 1:
                return a.value, self.constant(b.reshape(1)), a.perm
            return a.value, self.constant(_lead(b, rank), a.perm), a.perm
        b = self._with_rank(b, rank)
        if a.perm != b.perm:
            # Move the smaller operand.
            if math.prod(a.value.dims) >= math.prod(b.value.dims):
                b = self.in_order(b, a.perm)
            else:
                a = self.in_order(a, b.perm)
        return a.value, b.value, a.perm

    def _with_rank(self, x: Ref, rank: int) -> Ref:
        more = rank - x.rank
        if more == 0:
            return x
        value = self._reshaped(x.value, (1,) * more + x.value.dims)
        return Ref(value, (*range(more), *(d + more for d in x.perm)))


def scalar(number: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([number], dtype=dtype)


def _lead(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    return tensor.reshape((1,) * (rank - tensor.dim()) + tuple(tensor.shape))


def _order_that_matters(perm: Perm, shape: Sequence[int]) -> list[int]:
    """Dimensions of size one may lie anywhere."""
    return [d for d in perm if shape[d] != 1]


def _perm_after_view(shape: Sequence[int], perm: Perm, target: Sequence[int]) -> Perm | None:
    """Order of the target's dimensions if x, laid out as `perm`, is viewed as `target`.

    Source and target dimensions fall into the smallest groups of equal product. A
    group that merges or splits dimensions needs those that matter to be neighbours in
    memory, in logical order; otherwise None.
    """
    memory = _order_that_matters(perm, shape)
    place = {dim: i for i, dim in enumerate(memory)}
    blocks: list[tuple[int, list[int]]] = []
    ones: list[int] = []
    for sources, targets in _groups(shape, target):
        real = [d for d in sources if shape[d] != 1]
        if not real:
            ones += targets
            continue
        first = place[real[0]]
        if [place.get(d) for d in real] != list(range(first, first + len(real))):
            return None
        blocks.append((first, targets))
    order = [d for _, targets in sorted(blocks) for d in targets]
    same = _keeping_dims([shape[d] for d in perm], order, ones, target)
    if same is not None:
        return same
    for dim in reversed(ones):
        # Next to the dimension that follows, so that plain orders stay plain.
        order.insert(order.index(dim + 1) if dim + 1 in order else len(order), dim)
    return tuple(order)


def _keeping_dims(
    dims: Sequence[int], order: Sequence[int], ones: Sequence[int], target: Sequence[int]
) -> Perm | None:
    """The order in which the target has the very dims that lie in memory, if there is one."""
    if len(dims) != len(target):
        return None
    real, free = list(order), list(ones)
    found = []
    for size in dims:
        source = free if size == 1 and free else real
        if not source or target[source[0]] != size:
            return None
        found.append(source.pop(0))
    return tuple(found)


def _groups(shape: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    found = []
    i = j = 0
    while i < len(shape) or j < len(target):
        sources, targets = [], []
        a = b = 1
        if i < len(shape):
            a, i = shape[i], i + 1
            sources.append(i - 1)
        if j < len(target):
            b, j = target[j], j + 1
            targets.append(j - 1)
        while a != b:
            if a < b:
                a, i = a * shape[i], i + 1
                sources.append(i - 1)
            else:
                b, j = b * target[j], j + 1
                targets.append(j - 1)
        found.append((sources, targets))
    return found
