"""A payload made ready to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.backends.ethosu.payload import NpuProgram, NpuTensor
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.machine import Machine, Observer
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Array, Memory, Region
from edgewise.backends.ethosu.simulator.stream import parse

FAST_SCRATCH = 1 << 24
"""Bytes of region 2: as much as any memory mode has; a payload does not tell."""
MAX_SCRATCH = 1 << 31
_INPUTS, _OUTPUTS = 3, 4
"""Regions of their own, which only the second format of driver actions has."""


class Simulator:
    """Runs an NPU program, any number of times."""

    def __init__(self, program: NpuProgram) -> None:
        self._program = program
        self._target, self._commands = parse(program.commands)
        self._machine = Machine(self._target)
        if program.scratch_size > MAX_SCRATCH:
            raise NpuError(
                f"[ethosu payload] scratch memory has at most {MAX_SCRATCH} bytes; "
                f"got {program.scratch_size}"
            )
        own = {"input": _INPUTS, "output": _OUTPUTS}
        self._sizes = {1: program.scratch_size}
        for kind, tensors in (("input", program.inputs), ("output", program.outputs)):
            for index, tensor in enumerate(tensors):
                end = tensor.offset + tensor.size
                if tensor.region == own[kind] and program.commands[:4] == b"COP2":
                    self._sizes[tensor.region] = max(self._sizes.get(tensor.region, 0), end)
                elif tensor.region != 1 or end > program.scratch_size:
                    raise NpuError(
                        f"[ethosu payload] {kind} {index} is in region 1 of "
                        f"{program.scratch_size} bytes; got {tensor}"
                    )
        for region, size in self._sizes.items():
            if size > MAX_SCRATCH:
                raise NpuError(
                    f"[ethosu payload] region {region} has at most {MAX_SCRATCH} bytes; got {size}"
                )

    def run(self, inputs: Sequence[Array], observer: Observer | None = None) -> list[Array]:
        """inputs: arrays of the sizes that the program gives, of any shape and integer type.

        Returns the outputs as signed integers of their size, in the program's shapes.
        Raises NpuError where a command breaks a rule, or an input has another size.
        """
        program = self._program
        memory = Memory(
            {
                0: Region(len(program.weights), program.weights),
                2: Region(FAST_SCRATCH),
                **{region: Region(size) for region, size in self._sizes.items()},
                INTERNAL: Region(self._target.internal_bytes),
            }
        )
        if len(inputs) != len(program.inputs):
            raise NpuError(f"[run] the program has {len(program.inputs)} inputs; got {len(inputs)}")
        for index, (tensor, values) in enumerate(zip(program.inputs, inputs, strict=True)):
            data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
            if data.size != tensor.size:
                raise NpuError(f"[run] input {index} has {tensor.size} bytes; got {data.size}")
            memory.write(tensor.region, tensor.offset, (1,), data)
        self._machine.run(self._commands, memory, observer)
        return [_output(memory, index, tensor) for index, tensor in enumerate(program.outputs)]


def _output(memory: Memory, index: int, tensor: NpuTensor) -> Array:
    try:
        data = memory.bytes_at(tensor.region, tensor.offset, tensor.size)
    except NpuError as error:
        raise NpuError(f"[run, output {index}] {error}") from error
    return np.frombuffer(data, f"<i{tensor.element_size}").reshape(tensor.shape).copy()
