"""Ethos-U85: operands that are scaled, broadcast or chained; outputs that are turned over."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewise.backends.ethosu.simulator import elementwise, output, pooling, resize
from edgewise.backends.ethosu.simulator.convolution import convolution, depthwise
from edgewise.backends.ethosu.simulator.dma import Transfer
from edgewise.backends.ethosu.simulator.dma_u85 import Indexed, read_transfer_u85
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.feature_map import (
    TRANSPOSES,
    FeatureMap,
    output_map,
    output_shape,
)
from edgewise.backends.ethosu.simulator.kernel import read_kernel
from edgewise.backends.ethosu.simulator.memory import Access, Array, Memory
from edgewise.backends.ethosu.simulator.output_u85 import finish_u85, table_access_u85
from edgewise.backends.ethosu.simulator.run import Run
from edgewise.backends.ethosu.simulator.scaling import scale
from edgewise.backends.ethosu.simulator.stream import Command, Target
from edgewise.backends.ethosu.simulator.weights import streams
from edgewise.backends.ethosu.simulator.weights_u85 import WeightReaderU85, read_scales_u85

Operand = FeatureMap | Array
"""In memory, or (chained, constant) the values themselves without their zero point."""


class RunU85(Run):
    def __init__(self, target: Target, weights: WeightReaderU85, memory: Memory) -> None:
        super().__init__(target, memory)
        self._weights = weights
        self._chain: dict[int, Array] = {}
        """What chaining buffers hold."""
        self._kept: Array | None = None
        """Accumulators of a kernel without output."""
        self._result: Array | None = None
        """Of the last kernel that had one."""

    def transfer(self) -> Transfer | Indexed:
        return read_transfer_u85(self.registers)

    def kernel(self, command: Command) -> None:
        registers = self.registers
        shape = output_shape(registers)
        storage = registers.enum("OFM_PRECISION", "activation_storage")
        ofm = output_map(registers)
        accesses = [] if ofm is None else ofm.accesses(write=True)
        dtype = self.type_of("OFM")
        table = table_access_u85(registers)
        accesses += [table] if table else []
        compute = {
            "NPU_OP_CONV": self._convolution,
            "NPU_OP_DEPTHWISE": self._convolution,
            "NPU_OP_POOL": self._pool,
            "NPU_OP_ELEMENTWISE": self._elementwise,
            "NPU_OP_RESIZE": self._resize,
        }.get(command.name)
        if compute is None:
            raise NotSimulatedError(f"not simulated: {command.name}")
        values = compute(command, shape, accesses)
        if values is None:
            return
        values = np.broadcast_to(values, shape) + self.zero_point("OFM", dtype.kind == "i")
        values = finish_u85(values, registers, dtype, table, self.memory)
        self._result = values
        if storage == "CHAINED":
            self._chain[registers.get("OFM_REGION", "region")] = values.astype(dtype)
            return
        assert ofm is not None or storage == "NONE"
        if ofm is not None:
            order = registers.enum("OFM_PRECISION", "activation_transpose")
            values = values.transpose(TRANSPOSES[order])
            reverse = registers.enum("OFM_PRECISION", "activation_reverse")
            if reverse != "NONE":
                values = np.flip(values, "HWC".index(reverse))
            output.store(values, ofm, self.memory)

    def branch(self, command: Command) -> int | None:
        """Conditions are results of one element: nothing says what more would mean."""
        if command.mode("branch_cond") == "RF_TRUE":
            if self._result is None or self._result.size != 1:
                size = 0 if self._result is None else self._result.size
                raise NpuError(f"a branch follows a kernel with one result; got {size}")
            if not self._result.any():
                return None
        return command.field("branch_target")

    def type_of(self, name: str) -> np.dtype[Any]:
        signed = self.registers.get(f"{name}_PRECISION", "activation_type")
        size = 1 << self.registers.get(f"{name}_PRECISION", "activation_precision")
        return np.dtype(f"{'i' if signed else 'u'}{size}")

    # Operands

    def _operand(
        self, name: str, shape: tuple[int, int, int], accesses: list[Access], broadcast: int = 0
    ) -> Operand:
        registers = self.registers
        storage = registers.enum(f"{name}_PRECISION", "activation_storage")
        signed = self.type_of(name).kind == "i"
        if storage == "NONE":
            value = registers.signed("OP_SCALAR", "scalar", 32)
            return np.full((1, 1, 1), value - self.zero_point(name, signed), np.int64)
        if storage == "CHAINED":
            buffer = registers.get(f"{name}_REGION", "region")
            if buffer not in self._chain:
                raise NpuError(f"a chaining buffer is written before it is read; got {buffer}")
            return self.without_zero_point(name, self._chain[buffer])
        height, width, depth = (
            1 if broadcast >> bit & 1 else size for bit, size in enumerate(shape)
        )
        return self.input(name, (height, width, depth), accesses)

    def _values(self, name: str, operand: Operand) -> Array:
        if isinstance(operand, FeatureMap):
            return self.without_zero_point(name, operand.read(self.memory))
        return operand

    # Kernels. None: the accumulators stay inside.

    def _convolution(
        self, command: Command, shape: tuple[int, int, int], accesses: list[Access]
    ) -> Array | None:
        registers = self.registers
        is_depthwise = command.name == "NPU_OP_DEPTHWISE"
        height, width, channels = shape
        kernel = read_kernel(registers)
        depth = channels if is_depthwise else registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        ifm = self._operand("IFM", (*kernel.input_size(height, width), depth), accesses)
        dynamic = not is_depthwise and command.field("weights_ifm2")
        weight_map = None
        if dynamic:
            if (kernel.height, kernel.width) != (1, 1):
                raise NpuError("weights from a feature map have one point; got more")
            weight_map = self.input("IFM2", (1, channels, depth), accesses)
        else:
            accesses += [s.access for s in self._weights.streams(registers) if s.size]
        start = self._start_accumulator(shape, accesses)
        accesses += self._scale_accesses()
        self.flight.start_kernel(command, accesses)
        x = self._values("IFM", ifm)
        if weight_map is not None:
            rows = self.without_zero_point("IFM2", weight_map.read(self.memory))
            weights = rows.reshape(channels, 1, 1, depth)
        else:
            weights = self._weights.read(
                self.memory,
                registers,
                (channels, kernel.height, kernel.width, 1 if is_depthwise else depth),
                is_depthwise,
                8 * self.type_of("IFM").itemsize,
                kernel.stride,
                kernel.dilation,
            )
        compute = depthwise if is_depthwise else convolution
        return self._end(compute(x, weights, kernel, height, width), start)

    def _start_accumulator(
        self, shape: tuple[int, int, int], accesses: list[Access]
    ) -> Array | FeatureMap | None:
        source = self.registers.enum("ACC_FORMAT", "acc_input")
        if source == "IFM2":
            return self.input("IFM2", shape, accesses)
        if source == "RESET":
            return None
        if self._kept is None or self._kept.shape != shape:
            raise NpuError(f"accumulators are kept by a kernel before; got none of {shape}")
        return self._kept

    def _end(self, values: Array, start: Array | FeatureMap | None) -> Array | None:
        if isinstance(start, FeatureMap):
            values = values + start.read(self.memory)
        elif start is not None:
            values = values + start
        if self.registers.enum("ACC_FORMAT", "acc_output") == "DISABLE":
            self._kept = values
            return None
        return self._scaled(values)

    def _pool(
        self, command: Command, shape: tuple[int, int, int], accesses: list[Access]
    ) -> Array | None:
        registers = self.registers
        mode = command.mode("pooling_mode")
        height, width, channels = shape
        start = self._start_accumulator(shape, accesses)
        if mode == "NONE":
            accesses += self._scale_accesses()
            self.flight.start_kernel(command, accesses)
            if not isinstance(start, FeatureMap):
                raise NpuError("a pool without window takes its values from IFM2; got none")
            return self._scaled(self.without_zero_point("IFM2", start.read(self.memory)))
        kernel = read_kernel(registers)
        depth = registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        if mode != "REDUCE_SUM" and depth != channels:
            raise NpuError(f"a pool has as many channels out as in; got {channels}, {depth}")
        ifm = self._operand("IFM", (*kernel.input_size(height, width), depth), accesses)
        accesses += self._scale_accesses()
        self.flight.start_kernel(command, accesses)
        x = self._values("IFM", ifm)
        if mode in ("MAX", "MIN"):
            return self._end(pooling.extreme(x, kernel, height, width, mode == "MAX"), start)
        if mode in ("ARGMAX_X", "ARGMAX_Y"):
            return self._end(pooling.argmax(x, kernel, height, width) << 16, start)
        total = pooling.window_sum(x, kernel, height, width)
        if mode == "REDUCE_SUM":
            return self._end(total.sum(2, keepdims=True), start)
        if mode == "AVERAGE":
            total = pooling.mean_of_windows(total, x.shape[0], x.shape[1], kernel)
        return self._end(total, start)

    def _elementwise(
        self, command: Command, shape: tuple[int, int, int], accesses: list[Access]
    ) -> Array:
        registers = self.registers
        mode = command.mode("elementwise_mode")
        names = ("IFM",) if mode in elementwise.UNARY else ("IFM", "IFM2")
        operands = [
            self._operand(
                name, shape, accesses, registers.get(f"{name}_BROADCAST", "broadcast_mode")
            )
            for name in names
        ]
        self.flight.start_kernel(command, accesses)
        values = [self._values(n, o) for n, o in zip(names, operands, strict=True)]
        if mode == "LRELU":
            (x,) = values
            positive = self._scale_operand("IFM", x)
            return self._scaled(np.where(x < 0, self._scale_operand("IFM2", x), positive))
        values = [self._scale_operand(n, v) for n, v in zip(names, values, strict=True)]
        if len(values) == 1:
            return self._scaled(elementwise.unary(mode, values[0]))
        rounding = registers.enum("OFM_SCALE", "round_mode")
        return self._scaled(elementwise.binary(mode, values[0], values[1], rounding))

    def _scale_operand(self, name: str, values: Array) -> Array:
        register = f"{name}_SCALE"
        registers = self.registers
        if registers.get(register, "dbl_rnd"):
            raise NotSimulatedError(f"not simulated: {register} with double rounding")
        multiplier, shift = registers.get(register, "scale"), registers.get(register, "shift")
        return scale(values, multiplier, shift, registers.enum(register, "round_mode"))

    def _resize(
        self, command: Command, shape: tuple[int, int, int], accesses: list[Access]
    ) -> Array:
        registers = self.registers
        mode = command.mode("resize_mode")
        rows, columns = (resize.read_axis(registers, name) for name in "YX")
        # The kernel's size is the input's, or as much of it as is read.
        size = (
            registers.get("KERNEL_HEIGHT_M1", "height_m1") + 1,
            registers.get("KERNEL_WIDTH_M1", "width_m1") + 1,
        )
        ifm = self._operand("IFM", (*size, shape[2]), accesses)
        self.flight.start_kernel(command, accesses)
        x = self._values("IFM", ifm)
        compute = {"BILINEAR": resize.bilinear, "NEAREST": resize.nearest}.get(mode)
        if compute is None:
            raise NotSimulatedError(f"not simulated: resize {mode}")
        # Accumulators have 16 bits of fraction.
        return self._scaled(compute(x, rows, columns, shape[0], shape[1]) << 16)

    # Scales

    def _scale_accesses(self) -> list[Access]:
        if self.registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            return []
        return [s.access for s in streams(self.registers, "SCALE", 1) if s.size]

    def _scaled(self, values: Array) -> Array:
        registers = self.registers
        rounding = registers.enum("OFM_SCALE", "round_mode")
        if registers.get("OFM_SCALE", "dbl_rnd"):
            raise NotSimulatedError("not simulated: OFM_SCALE with double rounding")
        if registers.enum("OFM_PRECISION", "scale_mode") == "GLOBAL":
            multiplier = registers.get("OFM_SCALE", "scale")
            return scale(values, multiplier, registers.get("OFM_SCALE", "shift"), rounding)
        scales = read_scales_u85(self.memory, registers, values.shape[2])
        return scale(values + scales.bias, scales.multiplier, scales.shift, rounding)
