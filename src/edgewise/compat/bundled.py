"""`executorch.devtools.bundled_program`: a program with calls to try it by, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from edgewise.compat import portable_lib
from edgewise.compat.runtime import Runtime, Verification
from edgewise.emit.bundling import BundledProgram, MethodTestCase, MethodTestSuite
from edgewise.format import bundled_program as schema
from edgewise.inspect.bundles import compared, inputs_of

ConfigValue = torch.Tensor | int | bool | float
DataContainer: Any = list | tuple | dict
MethodInputType = Sequence[ConfigValue]
MethodOutputType = Sequence[torch.Tensor]

__all__ = ["BundledModule", "BundledProgram", "MethodTestCase", "MethodTestSuite"]


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """The file's bytes."""
    return bundled_program.buffer


def deserialize_from_flatbuffer_to_bundled_program(flatbuffer: bytes) -> schema.BundledProgram:
    """The file as dataclasses."""
    return schema.read(flatbuffer)


class BundledModule:
    """A bundled program that was read."""

    def __init__(self, held: schema.BundledProgram) -> None:
        self.held = held

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> list[Any]:
        """Runs a call. Its outputs; RuntimeError if they are not those that are expected."""
        case = self._case(method_name, testset_idx)
        method = Runtime.get().load_program(self.held.program).load_method(method_name)
        outputs = method.execute(list(inputs_of(case)))
        numbers = [y.double() if isinstance(y, torch.Tensor) else y for y in outputs]
        found = compared(method_name, testset_idx, case, numbers, rtol, atol)
        if found.matches is False:
            raise _wrong(method_name, testset_idx, found.problem)
        return outputs

    def _case(self, method_name: str, index: int) -> schema.BundledMethodTestCase:
        for suite in self.held.method_test_suites or ():
            if suite.method_name == method_name and 0 <= index < len(suite.test_cases or ()):
                case: schema.BundledMethodTestCase = suite.test_cases[index]
                return case
        raise _wrong(method_name, index, "the file has no such call")


def _wrong(method: str, index: int, what: str) -> RuntimeError:
    return RuntimeError(f"[bundled program] call {index} of {method!r}: {what}")


def _load_bundled_program_from_buffer(buffer: bytes, non_const_pool_size: int = 0) -> BundledModule:
    return BundledModule(schema.read(buffer))


def _load_for_executorch_from_bundled_program(
    module: BundledModule,
    data_path: Any = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> portable_lib.ExecuTorchModule:
    program = portable_lib._load(
        module.held.program,
        data_path,
        enable_etdump,
        debug_buffer_size,
        Verification.InternalConsistency,
    )
    return portable_lib.ExecuTorchModule(program)
