"""Builds a TFLite program: tensors and operators in the order in which they are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgewise.backends.neutron.tflite.schema import (
    IDENTIFIER,
    OPTIONS_NUMBER,
    VERSION,
    Buffer,
    BuiltinOperator,
    Model,
    Operator,
    OperatorCode,
    QuantizationParameters,
    SubGraph,
    Tensor,
    TensorType,
)
from edgewise.flatbuffer import Table, pack

_TYPES = {
    np.dtype(np.int8): TensorType.INT8,
    np.dtype(np.int32): TensorType.INT32,
    np.dtype(np.int64): TensorType.INT64,
    np.dtype(np.float32): TensorType.FLOAT32,
}
_LARGEST_DEPRECATED_CODE = 127
_OPERATOR_VERSIONS = {
    BuiltinOperator.HARD_SWISH: 1,
    BuiltinOperator.PRELU: 1,
    BuiltinOperator.RESHAPE: 1,
    BuiltinOperator.RELU_0_TO_1: 1,
    BuiltinOperator.RELU_N1_TO_1: 1,
    BuiltinOperator.CONV_2D: 3,
    BuiltinOperator.DEPTHWISE_CONV_2D: 3,
    BuiltinOperator.FULLY_CONNECTED: 5,
    BuiltinOperator.TRANSPOSE_CONV: 2,
    BuiltinOperator.BATCH_MATMUL: 2,
}
"""Of operators on int8, where it is not 2. Constants with several scales came with these."""


@dataclass(frozen=True)
class Quantization:
    """real = scale * (stored - zero_point); several scales: one for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True)
class Value:
    """A tensor of the program. `index`: its number there."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    quantization: Quantization | None


class ModelBuilder:
    """`finish` gives the file."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._buffers: list[Buffer] = [Buffer()]  # the first one is empty by rule
        self._codes: dict[BuiltinOperator, int] = {}
        self._operators: list[Operator] = []
        self._constants: dict[tuple[object, ...], Value] = {}
        self._names: set[str] = set()
        self.operator_names: list[str] = []
        """The first result of each operator: what people call it by."""

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: type[np.generic] = np.int8,
        quantization: Quantization | None = None,
    ) -> Value:
        """An input, or what an operator computes. A name that is taken gets a number."""
        return self._add(name, tuple(shape), np.dtype(dtype), quantization, 0)

    def constant(
        self,
        name: str,
        data: NDArray[np.generic],
        quantization: Quantization | None = None,
    ) -> Value:
        """A constant; one with the same contents and meaning is kept once."""
        data = np.ascontiguousarray(data).reshape(data.shape)  # alone, it makes 0-d data 1-d
        key = (data.shape, data.dtype, data.tobytes(), quantization)
        if key not in self._constants:
            self._buffers.append(Buffer(data.tobytes()))
            self._constants[key] = self._add(
                name, data.shape, data.dtype, quantization, len(self._buffers) - 1
            )
        return self._constants[key]

    def operator(
        self,
        code: BuiltinOperator,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        options: Table | None = None,
    ) -> None:
        """Appends a step. None: an optional input that is left out."""
        index = self._codes.setdefault(code, len(self._codes))
        self._operators.append(
            Operator(
                opcode_index=index,
                inputs=[-1 if value is None else value.index for value in inputs],
                outputs=[value.index for value in outputs],
                builtin_options=(
                    None if options is None else (OPTIONS_NUMBER[type(options)], options)
                ),
            )
        )
        self.operator_names.append(outputs[0].name)

    def finish(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> bytes:
        """The file; `inputs` and `outputs` in the order of the program's arguments."""
        graph = SubGraph(
            tensors=self._tensors,
            inputs=[value.index for value in inputs],
            outputs=[value.index for value in outputs],
            operators=self._operators,
            name="main",
        )
        codes = [
            OperatorCode(
                deprecated_builtin_code=min(code, _LARGEST_DEPRECATED_CODE),
                builtin_code=code,
                version=_OPERATOR_VERSIONS.get(code, 2),
            )
            for code in self._codes
        ]
        model = Model(VERSION, codes, [graph], "edgewise", self._buffers)
        return pack(model, IDENTIFIER)

    def _add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        quantization: Quantization | None,
        buffer: int,
    ) -> Value:
        number, unique = 0, name
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        parameters = None
        if quantization is not None:
            parameters = QuantizationParameters(
                scale=quantization.scales,
                zero_point=quantization.zero_points,
                quantized_dimension=quantization.axis,
            )
        self._tensors.append(
            Tensor(
                shape=list(shape),
                type=_TYPES[dtype],
                buffer=buffer,
                name=unique,
                quantization=parameters,
            )
        )
        return Value(len(self._tensors) - 1, unique, shape, dtype, quantization)
