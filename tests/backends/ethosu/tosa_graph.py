"""TOSA graphs for tests: an operator a call, tensors by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tosa_reference_model
import tosa_serializer as ts

DTYPES = {
    "int8": ts.DType.INT8,
    "int16": ts.DType.INT16,
    "int32": ts.DType.INT32,
    "int48": ts.DType.INT48,
    "bool": ts.DType.BOOL,
}
ROUND = {
    "single": ts.RoundingMode.SINGLE_ROUND,
    "double": ts.RoundingMode.DOUBLE_ROUND,
    "inexact": ts.RoundingMode.INEXACT_ROUND,
}


class TosaGraph:
    """Builds a graph. Tensors are names; `shapes` and `types` tell what they are."""

    def __init__(self) -> None:
        self._graph = ts.TosaSerializer(
            "", targetMajor=1, targetMinor=0, targetPatch=0, targetDraft=False
        )
        self._block = self._graph.currRegion.currBasicBlock
        self._count = 0
        self.shapes: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        self.inputs: list[str] = []
        self.ranges: dict[str, tuple[int, int]] = {}
        self._regions: list[tuple[str, Callable[[], Sequence[str]]]] = []

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def input(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        values: tuple[int, int] | None = None,
    ) -> str:
        """values: the smallest and largest; None: all of the type."""
        name = self._name("x")
        self._graph.addInputTensor(
            ts.TosaSerializerTensor(name, list(shape), DTYPES[dtype], data=None)
        )
        self.shapes[name], self.types[name] = list(shape), dtype
        self.inputs.append(name)
        if values is not None:
            self.ranges[name] = values
        return name

    def random(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Values for the inputs."""
        arrays = []
        for name in self.inputs:
            if self.types[name] == "bool":
                arrays.append(rng.integers(0, 2, self.shapes[name]).astype(bool))
                continue
            limits = np.iinfo(self.types[name])
            low, high = self.ranges.get(name, (limits.min, limits.max))
            arrays.append(
                rng.integers(low, high, self.shapes[name], np.dtype(self.types[name]), True)
            )
        return arrays

    def const(self, values: Any, dtype: str) -> str:
        array = np.asarray(values)
        name = self._name("c")
        data = array if dtype in ("int8", "int16", "int32", "bool") else array.flatten().tolist()
        if dtype in ("int8", "int16", "int32"):
            data = array.astype(dtype)
        self._graph.addConst(list(array.shape), DTYPES[dtype], data, name=name)
        self.shapes[name], self.types[name] = list(array.shape), dtype
        return name

    def shape(self, values: Sequence[int]) -> str:
        name = self._name("s")
        self._graph.addConst([len(values)], ts.DType.SHAPE, list(values), name=name)
        return name

    def region(self, build: Callable[[], Sequence[str]]) -> str:
        """The name of a branch or loop's part. build: adds its inputs and operators, later."""
        name = self._name("r")
        self._regions.append((name, build))
        return name

    def ops(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[tuple[Sequence[int], str]],
        attribute: ts.TosaSerializerAttribute | None = None,
    ) -> list[str]:
        """outputs: shapes and types."""
        names = [self._name("t") for _ in outputs]
        for name, (shape, dtype) in zip(names, outputs, strict=True):
            self._block.addTensor(name, list(shape), DTYPES[dtype])
            self.shapes[name], self.types[name] = list(shape), dtype
        self._graph.addOperator(getattr(ts.Op, kind), list(inputs), names, attribute)
        return names

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        dtype: str,
        attribute: ts.TosaSerializerAttribute | None = None,
    ) -> str:
        return self.ops(kind, inputs, [(shape, dtype)], attribute)[0]

    def rescale(
        self,
        x: str,
        scale: float | Sequence[float],
        dtype: str = "int8",
        input_zp: int = 0,
        output_zp: int = 0,
        rounding: str = "single",
        scale32: bool = True,
        input_unsigned: bool = False,
        output_unsigned: bool = False,
    ) -> str:
        """Multiplies by `scale` (one number, or one for each channel)."""
        scales = np.atleast_1d(np.asarray(scale, np.float64))
        mantissa, exponent = np.frexp(scales)
        bits = 31 if scale32 else 15
        multiplier = np.round(mantissa * (1 << bits)).astype(np.int64)
        exponent = np.where(multiplier == 1 << bits, exponent + 1, exponent)
        multiplier = np.where(multiplier == 1 << bits, multiplier // 2, multiplier)
        shift = bits - exponent
        attribute = ts.TosaSerializerAttribute()
        attribute.RescaleAttribute(
            scale32=scale32,
            rounding_mode=ROUND[rounding],
            per_channel=len(scales) > 1,
            input_unsigned=input_unsigned,
            output_unsigned=output_unsigned,
        )
        operands = [
            x,
            self.const(multiplier, "int32" if scale32 else "int16"),
            self.const(shift, "int8"),
            self.const([input_zp], self.types[x]),
            self.const([output_zp], dtype),
        ]
        return self.op("RESCALE", operands, self.shapes[x], dtype, attribute)

    def output(self, name: str) -> None:
        self._graph.addOutputTensor(self._block.tensors[name])

    def finish(self, *outputs: str) -> bytes:
        for name in outputs:
            self.output(name)
        inputs = list(self.inputs)
        for region, build in self._regions:
            self._graph.startRegion(region, "")
            self._graph.addBasicBlock(region)
            self._block = self._graph.currRegion.currBasicBlock
            for name in build():
                self.output(name)
        self.inputs = inputs
        return bytes(self._graph.serialize())


def attribute(kind: str, **values: Any) -> ts.TosaSerializerAttribute:
    result = ts.TosaSerializerAttribute()
    getattr(result, f"{kind}Attribute")(**values)
    return result


def reference(blob: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the TOSA reference model computes."""
    outputs, status = tosa_reference_model.run(blob, list(inputs), tosa_level="EIGHTK")
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID, status
    return [np.asarray(output) for output in outputs]
