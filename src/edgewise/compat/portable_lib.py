"""`executorch.extension.pybindings.portable_lib`: the older way to run a program."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewise import runtime
from edgewise.compat.runtime import (
    Method,
    MethodMeta,
    Program,
    check_devices,
    load,
    set_threads,
)
from edgewise.runtime import Verification

__all__ = ["ExecuTorchMethod", "ExecuTorchModule", "ExecuTorchProgram"]


def _several(inputs: Any) -> Sequence[Any]:
    return [inputs] if hasattr(inputs, "__dlpack__") else inputs


class ExecuTorchMethod:
    """A method: `method(inputs)`."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._inputs: Sequence[Any] = ()
        self._outputs: list[Any] = []

    def set_inputs(self, inputs: Any) -> None:
        """Keeps the inputs of the next `execute`."""
        self._inputs = _several(inputs)
        check_devices(self._inputs)

    def execute(self) -> None:
        """Runs the method on what was set."""
        self._outputs = self._method.execute(self._inputs)

    def get_outputs(self, clone_outputs: bool = True) -> list[Any]:
        """Of the last run; outputs always have memory of their own."""
        return self._outputs

    def call(self, inputs: Any = (), clone_outputs: bool = True) -> list[Any]:
        """Runs the method; a tensor alone is its only input."""
        return self._method.execute(_several(inputs))

    __call__ = call

    def method_meta(self) -> MethodMeta:
        """Inputs and outputs of the method."""
        return self._method.metadata

    def get_attribute(self, name: str) -> Any:
        """What a mutable buffer that the file names holds now. KeyError without it."""
        return self._method.get_attribute(name)


class ExecuTorchProgram:
    """A loaded file, whose methods are numbered by name."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = sorted(program.method_names)

    def num_methods(self) -> int:
        """How many methods there are."""
        return len(self._names)

    def get_method_name(self, method_index: int) -> str:
        """The name of a method. RuntimeError if there are not so many."""
        if not 0 <= method_index < len(self._names):
            raise RuntimeError(
                f"[get_method_name] an index must be below {len(self._names)}; got {method_index}"
            )
        return self._names[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        """Makes a method ready to run."""
        return ExecuTorchMethod(self._program.load_method(method_name))

    def method_meta(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method."""
        return self._program.metadata(method_name)

    def has_etdump(self) -> bool:
        """Whether runs are recorded."""
        return self._program.has_etdump

    def write_etdump_result_to_file(
        self, path: str | Path, debug_buffer_path: str | Path | None = None
    ) -> None:
        """As `executorch.runtime.Program.write_etdump_result_to_file`."""
        self._program.write_etdump_result_to_file(path, debug_buffer_path)


class ExecuTorchModule:
    """A loaded file: `module.forward(inputs)`, `module.run_method(name, inputs)`."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def forward(self, inputs: Any, clone_outputs: bool = True) -> list[Any]:
        """Runs "forward"; a tensor alone is its only input."""
        return self.run_method("forward", inputs)

    __call__ = forward

    def run_method(
        self, method_name: str, inputs: Any = (), clone_outputs: bool = True
    ) -> list[Any]:
        """Runs a method."""
        return self._program.load_method(method_name).execute(_several(inputs))

    def method_names(self) -> list[str]:
        """Names of the methods."""
        return sorted(self._program.method_names)

    def method_meta(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method."""
        return self._program.metadata(method_name)

    def has_etdump(self) -> bool:
        """Whether runs are recorded."""
        return self._program.has_etdump

    def write_etdump_result_to_file(
        self, path: str | Path, debug_buffer_path: str | Path | None = None
    ) -> None:
        """As `executorch.runtime.Program.write_etdump_result_to_file`."""
        self._program.write_etdump_result_to_file(path, debug_buffer_path)


def _load_for_executorch(
    program_path: str | Path,
    data_path: str | Path | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    return ExecuTorchModule(
        _load(program_path, data_path, enable_etdump, debug_buffer_size, program_verification)
    )


def _load_for_executorch_from_buffer(
    buffer: bytes,
    data_map_buffer: bytes | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    return ExecuTorchModule(
        _load(buffer, data_map_buffer, enable_etdump, debug_buffer_size, program_verification)
    )


def _unsafe_reset_threadpool(num_threads: int) -> None:
    """Of programs that are loaded from now on: each has threads of its own."""
    set_threads(num_threads)


def _load_program(
    path: str | Path,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
    data_path: str | Path | None = None,
) -> ExecuTorchProgram:
    return ExecuTorchProgram(
        _load(path, data_path, enable_etdump, debug_buffer_size, program_verification)
    )


def _load_program_from_buffer(
    buffer: bytes,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
    data_path: str | Path | None = None,
) -> ExecuTorchProgram:
    return ExecuTorchProgram(
        _load(buffer, data_path, enable_etdump, debug_buffer_size, program_verification)
    )


def _is_available(backend_name: str) -> bool:
    return runtime.Runtime.get().backend_registry.is_available(backend_name)


def _get_registered_backend_names() -> list[str]:
    return runtime.Runtime.get().backend_registry.registered_backend_names


def _get_operator_names() -> list[str]:
    return sorted(runtime.Runtime.get().operator_registry.operator_names)


def _load(
    data: str | Path | bytes,
    data_path: str | Path | bytes | None,
    enable_etdump: bool,
    debug_buffer_size: int,
    verification: Verification,
) -> Program:
    """data_path: a file of weights, or its contents."""
    if isinstance(data_path, bytes):
        # The runtime maps files: one that is gone again once it is mapped.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder, "data.ptd")
            path.write_bytes(data_path)
            return _load(data, path, enable_etdump, debug_buffer_size, verification)
    return load(data, verification, data_path, enable_etdump, debug_buffer_size)
