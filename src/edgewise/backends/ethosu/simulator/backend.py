"""The runtime's backend: delegates for Ethos-U run in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewise.backends.ethosu import payload
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.machine import Observer
from edgewise.backends.ethosu.simulator.memory import Array
from edgewise.backends.ethosu.simulator.program import Simulator


def load_delegate(
    data: bytes, compile_specs: dict[str, bytes], named_data: Callable[[str], bytes]
) -> Callable[[list[Any]], Sequence[Any]]:
    """A factory for `edgewise.runtime.register_backend`.

    Tensors go to the NPU as their bytes are in memory. Raises ValueError for a payload that
    breaks a rule of the format, NpuError for a malformed command stream.
    """
    return _Delegate(payload.from_bytes(data))


class _Delegate:
    """Takes the delegate's arguments, gives its outputs."""

    def __init__(self, program: payload.NpuProgram) -> None:
        self._simulator = Simulator(program)
        self._inputs, self._outputs = len(program.inputs), len(program.outputs)

    def __call__(self, arguments: list[Any]) -> list[Array]:
        return self._run(arguments, None)

    def profiled(self, arguments: list[Any], record: Observer) -> list[Array]:
        """The same, and the simulator's time of each of the NPU's operations."""
        return self._run(arguments, record)

    def _run(self, arguments: list[Any], observer: Observer | None) -> list[Array]:
        inputs, outputs = self._inputs, self._outputs
        if len(arguments) != inputs + outputs:
            raise NpuError(
                f"[run] the program has {inputs} inputs and {outputs} outputs; "
                f"got {len(arguments)} arguments"
            )
        given = [np.ravel(x, order="K") for x in arguments[:inputs]]
        results = self._simulator.run(given, observer)
        return [_like(y, x) for y, x in zip(results, arguments[inputs:], strict=True)]


def _like(result: Array, argument: Any) -> Array:
    """The result's bytes as an array of the argument's type, shape and order in memory."""
    if not isinstance(argument, np.ndarray) or argument.nbytes != result.nbytes:
        raise NpuError(f"[run] an output has {result.nbytes} bytes; got {argument!r}")
    order = np.empty_like(argument).strides
    return np.ndarray(argument.shape, argument.dtype, result.tobytes(), 0, order)
