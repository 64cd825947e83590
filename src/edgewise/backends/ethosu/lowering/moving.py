"""Moves of tensors whose order in memory is free until something needs one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewise.backends.ethosu.lowering.tosa import (
    BOOL,
    INT32,
    RANGE,
    Tensor,
    Tosa,
    little_endian,
)
from edgewise.edge.orders import NHWC, Perm, identity, permuted

Again = Callable[[Tensor], Tensor]
"""Adds the same operator to another tensor of the same sizes."""


class MovingBuilder:
    """Adds what moves, joins and cuts tensors to a TOSA graph, and constants."""

    def __init__(self, family: str, tosa: Tosa | None = None) -> None:
        self.tosa = tosa or Tosa()
        self.takes_apart = family != "U85"
        """U55 and U65 have no units for reductions and products: Vela takes these apart."""
        self._ordered: dict[tuple[str, Perm], Tensor] = {}
        self._known: dict[tuple[str, Perm], Any] = {}
        """The values of constants, by their name and the order in which they lie."""
        self._numbers: dict[str, int] = {}
        """The constants of one element."""
        self._sources: dict[str, str] = {}
        self._slices: dict[str, tuple[Tensor, Again] | None] = {}
        """Names of slices, and of what lies as they do: of what, and how it is made of that."""
        self._reshapes: dict[str, Tensor] = {}
        """By the names of what is another tensor in another shape: of which."""
        self._products: set[str] = set()
        """Names of what products of matrices give that are taken apart, and of what is computed
        from each element of that."""
        self._moved: set[str] = set()
        """Names of what is transposed, and of that in another shape."""
        self._whole: dict[str, Tensor] = {}
        self._selected: set[str] = set()
        self._reshaped: set[str] = set()
        """Names of what SELECT reads, and of what has a second shape: nothing may be both."""
        self._reduced: set[str] = set()
        """Names of what reductions give, and of what is computed from each element of that."""
        self._windowed: set[str] = set()
        """Names of what convolutions and pools give, of pieces of that, and of what is computed
        from each element of these."""
        self._made_of: dict[str, tuple[Tensor, Again]] = {}
        """By the names of all that is another tensor in another shape or order: of what, and how it
        is made."""
        self._views: set[str] = set()
        """Names of windowed and reduced ones in another shape or order, and of all that is
        transposed."""

    def in_order(self, t: Tensor, order: Perm) -> Tensor:
        """The same tensor, lying as `order` says."""
        if t.order == order:
            return t
        values = self._known.get((t.name, t.order))
        if values is not None:
            return self.const(values, t.dtype, order)
        key = (t.name, (*t.order, -1, *order))
        if key not in self._ordered:
            perms = [t.order.index(dim) for dim in order]
            dims = [t.dims[p] for p in perms]
            moved = [p for p in perms if t.dims[p] != 1]
            if moved == sorted(moved):  # only dimensions of size 1 move
                made = self.reshaped_to(t, dims, order)
            else:
                made = self._view(t, lambda s: self._transposed(s, perms, order), moves=True)
            self._ordered[key] = made
            # Nothing has to be moved back either.
            self._ordered[made.name, (*order, -1, *t.order)] = t
        return self._ordered[key]

    def _transposed(self, t: Tensor, perms: Sequence[int], order: Perm) -> Tensor:
        """In pieces where dimensions that stay side by side are larger together than U55 and U65
        take."""
        dims = [t.dims[p] for p in perms]
        cut = _cut_of(t.dims, perms) if self.takes_apart else None
        if cut is None:
            return self.tosa.add("TRANSPOSE", [t], dims, t.dtype, order, perms=perms)
        index, most = cut
        dim = t.order[index]
        pieces = [
            self._transposed(
                self.slice(t, {dim: start}, {dim: min(most, t.dims[index] - start)}), perms, order
            )
            for start in range(0, t.dims[index], most)
        ]
        axis = perms.index(index)
        return self.tosa.add("CONCAT", pieces, dims, t.dtype, order, axis=axis)

    def reshape(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        """The elements in another shape, in the order of the logical dimensions."""
        if t.shape == tuple(shape):
            return t
        kept = _kept_order(t, shape)
        if kept is None:
            t, kept = self.in_order(t, identity(t.rank)), identity(len(shape))
        dims = [shape[d] for d in kept]
        if t.dtype == BOOL:  # Vela gives what else reads booleans the other shape
            t = self.written(t)
        return self.reshaped_to(t, dims, kept)

    def reshaped_to(self, t: Tensor, dims: Sequence[int], order: Perm) -> Tensor:
        """The elements as they lie, with other dimensions; `order` says which those are."""
        if len(dims) > 4:
            t = self.whole(t)  # Vela folds dimensions, and then reads a slice from elsewhere
        if t.name in self._selected:
            t = self.written(t)
        t = self._reshapes.get(t.name, t)  # of one tensor, not of one that only lies between
        self._reshaped.add(t.name)
        shape = self.tosa.shape(dims)
        made = self._view(t, lambda s: self.tosa.add("RESHAPE", [s, shape], dims, s.dtype, order))
        self._reshapes[made.name] = t
        return made

    def written(self, t: Tensor) -> Tensor:
        """The same elements as a tensor of its own, by an operator that Vela does not drop."""
        return self.of_each(t, self._copy)

    def _copy(self, t: Tensor) -> Tensor:
        if t.dtype == BOOL:
            return self.tosa.add("LOGICAL_OR", [t, t], t.dims, t.dtype, t.order)
        nan_mode = self.tosa.enum("NanPropagationMode", "PROPAGATE")
        if t.dtype == INT32:
            return self.tosa.add("MAXIMUM", [t, t], t.dims, t.dtype, t.order, nan_mode=nan_mode)
        low, high = (little_endian(n, t.dtype) for n in RANGE[t.dtype])
        return self.tosa.add(
            "CLAMP", [t], t.dims, t.dtype, t.order, min_val=low, max_val=high, nan_mode=nan_mode
        )

    def of_each(self, t: Tensor, operator: Again, by_table: bool = False) -> Tensor:
        """An operator on each element. Vela makes one of it and of a reduction before it, and
        of what that has more than three dimensions it computes something else. So it does of a
        table and a convolution or pool in another shape: it reads that one's input in a third.
        What is another shape of a reduction's result has too little memory on U85. Of an operator
        and the last part of a transposition it makes one that writes elements over each other; of a
        table and what is computed in another shape (a norm of rows) one that reads beyond it."""
        if t.name in (self._made_of if by_table else self._views):
            viewed, again = self._made_of[t.name]
            made = self.of_each(viewed, operator, by_table)
            return replace(self._view(made, again, t.name in self._moved), order=t.order)
        if t.name in self._windowed:
            made = operator(t)
            self._windowed.add(made.name)
            return made
        if t.name not in self._reduced:
            made = operator(t)
            if t.name in self._products:
                self._products.add(made.name)
            return made
        before = math.prod(t.dims[:-3])
        if before == 1:
            made = operator(t)
        else:
            dims = (before * t.dims[-3], *t.dims[-2:])
            flat = operator(self.reshaped_to(t, dims, identity(3)))
            made = self.reshaped_to(flat, t.dims, t.order)
        self._reduced.add(made.name)
        return made

    def _view(self, t: Tensor, again: Again, moves: bool = False) -> Tensor:
        """moves: whether it is transposed."""
        made = again(t)
        self._sources[made.name] = self.source(t)
        self._made_of[made.name] = t, again
        if moves or t.name in self._moved:
            self._moved.add(made.name)
        before = (self._windowed, self._views, self._reduced)
        if made.name in self._moved or any(t.name in names for names in before):
            self._views.add(made.name)
        self._lies_as(t, made, again)
        return made

    def _of_windows(self, made: Tensor, *parts: Tensor) -> Tensor:
        """Pieces of what windows gave, and what is made of pieces: Vela moves none of them, but has
        each window write to its own address."""
        if any(self._is_of_windows(part.name) for part in parts):
            self._windowed.add(made.name)
        return made

    def _is_of_windows(self, name: str) -> bool:
        """Whether windows gave it, maybe in another shape or order, or it is a reduction's result
        in another one."""
        source = self._behind_views(name)
        return source in self._windowed or (source != name and source in self._reduced)

    def _behind_views(self, name: str) -> str:
        while name in self._views:
            name = self._made_of[name][0].name
        return name

    def _lies_as(self, t: Tensor, made: Tensor, again: Again) -> None:
        if t.name in self._slices:
            self._slices[made.name] = (t, again)

    def whole(self, t: Tensor) -> Tensor:
        """A slice, or what lies as one, as a tensor of its own: where Vela gives an operator's
        input another shape, it reads a slice from where the whole tensor begins."""
        if t.name not in self._slices:
            return t
        if t.name not in self._whole:
            of = self._slices[t.name]
            if of is None:
                made = self.written(t)
            else:
                whole = self.whole(of[0])
                made = of[1](whole)
                if t.name in self._sources:  # a view
                    self._sources[made.name] = self.source(whole)
            self._whole[t.name] = made
        return replace(self._whole[t.name], order=t.order)

    def source(self, t: Tensor) -> str:
        """The name of the tensor that `t` is in another shape or order, or its own."""
        return self._sources.get(t.name, t.name)

    def permute(self, t: Tensor, dims: Sequence[int]) -> Tensor:
        made = replace(t, order=permuted(t.order, dims))
        values = self._known.get((t.name, t.order))
        if values is not None:
            self._known[made.name, made.order] = values.transpose(dims)
        return made

    def with_rank(self, t: Tensor, rank: int) -> Tensor:
        """Dimensions of size 1 put before all others, up to the rank."""
        extra = rank - t.rank
        if extra == 0:
            return t
        values = self._known.get((t.name, t.order))
        if values is not None:
            return self.const(values.reshape((*(1,) * extra, *values.shape)), t.dtype)
        order = (*range(extra), *(d + extra for d in t.order))
        dims = (*(1,) * extra, *t.dims)
        return self.reshaped_to(t, dims, order)

    def const(self, values: Any, dtype: str, order: Perm | None = None) -> Tensor:
        """values: an array in logical order, laid out as `order` says."""
        array = np.asarray(values)
        order = order or identity(array.ndim)
        lying = array if order == identity(array.ndim) else array.transpose(order)
        made = self.tosa.const(np.ascontiguousarray(lying), dtype, lying.shape)
        if made.order != order:
            # Of one content, known by its name in one order.
            made = Tensor(made.name, made.dims, dtype, order)
        self._known[made.name, made.order] = array
        return made

    def is_known(self, t: Tensor) -> bool:
        """Whether it is a constant."""
        return (t.name, t.order) in self._known

    def number(self, value: int, like: Tensor, dtype: str = INT32) -> Tensor:
        """A constant of one element, that can be combined with `like`."""
        made = self.tosa.const(np.full((1,) * like.rank, value), dtype)
        self._numbers[made.name] = value
        return Tensor(made.name, made.dims, dtype, like.order)

    def concat(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        order = _common_order(parts)
        parts = [self.in_order(self._not_apart(p), order) for p in parts]
        axis = order.index(dim)
        dims = list(parts[0].dims)
        dims[axis] = sum(p.dims[axis] for p in parts)
        made = self.tosa.add("CONCAT", parts, dims, parts[0].dtype, order, axis=axis)
        return self._of_windows(made, *parts)

    def _not_apart(self, t: Tensor) -> Tensor:
        """Vela has what is joined write its part itself: a reduction over other parts, too, and
        the pieces of a product not all of it if it is joined in another shape."""
        if self.source(t) in self._products and t.name not in self._products:
            return self.written(t)
        return self.written(t) if self._behind_views(t.name) in self._reduced else t

    def slice(self, t: Tensor, start: Mapping[int, int], size: Mapping[int, int]) -> Tensor:
        """Elements from `start` on, `size` of them, by dimension; others whole."""
        first = [start.get(d, 0) for d in t.order]
        sizes = [size.get(d, n) for d, n in zip(t.order, t.dims, strict=True)]
        if sizes == list(t.dims):
            return t
        if len(sizes) > 4:  # Vela computes something else of what reads it, or ends
            runs = _runs_of_whole(t.dims, sizes)
            if len(runs) < len(sizes):
                dims, counts = (
                    [math.prod(of[i] for i in run) for run in runs] for of in (t.dims, sizes)
                )
                starts = {i: first[run[0]] for i, run in enumerate(runs)}
                flat = self.reshaped_to(t, dims, identity(len(dims)))
                cut = self.slice(flat, starts, dict(enumerate(counts)))
                return self.reshaped_to(cut, sizes, t.order)
        shapes = [self.tosa.shape(first), self.tosa.shape(sizes)]
        made = self.tosa.add("SLICE", [t, *shapes], sizes, t.dtype, t.order)
        self._slices[made.name] = None
        return self._of_windows(made, t)

    def pad(self, t: Tensor, amounts: Mapping[int, tuple[int, int]], number: int) -> Tensor:
        pairs = [amounts.get(d, (0, 0)) for d in t.order]
        if not any(before or after for before, after in pairs):
            return t
        dims = [n + b + a for n, (b, a) in zip(t.dims, pairs, strict=True)]
        flat = self.tosa.shape([n for pair in pairs for n in pair])
        value = self.tosa.const([number], t.dtype)
        made = self.tosa.add("PAD", [t, flat, value], dims, t.dtype, t.order)
        return self._of_windows(made, t)

    def tile(self, t: Tensor, repeats: Sequence[int]) -> Tensor:
        times = [repeats[d] for d in t.order]
        if all(n == 1 for n in times):
            return t
        dims = [n * r for n, r in zip(t.dims, times, strict=True)]
        made = self.tosa.add("TILE", [t, self.tosa.shape(times)], dims, t.dtype, t.order)
        return self._of_windows(made, t)

    def aligned(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Of one rank and order: that of the largest."""
        rank = max(p.rank for p in parts)
        parts = [self.with_rank(p, rank) for p in parts]
        order = max(parts, key=lambda p: math.prod(p.dims)).order
        return [self.in_order(p, order) for p in parts]


def _runs_of_whole(dims: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Dimensions side by side of which a slice takes all together, each other one by itself."""
    runs: list[list[int]] = []
    for index, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        if runs and dim == size and dims[runs[-1][0]] == sizes[runs[-1][0]]:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


_MOST_MOVED = 2**16


def _cut_of(dims: Sequence[int], perms: Sequence[int]) -> tuple[int, int] | None:
    """Which dimension is to be cut into pieces, and their size: of those that a transposition
    leaves side by side, and that are too large together. None if none are."""
    runs: list[list[int]] = []
    for index in perms:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    for run in runs:
        size = math.prod(dims[p] for p in run)
        if size > _MOST_MOVED:
            index = max(run, key=lambda p: dims[p])
            return index, max(_MOST_MOVED // (size // dims[index]), 1)
    return None


def _kept_order(t: Tensor, shape: Sequence[int]) -> Perm | None:
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


def _common_order(parts: Sequence[Tensor]) -> Perm:
    """The order that the most elements have already."""
    weight: dict[Perm, int] = {}
    for part in parts:
        weight[part.order] = weight.get(part.order, 0) + math.prod(part.dims)
    return max(weight, key=weight.__getitem__)
