"""What a command stream reads and writes where, told without running it."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.backends.ethosu.simulator import elementwise
from edgewise.backends.ethosu.simulator.dma_u85 import transfer_of
from edgewise.backends.ethosu.simulator.feature_map import (
    IN_MEMORY,
    FeatureMap,
    feature_map,
    output_map,
    output_shape,
)
from edgewise.backends.ethosu.simulator.hazards import InFlight
from edgewise.backends.ethosu.simulator.kernel import read_kernel
from edgewise.backends.ethosu.simulator.memory import Access
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.stream import Command, parse

Shape = tuple[int, int, int]

_NO_KERNELS = (
    "NPU_OP_STOP", "NPU_OP_IRQ", "NPU_OP_PMU_MASK", "NPU_OP_BRANCH",
)  # fmt: skip
_WINDOWED = ("NPU_OP_CONV", "NPU_OP_DEPTHWISE", "NPU_OP_POOL")


def accesses(commands: bytes) -> Iterator[tuple[Command, Access]]:
    """Each command that touches memory, with each run of bytes that it writes, and that it reads of
    feature maps; in the stream's order, branches not taken.

    commands: with the driver's actions. Raises NpuError as `parse` does, for a kernel that no NPU
    carries out (a pool with windows beside its image, or what writes elements over each other), and
    for a command that waits for none that touches the same bytes.
    """
    target, parsed = parse(commands)
    registers, flight = Registers(target), InFlight(target)
    for command in parsed:
        if command.name.startswith("NPU_SET_"):
            registers.set(command)
        elif command.name == "NPU_OP_DMA_WAIT":
            flight.wait_dma(command.field("k"))
        elif command.name == "NPU_OP_KERNEL_WAIT":
            flight.wait_kernels(command.field("n"))
        elif command.name == "NPU_OP_DMA_START":
            touched = list(transfer_of(target, registers).accesses())
            flight.start_dma(command, touched)
            yield from ((command, one) for one in touched)
        elif command.name not in _NO_KERNELS:
            touched = [*_written(registers), *_read(command, registers)]
            flight.start_kernel(command, touched)
            yield from ((command, one) for one in touched)


def _written(registers: Registers) -> list[Access]:
    ofm = output_map(registers)
    if ofm is None:
        return []
    ofm.check_apart()
    return ofm.accesses(write=True)


def _read(command: Command, registers: Registers) -> list[Access]:
    maps = _inputs(command, registers)
    return [one for ifm in maps for one in ifm.accesses(write=False)]


def _inputs(command: Command, registers: Registers) -> Iterator[FeatureMap]:
    """The feature maps in memory that a kernel reads."""
    shape = output_shape(registers)
    if command.name in _WINDOWED:
        is_pool = command.name == "NPU_OP_POOL"
        has_window = not (is_pool and command.mode("pooling_mode") == "NONE")
        if has_window and _is_in_memory(registers, "IFM"):
            height, width, depth = shape
            if command.name != "NPU_OP_DEPTHWISE":
                depth = registers.get("IFM_DEPTH_M1", "depth_m1") + 1
            kernel = read_kernel(registers)
            if is_pool:
                kernel.check_padding()
            yield feature_map(registers, "IFM", (*kernel.input_size(height, width), depth))
    elif command.name == "NPU_OP_ELEMENTWISE":
        mode = command.mode("elementwise_mode")
        for name in ("IFM",) if mode in elementwise.UNARY else ("IFM", "IFM2"):
            operand = _operand(registers, name, shape)
            if operand is not None:
                yield operand


def _operand(registers: Registers, name: str, shape: Shape) -> FeatureMap | None:
    """Of an elementwise operation; None for a number, and what is inside the NPU."""
    if not _is_in_memory(registers, name):
        return None
    height, width, depth = shape
    if registers.has_field("IFM2_BROADCAST", "broadcast_mode"):  # Ethos-U85's
        broadcast = registers.get(f"{name}_BROADCAST", "broadcast_mode")
        height, width, depth = (1 if broadcast >> i & 1 else n for i, n in enumerate(shape))
    elif name == "IFM2":
        if registers.get("IFM2_BROADCAST", "broadcast_constant"):
            return None
        height, width, depth = (
            1 if registers.get("IFM2_BROADCAST", f"broadcast_{axis}") else n
            for axis, n in zip("hwc", shape, strict=True)
        )
    return feature_map(registers, name, (height, width, depth))


def _is_in_memory(registers: Registers, name: str) -> bool:
    precision = f"{name}_PRECISION"
    if not registers.has_field(precision, "activation_storage"):
        return True
    return registers.enum(precision, "activation_storage") in IN_MEMORY
