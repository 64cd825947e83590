"""A TOSA 1.0 graph, made with `tosa_serializer`.

Tensors have the sizes that TOSA sees (`dims`) and say which logical dimension each of these
is (`order`), so that a permutation costs nothing until an operator needs another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.backends.ethosu.lowering.extra import serializer
from edgewise.edge.orders import Perm, by_dimension, identity

Array = npt.NDArray[Any]

INT4, INT8, INT16, INT32, INT48, BOOL = "INT4", "INT8", "INT16", "INT32", "INT48", "BOOL"
RANGE = {
    INT4: (-7, 7),
    INT8: (-(2**7), 2**7 - 1),
    INT16: (-(2**15), 2**15 - 1),
    INT32: (-(2**31), 2**31 - 1),
    INT48: (-(2**47), 2**47 - 1),
}
BYTES = {INT8: 1, INT16: 2, INT32: 4, INT48: 8, BOOL: 1}
_STORED_AS = {
    INT4: np.int8,
    INT8: np.int8,
    INT16: np.int16,
    INT32: np.int32,
    INT48: np.int64,
    BOOL: np.bool_,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph. `order[i]` is the logical dimension that `dims[i]` is."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    order: Perm

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes by logical dimension."""
        return by_dimension(self.dims, self.order)

    @property
    def rank(self) -> int:
        return len(self.dims)

    def axis(self, dim: int) -> int:
        """The index in `dims` of the logical dimension."""
        return self.order.index(dim)


@dataclass(frozen=True)
class _Call:
    """An operator or constant: `add` gives it to a serializer."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    add: Callable[[Any], None]


class Tosa:
    """Operators are added with their result's sizes; `serialize` gives the flatbuffer of those that
    outputs depend on: what nobody reads need not be allowed in TOSA."""

    origin = ""
    """The program's node that is being lowered."""

    def __init__(self) -> None:
        self._ts = serializer()
        self._calls: list[_Call] = []
        self._count = 0
        self._consts: dict[tuple[Any, ...], Tensor] = {}
        self.operators: list[str] = []
        """What was added, by name and in order."""
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.origins: dict[str, str] = {}
        """By tensor, the node that it was made for."""

    def _name(self, stem: str) -> str:
        self._count += 1
        name = f"{stem}_{self._count}"
        if self.origin:
            self.origins[name] = self.origin
        return name

    def input(self, dims: Sequence[int], dtype: str, order: Perm) -> Tensor:
        made = Tensor(self._name("input"), tuple(dims), dtype, order)
        self.inputs.append(made)
        return made

    def output(self, tensor: Tensor) -> None:
        self.outputs.append(tensor)

    def const(self, values: Any, dtype: str, dims: Sequence[int] | None = None) -> Tensor:
        """A constant as it lies in memory; the same one once."""
        shape = np.shape(values) if dims is None else tuple(dims)
        # Of no dimensions, too, which `ascontiguousarray` makes one of.
        array = np.ascontiguousarray(values, dtype=_STORED_AS[dtype]).reshape(shape)
        key = (dtype, array.shape, array.tobytes() if array.nbytes <= 4096 else id(values))
        if key not in self._consts:
            name = self._name("const")
            # 48 bits have no array type of their own.
            data: Any = array.reshape(-1).tolist() if dtype in (INT48, BOOL) else array
            self._constant("CONST", name, array.shape, dtype, data)
            made = Tensor(name, array.shape, dtype, identity(array.ndim))
            # A large array is known by its address: kept alive as long as the graph.
            self._consts[key] = made
            self._consts[key + ("of",)] = values  # noqa: RUF005
        return self._consts[key]

    def shape(self, sizes: Sequence[int]) -> Tensor:
        """A constant of TOSA's type for shapes."""
        key = ("SHAPE", tuple(sizes))
        if key not in self._consts:
            name = self._name("shape")
            self._constant("CONST_SHAPE", name, (len(sizes),), "SHAPE", list(sizes))
            self._consts[key] = Tensor(name, (len(sizes),), "SHAPE", (0,))
        return self._consts[key]

    def _constant(
        self, operator: str, name: str, dims: Sequence[int], dtype: str, data: Any
    ) -> None:
        kind = getattr(self._ts.DType, dtype)

        def add(graph: Any) -> None:
            graph.addConst(list(dims), kind, data, name=name)

        self._calls.append(_Call(operator, (), name, add))

    def add(
        self,
        operator: str,
        inputs: Sequence[Tensor],
        dims: Sequence[int],
        dtype: str,
        order: Perm | None = None,
        **attributes: Any,
    ) -> Tensor:
        """operator: TOSA's name (`CONV2D`); attributes: as the serializer calls them."""
        ts = self._ts
        made = Tensor(
            self._name(operator.lower()), tuple(dims), dtype, order or identity(len(dims))
        )
        attribute = ts.TosaSerializerAttribute()
        getattr(attribute, _ATTRIBUTE[operator])(**attributes)
        names = [t.name for t in inputs]

        def add(graph: Any) -> None:
            block = graph.currRegion.currBasicBlock
            block.addTensor(made.name, list(made.dims), getattr(ts.DType, dtype))
            graph.addOperator(getattr(ts.Op, operator), names, [made.name], attribute)

        self._calls.append(_Call(operator, tuple(names), made.name, add))
        self.operators.append(operator)
        return made

    def enum(self, kind: str, member: str) -> Any:
        """A member of one of the serializer's enumerations."""
        return getattr(getattr(self._ts, kind), member)

    def accumulator(self, dtype: str) -> Any:
        return getattr(self._ts.DType, dtype)

    def calls(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """Operators that outputs depend on, with the names of what they read and compute, constants
        among them."""
        for call in self._needed():
            yield call.operator, list(call.inputs), [call.output]

    def _needed(self) -> list[_Call]:
        wanted = {tensor.name for tensor in self.outputs}
        found = []
        for call in reversed(self._calls):
            if call.output in wanted:
                wanted.update(call.inputs)
                found.append(call)
        return found[::-1]

    def serialize(self) -> bytes:
        ts = self._ts
        graph = ts.TosaSerializer(
            "", targetMajor=1, targetMinor=0, targetPatch=0, targetDraft=False
        )
        for tensor in self.inputs:
            kind = getattr(ts.DType, tensor.dtype)
            graph.addInputTensor(
                ts.TosaSerializerTensor(tensor.name, list(tensor.dims), kind, data=None)
            )
        for call in self._needed():
            call.add(graph)
        tensors = graph.currRegion.currBasicBlock.tensors
        for tensor in self.outputs:
            graph.addOutputTensor(tensors[tensor.name])
        return bytes(graph.serialize())


_OPERATORS = """
_ ABS ADD ARGMAX ARITHMETIC_RIGHT_SHIFT AVG_POOL2D BITWISE_AND BITWISE_NOT BITWISE_OR
BITWISE_XOR CAST CLAMP CLZ CONCAT CONV2D DEPTHWISE_CONV2D EQUAL GATHER GREATER
GREATER_EQUAL INTDIV LOGICAL_AND LOGICAL_LEFT_SHIFT LOGICAL_NOT LOGICAL_OR
LOGICAL_XOR MATMUL MAXIMUM MAX_POOL2D MINIMUM MUL NEGATE PAD
REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_SUM RESCALE RESHAPE RESIZE REVERSE
SCATTER SELECT SLICE SUB TABLE TILE TRANSPOSE TRANSPOSE_CONV2D
"""
_ATTRIBUTE = {
    operator: "".join(p.capitalize() for p in operator.split("_")) + "Attribute"
    for operator in _OPERATORS.split()
} | {"ARGMAX": "ArgMaxAttribute", "INTDIV": "IntDivAttribute", "MATMUL": "MatMulAttribute"}


class Dry(Tosa):
    """Keeps sizes and types only: to see whether something can be lowered, and to what."""

    def __init__(self) -> None:
        self._count = 0
        self.operators = []
        self.inputs = []
        self.outputs = []

    def input(self, dims: Sequence[int], dtype: str, order: Perm) -> Tensor:
        return Tensor(self._name("input"), tuple(dims), dtype, order)

    def output(self, tensor: Tensor) -> None:
        pass

    def const(self, values: Any, dtype: str, dims: Sequence[int] | None = None) -> Tensor:
        shape = np.shape(values) if dims is None else tuple(dims)
        return Tensor(self._name("const"), shape, dtype, identity(len(shape)))

    def shape(self, sizes: Sequence[int]) -> Tensor:
        return Tensor("shape", (len(sizes),), "SHAPE", (0,))

    def add(
        self,
        operator: str,
        inputs: Sequence[Tensor],
        dims: Sequence[int],
        dtype: str,
        order: Perm | None = None,
        **attributes: Any,
    ) -> Tensor:
        self.operators.append(operator)
        return Tensor(self._name("dry"), tuple(dims), dtype, order or identity(len(dims)))

    def enum(self, kind: str, member: str) -> Any:
        return None

    def accumulator(self, dtype: str) -> Any:
        return None

    def serialize(self) -> bytes:
        return b""


def little_endian(number: int, dtype: str) -> list[int]:
    """A number as the bytes that attributes of a type want."""
    return list(np.array([number], _STORED_AS[dtype]).tobytes())


def elements(tensor: Tensor) -> int:
    return math.prod(tensor.dims)
