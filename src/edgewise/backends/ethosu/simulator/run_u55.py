"""Kernels and transfers of Ethos-U55 and U65."""

from __future__ import annotations

import numpy as np

from edgewise.backends.ethosu.simulator import dma, elementwise, output, pooling
from edgewise.backends.ethosu.simulator.convolution import convolution, depthwise
from edgewise.backends.ethosu.simulator.errors import NpuError
from edgewise.backends.ethosu.simulator.feature_map import FeatureMap, output_map
from edgewise.backends.ethosu.simulator.kernel import read_kernel
from edgewise.backends.ethosu.simulator.memory import INTERNAL, Access, Array, Memory
from edgewise.backends.ethosu.simulator.run import Run
from edgewise.backends.ethosu.simulator.scaling import scale
from edgewise.backends.ethosu.simulator.stream import Command, Target
from edgewise.backends.ethosu.simulator.weights import (
    WeightReader,
    cores,
    read_scales,
    streams,
)

_SHARED = 16 << 10
"""Bytes inside the NPU up to which tables have no memory of their own."""


class RunU55(Run):
    def __init__(self, target: Target, weights: WeightReader, memory: Memory) -> None:
        super().__init__(target, memory)
        self.weights = weights

    def transfer(self) -> dma.Transfer:
        return dma.read_transfer(self.registers)

    def kernel(self, command: Command) -> None:
        registers = self.registers
        ofm = output_map(registers)
        assert ofm is not None
        table = output.table_access(registers, ofm, self.target.internal_bytes)
        accesses = [*ofm.accesses(write=True), *([table] if table else [])]
        small = self.target.internal_bytes <= _SHARED
        if small:  # the memory of tables is that of accumulators, too
            accesses.append(Access(INTERNAL, 0, self.target.internal_bytes, True))
        values = {
            "NPU_OP_CONV": self._convolution,
            "NPU_OP_DEPTHWISE": self._convolution,
            "NPU_OP_POOL": self._pool,
            "NPU_OP_ELEMENTWISE": self._elementwise,
        }[command.name](command, ofm, accesses)
        values = output.finish(values, registers, ofm)
        if table:
            data = self.memory.bytes_at(INTERNAL, table.start, table.end - table.start)
            values = output.look_up(values, data, ofm)
        elif small:
            self.memory.forget(INTERNAL)
        output.store(values, ofm, self.memory)

    def _convolution(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self.registers
        is_depthwise = command.name == "NPU_OP_DEPTHWISE"
        height, width, channels = ofm.shape
        kernel = read_kernel(registers)
        depth = channels if is_depthwise else registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        ifm = self.input("IFM", (*kernel.input_size(height, width), depth), accesses)
        count = cores(registers, self.target)
        accesses += [s.access for s in streams(registers, "WEIGHT", count) if s.size]
        accesses += self._scale_accesses()
        self.flight.start_kernel(command, accesses)
        weights = self.weights.read(
            self.memory,
            registers,
            (channels, kernel.height, kernel.width, 1 if is_depthwise else depth),
            is_depthwise,
            8 * ifm.dtype.itemsize,
            kernel.dilation,
        )
        x = ifm.read(self.memory).astype(np.int32)
        x = x - self.zero_point("IFM", ifm.dtype.kind == "i")
        compute = depthwise if is_depthwise else convolution
        return self._scaled(compute(x, weights, kernel, height, width))

    def _pool(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self.registers
        name = command.mode("pooling_mode")
        height, width, channels = ofm.shape
        kernel = read_kernel(registers)
        depth = registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        if name != "REDUCE_SUM" and depth != channels:
            raise NpuError(f"a pool has as many channels out as in; got {channels}, {depth}")
        ifm = self.input("IFM", (*kernel.input_size(height, width), depth), accesses)
        accesses += self._scale_accesses()
        self.flight.start_kernel(command, accesses)
        x = ifm.read(self.memory)
        if name == "MAX":
            zero = self.zero_point("IFM", ifm.dtype.kind == "i")
            values = pooling.extreme(x, kernel, height, width, True) - zero
            return self._scaled(values)
        total = pooling.window_sum(self.without_zero_point("IFM", x), kernel, height, width)
        if name == "REDUCE_SUM":
            return self._scaled(total.sum(2, keepdims=True))
        if kernel.top or kernel.left or kernel.bottom or kernel.right:
            return pooling.mean_of_windows(total, x.shape[0], x.shape[1], kernel)
        return self._scaled(total)

    def _elementwise(self, command: Command, ofm: FeatureMap, accesses: list[Access]) -> Array:
        registers = self.registers
        mode = command.mode("elementwise_mode")
        height, width, channels = ofm.shape
        ifm = self.input("IFM", ofm.shape, accesses)
        second = None if mode in elementwise.UNARY else self._second(ofm, ifm, accesses)
        self.flight.start_kernel(command, accesses)
        first = self.without_zero_point("IFM", ifm.read(self.memory))
        if second is None:
            if mode == "LRELU":
                return np.where(first < 0, self._scaled(first), first)
            values = elementwise.unary(mode, first)
            return self._scaled(values) if mode == "ABS" else values
        if isinstance(second, FeatureMap):
            other = self.without_zero_point("IFM2", second.read(self.memory))
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
        registers = self.registers
        signed = ifm.dtype.kind == "i"
        if registers.get("IFM2_BROADCAST", "broadcast_constant"):
            if signed:
                value = registers.signed("IFM2_SCALAR", "scalar", 16)
            else:
                value = registers.get("IFM2_SCALAR", "scalar")
            return np.full((1, 1, 1), value - self.zero_point("IFM2", signed), np.int64)
        height, width, channels = (
            1 if registers.get("IFM2_BROADCAST", f"broadcast_{axis}") else size
            for axis, size in zip("hwc", ofm.shape, strict=True)
        )
        return self.input("IFM2", (height, width, channels), accesses)

    def _scaled_operands(self, a: Array, b: Array, bits: int) -> tuple[Array, Array]:
        """ADD and SUB scale both operands by whole numbers, or one by a fraction."""
        registers = self.registers
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
        if self.registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            return []
        count = cores(self.registers, self.target)
        return [s.access for s in streams(self.registers, "SCALE", count) if s.size]

    def _scaled(self, values: Array) -> Array:
        """By OFM_SCALE, or bias and scale of each channel."""
        registers = self.registers
        rounding = registers.enum("OFM_PRECISION", "round_mode")
        if registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            multiplier = registers.get("OFM_SCALE", "scale")
            return scale(values, multiplier, registers.get("OFM_SCALE", "shift"), rounding)
        scales = read_scales(self.memory, registers, self.target, values.shape[2])
        return scale(values + scales.bias, scales.multiplier, scales.shift, rounding)
