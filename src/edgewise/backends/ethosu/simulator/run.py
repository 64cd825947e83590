"""What running a command stream is on every NPU: registers, waits, the order of commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.feature_map import FeatureMap, feature_map
from edgewise.backends.ethosu.simulator.hazards import InFlight
from edgewise.backends.ethosu.simulator.memory import Access, Array, Memory
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Command, Target


class Copy(Protocol):
    """A transfer that is ready to start."""

    def accesses(self) -> Sequence[Access]: ...

    def run(self, memory: Memory) -> None: ...


class Run(ABC):
    """One run of a program, from its first command to its last."""

    def __init__(self, target: Target, memory: Memory) -> None:
        self.target = target
        self.memory = memory
        self.registers = Registers(target)
        self.flight = InFlight(target)
        self._stopped = False

    def step(self, command: Command) -> int | None:
        """The offset of the command that follows, where it is not the next one."""
        if self._stopped:
            raise NpuError("nothing follows NPU_OP_STOP; got a command")
        name = command.name
        if name.startswith("NPU_SET_"):
            self.registers.set(command)
        elif name == "NPU_OP_DMA_WAIT":
            self.flight.wait_dma(command.field("k"))
        elif name == "NPU_OP_KERNEL_WAIT":
            self.flight.wait_kernels(command.field("n"))
        elif name == "NPU_OP_DMA_START":
            transfer = self.transfer()
            self.flight.start_dma(command, transfer.accesses())
            transfer.run(self.memory)
        elif name == "NPU_OP_STOP":
            self._stopped = True
        elif name in ("NPU_OP_IRQ", "NPU_OP_PMU_MASK"):
            pass
        elif name == "NPU_OP_BRANCH":
            return self.branch(command)
        else:
            self.kernel(command)
        return None

    def branch(self, command: Command) -> int | None:
        """Where a branch leads; None for the next command."""
        raise NotSimulatedError(f"not simulated: {command.name}")

    @abstractmethod
    def transfer(self) -> Copy:
        """What the DMA registers describe."""

    @abstractmethod
    def kernel(self, command: Command) -> None:
        """Carries a kernel out, from its feature maps to its feature map."""

    def input(self, name: str, shape: tuple[int, int, int], accesses: list[Access]) -> FeatureMap:
        ifm = feature_map(self.registers, name, shape)
        accesses.extend(ifm.accesses(write=False))
        return ifm

    def without_zero_point(self, name: str, values: Array) -> Array:
        return values.astype(np.int64) - self.zero_point(name, values.dtype.kind == "i")

    def zero_point(self, name: str, signed: bool) -> int:
        register = f"{name}_ZERO_POINT"
        if signed:
            return self.registers.signed(register, "zero_point", 16)
        return self.registers.get(register, "zero_point")
