"""What a command stream writes where, told without running it."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.backends.ethosu.simulator.dma_u85 import transfer_of
from edgewise.backends.ethosu.simulator.feature_map import output_map
from edgewise.backends.ethosu.simulator.memory import Access
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Command, parse

_NO_KERNELS = (
    "NPU_OP_STOP", "NPU_OP_IRQ", "NPU_OP_PMU_MASK", "NPU_OP_DMA_WAIT", "NPU_OP_KERNEL_WAIT",
    "NPU_OP_BRANCH",
)  # fmt: skip


def writes(commands: bytes) -> Iterator[tuple[Command, Access]]:
    """Each command that writes, with each run of bytes that it writes into; in the stream's order,
    branches not taken.

    commands: with the driver's actions. Raises NpuError as `parse` does.
    """
    target, parsed = parse(commands)
    registers = Registers(target)
    for command in parsed:
        if command.name.startswith("NPU_SET_"):
            registers.set(command)
        elif command.name == "NPU_OP_DMA_START":
            accesses = transfer_of(target, registers).accesses()
            yield from ((command, one) for one in accesses if one.write)
        elif command.name not in _NO_KERNELS:
            ofm = output_map(registers)
            for one in () if ofm is None else ofm.accesses(write=True):
                yield command, one
