"""`executorch.runtime`: our runtime, with torch tensors coming out."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgewise import runtime
from edgewise.profiling.recording import profile
from edgewise.profiling.result import Profile
from edgewise.profiling.write_etdump import write_etdump
from edgewise.runtime import BackendRegistry, OperatorRegistry, Verification
from edgewise.runtime.errors import InvalidArgumentError

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


_TYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


class TensorInfo(runtime.TensorInfo):
    """As `edgewise.runtime.TensorInfo`, printed as ExecuTorch prints it."""

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, "
            f"dtype={_TYPES.get(self.dtype_name, self.dtype_name)}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta(runtime.MethodMeta):
    """As `edgewise.runtime.MethodMeta`, printed as ExecuTorch prints it."""

    def num_attributes(self) -> int:
        """Mutable buffers that the file names."""
        return len(self._info.attributes)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """Raises IndexError out of range."""
        return self._tensor("attribute", tuple(self._info.attributes.values()), index)

    def _tensor(self, role: str, values: tuple[Any, ...], index: int) -> TensorInfo:
        return TensorInfo(super()._tensor(role, values, index)._info)

    def __repr__(self) -> str:
        def show(values: tuple[Any, ...]) -> list[str]:
            return [repr(TensorInfo(v)) if v.kind == "Tensor" else v.kind for v in values]

        return (
            f"MethodMeta(name='{self.name()}', num_inputs={self.num_inputs()}, "
            f"input_tensor_meta={show(self._inputs)}, num_outputs={self.num_outputs()}, "
            f"output_tensor_meta={show(self._outputs)})"
        )


class Method:
    """A method with memory of its own."""

    def __init__(self, method: runtime.Method, profiles: list[Profile] | None = None) -> None:
        """profiles: what each run is recorded in; None: it is not."""
        self._method = method
        self._profiles = profiles

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs the method: a tensor of its own, a number or None for each output."""
        check_devices(inputs)
        names = self._output_types
        return [
            _to_torch(value, name) for value, name in zip(self._run(inputs), names, strict=True)
        ]

    def _run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self._profiles is None:
            return self._method.execute(inputs)
        with profile() as recorded:
            results = self._method.execute(inputs)
        self._profiles.append(recorded)
        return results

    @property
    def metadata(self) -> MethodMeta:
        """Inputs and outputs of the method."""
        return MethodMeta(self._method.metadata._info)

    def get_attribute(self, name: str) -> Any:
        """What a mutable buffer that the file names holds now: a tensor of its own."""
        value = self._method.get_attribute(name)
        return _to_torch(value, self._method.metadata.attributes[name].dtype_name)

    @functools.cached_property
    def _output_types(self) -> list[str]:
        meta = self.metadata
        return [
            meta.output_tensor_meta(i).dtype_name if kind == "Tensor" else ""
            for i, kind in enumerate(meta.output_kinds)
        ]


class Program:
    """A loaded `.pte` file. Its methods share the buffers that the file says they share."""

    def __init__(self, program: runtime.Program, enable_etdump: bool = False) -> None:
        self._program = program
        self._profiles: list[Profile] | None = [] if enable_etdump else None
        self._session = program.new_session()
        self._methods: dict[str, Method] = {}

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return self._program.method_names

    def load_method(self, name: str) -> Method:
        """The method, loaded when it is first asked for. KeyError if there is none."""
        if name not in self._methods:
            self._methods[name] = Method(self._session.load_method(name), self._profiles)
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method, without loading it."""
        return MethodMeta(self._program.metadata(method_name)._info)

    @property
    def has_etdump(self) -> bool:
        """Whether runs are recorded."""
        return self._profiles is not None

    def write_etdump_result_to_file(
        self, etdump_path: str | Path, debug_buffer_path: str | Path | None = None
    ) -> None:
        """Writes the runs since the program was loaded, or since they were last written. The
        buffer for values in between is empty. RuntimeError without `enable_etdump=True`."""
        if self._profiles is None:
            raise RuntimeError(
                "[write_etdump_result_to_file] runs must be recorded; got a program that was "
                "loaded without; try enable_etdump=True"
            )
        profiles, self._profiles[:] = list(self._profiles), []
        write_etdump([runs for one in profiles for runs in one.methods], etdump_path)
        if debug_buffer_path:
            Path(debug_buffer_path).write_bytes(b"")


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
        return load(data, verification, data_path, enable_etdump, debug_buffer_size)


_threads: int | None = None


def set_threads(count: int) -> None:
    """Threads of programs that are loaded from now on."""
    global _threads
    _threads = count


def load(
    data: Any,
    verification: Verification,
    data_path: str | Path | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> Program:
    """Loads a file, or its contents, with the threads that `set_threads` has set."""
    if enable_etdump and debug_buffer_size > 0:
        warnings.warn(
            f"[executorch.runtime] ETDump files hold times alone, no values in between; got "
            f"debug_buffer_size={debug_buffer_size}; try edgewise.inspect.compare",
            stacklevel=3,
        )
    loaded = runtime.Runtime.get().load_program(
        data, verification=verification, data_path=data_path, threads=_threads
    )
    return Program(loaded, enable_etdump)


def check_devices(inputs: Sequence[Any]) -> None:
    """InvalidArgumentError for a tensor that is not in this machine's memory."""
    for index, value in enumerate(inputs):
        device = getattr(value, "device", "cpu")
        if getattr(device, "type", "cpu") != "cpu":
            raise InvalidArgumentError(
                f"[execute] input {index} is on device {device}; only CPU tensors can be read; "
                "try tensor.cpu()"
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
