"""`executorch.runtime`: our runtime, with torch tensors coming out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgewise import runtime
from edgewise.runtime import (
    BackendRegistry,
    MethodMeta,
    OperatorRegistry,
    TensorInfo,
    Verification,
)

__all__ = [
    "BackendRegistry",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorInfo",
    "Verification",
]


class Method:
    """A method with memory of its own."""

    def __init__(self, method: runtime.Method) -> None:
        self._method = method

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the method: a tensor of its own, a number or None for each output."""
        names = self._output_types
        return [
            _to_torch(value, name)
            for value, name in zip(self._method.execute(inputs), names, strict=True)
        ]

    @property
    def metadata(self) -> MethodMeta:
        """Inputs and outputs of the method."""
        return self._method.metadata

    @functools.cached_property
    def _output_types(self) -> list[str]:
        meta = self.metadata
        return [
            meta.output_tensor_meta(i).dtype_name if kind == "Tensor" else ""
            for i, kind in enumerate(meta.output_kinds)
        ]


class Program:
    """A loaded `.pte` file. Its methods share the buffers that the file says they share."""

    def __init__(self, program: runtime.Program) -> None:
        self._program = program
        self._session = program.new_session()
        self._methods: dict[str, Method] = {}

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return self._program.method_names

    def load_method(self, name: str) -> Method:
        """The method, loaded when it is first asked for. KeyError if there is none."""
        if name not in self._methods:
            self._methods[name] = Method(self._session.load_method(name))
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method, without loading it."""
        return self._program.metadata(method_name)

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """Refused: no events are recorded in ExecuTorch's format."""
        raise _no_etdump()


class Runtime:
    """The runtime of this process."""

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        """The one instance."""
        return Runtime()

    def load_program(
        self,
        data: str | Path | bytes | bytearray | BinaryIO,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: str | Path | None = None,
    ) -> Program:
        """Loads a file, or its contents. Raises as `edgewise.runtime.Runtime.load_program`."""
        del debug_buffer_size  # of ETDumps
        if enable_etdump:
            raise _no_etdump()
        return Program(
            runtime.Runtime.get().load_program(data, verification=verification, data_path=data_path)
        )


def _no_etdump() -> NotImplementedError:
    return NotImplementedError(
        "[executorch.runtime] edgewise writes no ETDump; got enable_etdump=True; "
        "try edgewise.profile()"
    )


def _to_torch(value: Any, type_name: str) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    import torch

    if type_name == "bfloat16":
        if value.dtype == np.float32:  # without ml_dtypes numpy has no bfloat16
            return torch.from_numpy(value).to(torch.bfloat16)
        return torch.from_numpy(value.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(value)
