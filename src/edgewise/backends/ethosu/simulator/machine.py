"""Ethos-U55 and U65: commands set registers and start kernels and transfers, one by one."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator import dma, elementwise, output, pooling
from edgewise.backends.ethosu.simulator.convolution import convolution, depthwise
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.feature_map import FeatureMap, feature_map
from edgewise.backends.ethosu.simulator.hazards import InFlight
from edgewise.backends.ethosu.simulator.kernel import read_kernel
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Access, Array, Memory
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.scaling import scale
from edgewise.backends.ethosu.simulator.stream import Command, Target
from edgewise.backends.ethosu.simulator.weights import (
    WeightReader,
    cores,
    read_scales,
    streams,
)


class Machine:
    """Runs commands against memory. Weights that it decoded stay decoded."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._weights = WeightReader(target)

    def run(self, commands: list[Command], memory: Memory) -> None:
        """Raises NpuError at the first command that breaks a rule."""
        run = _Run(self._target, self._weights, memory)
        for command in commands:
            try:
                run.step(command)
            except NpuError as error:
                where = f"[{self._target.name}, {command.offset:#08x}, {command}]"
                raise type(error)(f"{where} {error}") from error
            except (ValueError, IndexError, ArithmeticError, MemoryError) as error:
                # Sizes that make no sense together are found where they meet.
                where = f"[{self._target.name}, {command.offset:#08x}, {command}]"
                raise NpuError(f"{where} registers fit each other; got {error!r}") from error


class _Run:
    def __init__(self, target: Target, weights: WeightReader, memory: Memory) -> None:
        self._target = target
        self._weights = weights
        self._memory = memory
        self._registers = Registers(target)
        self._flight = InFlight(target)
        self._stopped = False

    def step(self, command: Command) -> None:
        if self._stopped:
            raise NpuError("nothing follows NPU_OP_STOP; got a command")
        name = command.name
        if name.startswith("NPU_SET_"):
            self._registers.set(command)
        elif name == "NPU_OP_DMA_WAIT":
            self._flight.wait_dma(command.field("k"))
        elif name == "NPU_OP_KERNEL_WAIT":
            self._flight.wait_kernels(command.field("n"))
        elif name == "NPU_OP_DMA_START":
            transfer = dma.read_transfer(self._registers)
            self._flight.start_dma(command, transfer.accesses())
            transfer.run(self._memory)
        elif name == "NPU_OP_STOP":
            self._stopped = True
        elif name in ("NPU_OP_IRQ", "NPU_OP_PMU_MASK"):
            pass
        else:
            self._kernel(command)

    def _kernel(self, command: Command) -> None:
        registers = self._registers
        shape = (
            registers.get("OFM_HEIGHT_M1", "height_m1") + 1,
            registers.get("OFM_WIDTH_M1", "width_m1") + 1,
            registers.get("OFM_DEPTH_M1", "depth_m1") + 1,
        )
        ofm = feature_map(registers, "OFM", shape)
        table = output.table_access(registers, ofm, self._target.shram_bytes)
        accesses = [*ofm.accesses(write=True), *([table] if table else [])]
        values = {
            "NPU_OP_CONV": self._convolution,
            "NPU_OP_DEPTHWISE": self._convolution,
            "NPU_OP_POOL": self._pool,
            "NPU_OP_ELEMENTWISE": self._elementwise,
        }[command.name](command, ofm, accesses)
        values = output.finish(values, registers, ofm)
        if table:
            data = self._memory.bytes_at(INTERNAL, table.start, table.end - table.start)
            values = output.look_up(values, data, ofm)
        output.store(values, ofm, self._memory)

    def _input(self, name: str, shape: tuple[int, int, int], accesses: list[Access]) -> FeatureMap:
        ifm = feature_map(self._registers, name, shape)
        accesses.extend(ifm.accesses(write=False))
        return ifm

    def _without_zero_point(self, name: str, values: Array) -> Array:
        return values.astype(np.int64) - self._zero_point(name, values.dtype.kind == "i")

    def _zero_point(self, name: str, signed: bool) -> int:
        register = f"{name}_ZERO_POINT"
        if signed:
            return self._registers.signed(register, "zero_point", 16)
        return self._registers.get(register, "zero_point")

    def _convolution(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self._registers
        is_depthwise = command.name == "NPU_OP_DEPTHWISE"
        height, width, channels = ofm.shape
        kernel = read_kernel(registers)
        depth = channels if is_depthwise else registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        ifm = self._input("IFM", (*kernel.input_size(height, width), depth), accesses)
        count = cores(registers, self._target)
        accesses += [s.access for s in streams(registers, "WEIGHT", count) if s.size]
        accesses += self._scale_accesses()
        self._flight.start_kernel(command, accesses)
        weights = self._weights.read(
            self._memory,
            registers,
            (channels, kernel.height, kernel.width, 1 if is_depthwise else depth),
            is_depthwise,
            8 * ifm.dtype.itemsize,
            kernel.dilation,
        )
        x = ifm.read(self._memory).astype(np.int32)
        x = x - self._zero_point("IFM", ifm.dtype.kind == "i")
        compute = depthwise if is_depthwise else convolution
        return self._scaled(compute(x, weights, kernel, height, width))

    def _pool(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self._registers
        mode = command.opcode.fields["pooling_mode"].enum
        assert mode is not None
        name = mode[command.field("pooling_mode")]
        height, width, channels = ofm.shape
        kernel = read_kernel(registers)
        depth = registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        if name != "REDUCE_SUM" and depth != channels:
            raise NpuError(f"a pool has as many channels out as in; got {channels}, {depth}")
        ifm = self._input("IFM", (*kernel.input_size(height, width), depth), accesses)
        accesses += self._scale_accesses()
        self._flight.start_kernel(command, accesses)
        x = ifm.read(self._memory)
        if name == "MAX":
            zero = self._zero_point("IFM", ifm.dtype.kind == "i")
            values = pooling.extreme(x, kernel, height, width, True) - zero
            return self._scaled(values)
        total = pooling.window_sum(self._without_zero_point("IFM", x), kernel, height, width)
        if name == "REDUCE_SUM":
            return self._scaled(total.sum(2, keepdims=True))
        if kernel.top or kernel.left or kernel.bottom or kernel.right:
            return pooling.mean_of_windows(total, x.shape[0], x.shape[1], kernel)
        return self._scaled(total)

    def _elementwise(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self._registers
        modes = command.opcode.fields["elementwise_mode"].enum
        assert modes is not None
        mode = modes[command.field("elementwise_mode")]
        height, width, channels = ofm.shape
        ifm = self._input("IFM", ofm.shape, accesses)
        second = None if mode in elementwise.UNARY else self._second(ofm, ifm, accesses)
        self._flight.start_kernel(command, accesses)
        first = self._without_zero_point("IFM", ifm.read(self._memory))
        if second is None:
            if mode == "LRELU":
                return np.where(first < 0, self._scaled(first), first)
            values = elementwise.unary(mode, first)
            return self._scaled(values) if mode == "ABS" else values
        if isinstance(second, FeatureMap):
            other = self._without_zero_point("IFM2", second.read(self._memory))
        else:
            other = second
        a, b = first, other
        if registers.enum("IFM2_BROADCAST", "operand_order") == "ORDER_A":
            a, b = b, a
        if mode in ("ADD", "SUB"):
            a, b = self._scaled_operands(a, b, 8 * ifm.dtype.itemsize)
        rounding = registers.enum("OFM_PRECISION", "round_mode")
        values = elementwise.binary(mode, a, b, rounding)
        values = np.broadcast_to(values, (height, width, channels))
        if mode in ("ADD", "SUB", "MUL"):
            return self._scaled(values)
        return values

    def _second(
        self, ofm: FeatureMap, ifm: FeatureMap, accesses: list[Access]
    ) -> FeatureMap | Array:
        """The second operand's feature map, or a constant without its zero point."""
        registers = self._registers
        signed = ifm.dtype.kind == "i"
        if registers.get("IFM2_BROADCAST", "broadcast_constant"):
            if signed:
                value = registers.signed("IFM2_SCALAR", "scalar", 16)
            else:
                value = registers.get("IFM2_SCALAR", "scalar")
            return np.full((1, 1, 1), value - self._zero_point("IFM2", signed), np.int64)
        height, width, channels = (
            1 if registers.get("IFM2_BROADCAST", f"broadcast_{axis}") else size
            for axis, size in zip("hwc", ofm.shape, strict=True)
        )
        return self._input("IFM2", (height, width, channels), accesses)

    def _scaled_operands(self, a: Array, b: Array, bits: int) -> tuple[Array, Array]:
        """ADD and SUB scale both operands by whole numbers, or one by a fraction."""
        registers = self._registers
        mode = registers.enum("IFM_PRECISION", "scale_mode")
        multiplier = registers.get("OPA_SCALE", "scale")
        if mode == "OPA_OPB_16":
            return a * multiplier, b * registers.get("OPB_SCALE", "scale")
        # The other is one half of what the fraction's shift leaves room for.
        room = 19 if bits == 8 else 14
        shift = registers.get("OPA_SCALE", "shift")
        rounding = registers.enum("IFM_PRECISION", "round_mode")
        if mode == "OPA_32":
            return scale(a, multiplier, shift, rounding), b << room
        return a << room, scale(b, multiplier, shift, rounding)

    def _scale_accesses(self) -> list[Access]:
        if self._registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            return []
        count = cores(self._registers, self._target)
        return [s.access for s in streams(self._registers, "SCALE", count) if s.size]

    def _scaled(self, values: Array) -> Array:
        """By OFM_SCALE, or bias and scale of each channel."""
        registers = self._registers
        rounding = registers.enum("OFM_PRECISION", "round_mode")
        if registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            multiplier = registers.get("OFM_SCALE", "scale")
            return scale(values, multiplier, registers.get("OFM_SCALE", "shift"), rounding)
        scales = read_scales(self._memory, registers, self._target, values.shape[2])
        return scale(values + scales.bias, scales.multiplier, scales.shift, rounding)


__all__ = ["Machine", "NotSimulatedError"]
