"""Runs commands, and says where one breaks a rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.memory import Memory
from edgewise.backends.ethosu.simulator.run import Run
from edgewise.backends.ethosu.simulator.run_u55 import RunU55
from edgewise.backends.ethosu.simulator.run_u85 import RunU85
from edgewise.backends.ethosu.simulator.stream import Command, Target
from edgewise.backends.ethosu.simulator.weights import WeightReader
from edgewise.backends.ethosu.simulator.weights_u85 import WeightReaderU85

MAX_JUMPS = 1 << 16
"""A loop that takes more branches is taken for one without an end."""

OFFSET = "offset"
"""Among what an observer is told."""

Observer = Callable[[str, int, int, Sequence[int], Mapping[str, float]], None]
"""Is told of each operation: the command's name, when it began and ended in nanoseconds of
`time.monotonic_ns`, no positions, and where it is in the stream, in bytes: `offset`. The time is
the simulator's, not the NPU's."""


class Machine:
    """Runs commands against memory. Weights that it decoded stay decoded."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._weights = WeightReader(target)
        self._weights_u85 = WeightReaderU85(target)

    def run(
        self, commands: list[Command], memory: Memory, observer: Observer | None = None
    ) -> None:
        """Raises NpuError at the first command that breaks a rule."""
        if self._target.family == "u85":
            run: Run = RunU85(self._target, self._weights_u85, memory)
        else:
            run = RunU55(self._target, self._weights, memory)
        indices = {command.offset: index for index, command in enumerate(commands)}
        index = jumps = 0
        while index < len(commands):
            command = commands[index]
            index += 1
            try:
                begin = time.monotonic_ns() if observer is not None else 0
                target = run.step(command)
                if observer is not None and command.name.startswith("NPU_OP_"):
                    end = time.monotonic_ns()
                    observer(command.name, begin, end, (), {OFFSET: command.offset})
                if target is not None:
                    index, jumps = _jump(target, indices), jumps + 1
                    if jumps > MAX_JUMPS:
                        raise NpuError(f"a program has an end; got {jumps} branches taken")
            except NpuError as error:
                where = f"[{self._target.name}, {command.offset:#08x}, {command}]"
                raise type(error)(f"{where} {error}") from error
            except (ValueError, IndexError, ArithmeticError, MemoryError) as error:
                # Sizes that make no sense together are found where they meet.
                where = f"[{self._target.name}, {command.offset:#08x}, {command}]"
                raise NpuError(f"{where} registers fit each other; got {error!r}") from error


def _jump(target: int, indices: dict[int, int]) -> int:
    if target not in indices:
        raise NpuError(f"a branch leads to a command; got the offset {target:#x}")
    return indices[target]
