"""How long a program takes on the NPU, in cycles: a model of its own, of the command stream.

Kernels run one after the other, transfers beside them; NPU_OP_DMA_WAIT and NPU_OP_KERNEL_WAIT
hold the one until the other is far enough. A kernel computes block by block: while the MACs work
on a block, the output unit scales and writes the one before, and the inputs of the next are read.
Its memories are read and written all along, and can take longer than the blocks do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.backends.ethosu.simulator.dma import read_transfer
from edgewise.backends.ethosu.simulator.dma_u85 import read_transfer_u85
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.kernel import Kernel, read_kernel
from edgewise.backends.ethosu.simulator.memory import Access
from edgewise.backends.ethosu.simulator.rates import (
    MICROBLOCKS,
    Bus,
    Rates,
    System,
    rates,
    system,
)
from edgewise.backends.ethosu.simulator.registers import Registers
from edgewise.backends.ethosu.simulator.run_u85 import TRANSPOSES
from edgewise.backends.ethosu.simulator.stream import Command, Target, parse

_AREAS = {"U1X1": (1, 1), "U1X2": (1, 2), "U1X4": (1, 4), "U2X2": (2, 2), "U2X4": (2, 4),
          "U4X4": (4, 4)}  # fmt: skip
_PART = 8
"""Rows and columns of a kernel that are computed at a time."""
_FILL = 4
"""Commands that the NPU has under way: the latency of a block is seen by a fourth."""
_UNARY = ("LRELU", "ABS", "CLZ")

NPU, DMA, WAITING = "NPU", "DMA", "waiting"


@dataclass(frozen=True)
class Span:
    """lane: NPU, DMA or WAITING (of the NPU for transfers). begin, end: cycles."""

    lane: str
    name: str
    offset: int
    """Of the command, in bytes."""
    begin: int
    end: int
    macs: int = 0
    bound: str = ""
    """What a kernel's time is: "MAC", "output", or the name of a memory."""


@dataclass(frozen=True)
class Timeline:
    target: str
    clock: float
    """Hz."""
    spans: tuple[Span, ...]

    @property
    def cycles(self) -> int:
        return max((span.end for span in self.spans), default=0)

    def busy(self, lane: str) -> int:
        return sum(span.end - span.begin for span in self.spans if span.lane == lane)


def timeline(commands: bytes, given: System | None = None) -> Timeline:
    """Of a command stream with its driver actions.

    given: clock and memories; None: Vela's default configuration of the target.
    Raises NpuError as `parse` does; NotSimulatedError for branches, whose way depends on numbers.
    """
    target, parsed = parse(commands)
    model = _Model(target, given or system(target))
    for command in parsed:
        model.step(command)
    return Timeline(target.name, model.system.clock, tuple(model.spans))


class _Model:
    def __init__(self, target: Target, given: System) -> None:
        self.target, self.system = target, given
        self.registers = Registers(target)
        self.rates = rates(target)
        self.spans: list[Span] = []
        self._kernels: list[int] = []
        self._transfers: list[int] = []
        """When each ends."""
        self._free = {NPU: 0, DMA: 0}
        self._hold = 0
        """Nothing later begins before."""

    def step(self, command: Command) -> None:
        name = command.name
        if name.startswith("NPU_SET_"):
            self.registers.set(command)
        elif name == "NPU_OP_DMA_WAIT":
            self._wait(self._transfers, command.field("k"))
        elif name == "NPU_OP_KERNEL_WAIT":
            self._wait(self._kernels, command.field("n"))
        elif name == "NPU_OP_DMA_START":
            self._transfer(command)
        elif name == "NPU_OP_BRANCH":
            raise NotSimulatedError("not simulated: the time of programs with branches")
        elif name not in ("NPU_OP_STOP", "NPU_OP_IRQ", "NPU_OP_PMU_MASK"):
            self._kernel(command)

    def _wait(self, ends: list[int], left: int) -> None:
        """Until at most `left` of them are under way."""
        done = ends[: len(ends) - left]
        self._hold = max([self._hold, *done[-1:]])

    def _transfer(self, command: Command) -> None:
        read = read_transfer_u85 if self.target.family == "u85" else read_transfer
        accesses = read(self.registers).accesses()
        cycles = max(self._transferred(a) for a in accesses)
        begin = max(self._free[DMA], self._hold)
        self._free[DMA] = begin + cycles
        self._transfers.append(begin + cycles)
        self.spans.append(Span(DMA, "transfer", command.offset, begin, begin + cycles))

    def _transferred(self, access: Access) -> int:
        bus = self.system.buses.get(access.region)
        if bus is None:
            return 0
        latency = 0 if access.write else bus.read_latency
        return latency + math.ceil((access.end - access.start) / bus.bytes_per_cycle)

    def _kernel(self, command: Command) -> None:
        cost = _Cost(self, command)
        free = self._free[NPU]
        begin = max(free, self._hold)
        if begin > free and self._kernels:
            self.spans.append(Span(WAITING, "waiting", command.offset, free, begin))
        elif begin > free:
            self.spans.append(Span(WAITING, "waiting", command.offset, 0, begin))
        end = begin + cost.cycles
        self._free[NPU] = end
        self._kernels.append(end)
        name = command.name.removeprefix("NPU_OP_")
        self.spans.append(Span(NPU, name, command.offset, begin, end, cost.macs, cost.bound))


def _up(value: int, step: int) -> int:
    return -(-value // step)


class _Map:
    """A feature map: its place, and how much of it a block has."""

    def __init__(self, model: _Model, name: str) -> None:
        registers = model.registers
        self.bits = 8 << registers.get(f"{name}_PRECISION", "activation_precision")
        self.bricks = registers.enum(f"{name}_PRECISION", "activation_format") == "NHCWB16"
        self.outside = True
        if registers.has_field(f"{name}_PRECISION", "activation_storage"):
            storage = registers.enum(f"{name}_PRECISION", "activation_storage")
            self.outside = storage in ("TILE2X2", "TILE3X1")
        self.bus: Bus | None = None
        if self.outside:
            self.bus = model.system.buses.get(registers.get(f"{name}_REGION", "region"))

    def cycles(
        self, shape: Sequence[int], whole_depth: int, write: bool, cores: int, group: int = 0
    ) -> float:
        """Of moving [rows, columns, channels], without latency. group: channels that windows read
        of a pixel at a time; like Vela, the model takes each to be an access of its own."""
        if self.bus is None:
            return 0.0
        rows, columns, depth = shape
        size = self.bits // 8
        if self.bricks:
            run, depth = 16 * columns * size, _up(depth, 16) * 16
        elif group and group != whole_depth:
            run = group * size
        elif depth >= whole_depth and (depth <= 16 or not write):
            run = columns * depth * size
        else:
            run = depth * size if not write else min(64, 16 * size * cores, depth * size)
        burst = self.bus.burst
        return rows * columns * depth * size * burst / min(burst, run) / self.bus.bytes_per_cycle


class _Cost:
    """Of a kernel. Units: cycles."""

    def __init__(self, model: _Model, command: Command) -> None:
        self._registers = model.registers
        self._target = model.target
        self._rates: Rates = model.rates
        self._command = command
        self._cores = model.target.cores if model.target.family == "u65" else 1
        r = self._registers
        self.shape = tuple(r.get(f"OFM_{k}_M1", f"{k.lower()}_m1") + 1 for k in _SIDES)
        block = tuple(r.get(f"OFM_BLK_{k}_M1", f"{k.lower()}_m1") + 1 for k in _SIDES)
        self.block = tuple(min(a, b) for a, b in zip(block, self.shape, strict=True))
        self._ofm, self._ifm = _Map(model, "OFM"), _Map(model, "IFM")
        if model.target.family == "u85" and command.name == "NPU_OP_POOL":
            # Microblocks lie in what is written: turned over, few channels fill one badly.
            order = TRANSPOSES[r.enum("OFM_PRECISION", "activation_transpose")]
            self.shape = tuple(self.shape[axis] for axis in order)
            self.block = tuple(self.block[axis] for axis in order)
        self.macs = 0
        if command.name == "NPU_OP_ELEMENTWISE":
            self._elementwise(model)
        elif command.name == "NPU_OP_RESIZE":
            self._finish(math.prod(self.shape) * self._rates.other, "output", {})
        else:
            self._windows(model)

    def _finish(self, cycles: float, bound: str, memories: dict[str, float]) -> None:
        slowest = max(memories, key=memories.__getitem__, default="")
        if slowest and memories[slowest] > cycles:
            cycles, bound = memories[slowest], slowest
        self.cycles, self.bound = math.ceil(cycles), bound

    def _elementwise(self, model: _Model) -> None:
        speed = self._rates
        enum = self._command.opcode.fields["elementwise_mode"].enum
        assert enum is not None
        mode = enum[self._command.field("elementwise_mode")]
        if self._ifm.bits == 32:
            rate = speed.wide_unary if mode in _UNARY else speed.wide
        elif mode == "MUL":
            rate = speed.wide_product if self._ofm.bits == 32 else speed.product
        else:
            rate = speed.sum if mode in ("ADD", "SUB") else speed.other
        rate = max(rate, self._rates.table)
        if not self._ifm.outside:  # computed on the way out of the kernel before
            self._finish(0, "output", {})
            return
        channels = self.shape[2]
        if self._ofm.bricks:
            channels = _up(channels, 16) * 16
        count = self.shape[0] * self.shape[1] * channels
        elements = math.prod(self.block)
        latency = self._latency(self.block, self.block) + rate * elements
        rate = max(rate, latency / _FILL / elements)
        maps = [self._ifm]
        if mode not in _UNARY and self._second_is_map():
            maps.append(_Map(model, "IFM2"))
        memories: dict[str, float] = {}
        for read in maps:
            self._add(memories, read, read.cycles(self.shape, self.shape[2], False, 1))
        self._add(memories, self._ofm, self._written())
        self._finish(rate * count, "output", memories)

    def _second_is_map(self) -> bool:
        r = self._registers
        if r.has_field("IFM2_BROADCAST", "broadcast_constant"):
            return not r.get("IFM2_BROADCAST", "broadcast_constant")
        return r.enum("IFM2_PRECISION", "activation_storage") in ("TILE2X2", "TILE3X1")

    def _add(self, memories: dict[str, float], moved: _Map, cycles: float) -> None:
        if moved.bus is not None and cycles:
            memories[moved.bus.name] = memories.get(moved.bus.name, 0.0) + cycles

    def _written(self) -> float:
        height, width, depth = self.shape
        _, columns, channels = self.block
        cycles = self._ofm.cycles((1, columns, channels), depth, True, self._cores)
        return cycles * height * width / columns * depth / channels

    def _latency(self, read: Sequence[int], written: Sequence[int]) -> float:
        """Of a block that is read, and one that is written."""
        depth = self._registers.get("IFM_DEPTH_M1", "depth_m1") + 1
        total = 0.0
        if self._ifm.bus is not None:
            total += self._ifm.bus.read_latency + self._ifm.cycles(read, depth, False, 1)
        if self._ofm.bus is not None:
            total += self._ofm.bus.write_latency
            total += self._ofm.cycles(written, self.shape[2], True, self._cores)
        return total

    def _microblock(self, kernel: Kernel) -> tuple[int, int, int]:
        if self._target.family == "u85":
            rows, columns = _AREAS[self._registers.enum("ACC_FORMAT", "microblock")]
            depth = max(4, self._target.macs // 8 // (rows * columns))
        else:
            rows, columns, depth = MICROBLOCKS[self._target.macs]
        flat = self.shape[0] == 1 and self.shape[1] % 2 == 0 and kernel.height == 1
        if rows == 2 and flat and self._command.name != "NPU_OP_POOL":
            rows, columns = 1, 4
        return rows, columns, depth

    def _windows(self, model: _Model) -> None:
        r = self._registers
        kernel = read_kernel(r)
        depthwise = self._command.name != "NPU_OP_CONV"
        pool = self._command.name == "NPU_OP_POOL"
        summed = pool and self._pooling() == "REDUCE_SUM"
        inputs = r.get("IFM_DEPTH_M1", "depth_m1") + 1
        points = kernel.height * kernel.width
        over = inputs if not depthwise or summed else 1
        self.macs = points * math.prod(self.shape) * over
        copies = pool and not summed and points == 1 and self._target.family != "u85"
        if copies:
            self._copy()
            return
        steps = self._steps(kernel, depthwise, pool and not summed, over)
        rate = self._output_rate(pool)
        blocks = self._blocks(kernel)
        elements = math.prod(self.block)
        out = rate * elements
        if not pool:
            const = model.system.buses.get(r.get("SCALE_REGION", "region"))
            out = max(out, 10 * self.block[2] * (const.read_latency if const else 0) / 256)
        read_rows, read_columns = (
            (side - 1) * stride + min(_PART, extent)
            for side, stride, extent in zip(
                self.block[:2], kernel.stride, (kernel.height, kernel.width), strict=True
            )
        )
        read = (read_rows, read_columns, min(self._input_depth(), inputs))
        latency = (self._latency(read, self.block) + out + steps) / _FILL
        mac, output = max(steps, latency), max(out, latency)
        total = max(mac, output) * blocks + min(mac, output)
        memories: dict[str, float] = {}
        parts = _up(kernel.height, _PART) * _up(kernel.width, _PART)
        spatial = _up(self.shape[0], self.block[0]) * _up(self.shape[1], self.block[1])
        again = 1 if depthwise and not summed else _up(self.shape[2], self.block[2])
        group = self._input_depth()
        fetched = self._ifm.cycles((read_rows, read_columns, inputs), inputs, False, 1, group)
        if points == 1 and pool and not summed:
            whole = math.prod(self.shape) // inputs
            self._add(memories, self._ifm, self._ifm.cycles((1, whole, inputs), inputs, False, 1))
        else:
            self._add(memories, self._ifm, fetched * spatial * again * parts)
        self._add(memories, self._ofm, self._written())
        if not pool:
            for kind in ("WEIGHT", "SCALE"):
                bus = model.system.buses.get(r.get(f"{kind}_REGION", "region"))
                size = r.get_or(f"{kind}_LENGTH", "length", 0)
                if bus is not None:
                    taken = memories.get(bus.name, 0.0)
                    memories[bus.name] = taken + size * spatial / bus.bytes_per_cycle
        self._finish(total, "MAC" if mac > output else "output", memories)

    def _copy(self) -> None:
        """Pools of one point copy. A transpose is many: each begins while those before end."""
        self.macs = 0
        memories: dict[str, float] = {}
        read = self._ifm.cycles(self.shape, self.shape[2], False, 1)
        self._add(memories, self._ifm, read)
        self._add(memories, self._ofm, self._written())
        self._finish(math.prod(self.shape) * self._rates.maximum, "output", memories)

    def _blocks(self, kernel: Kernel) -> float:
        """How many there are; of Ethos-U85 those at the edge are parts, of whole microblocks."""
        sides = list(zip(self.shape, self.block, self._microblock(kernel), strict=True))
        if self._target.family != "u85":
            return math.prod(_up(size, block) for size, block, _ in sides)
        return math.prod(_up(size, micro) / _up(block, micro) for size, block, micro in sides)

    def _pooling(self) -> str:
        enum = self._command.opcode.fields["pooling_mode"].enum
        assert enum is not None
        return enum[self._command.field("pooling_mode")]

    def _output_rate(self, pool: bool) -> float:
        wide = self._registers.enum("ACC_FORMAT", "acc_format") != "I32"
        rate = self._rates.other
        if wide:
            rate = self._rates.product
        elif pool and self._pooling() == "MAX":
            rate = self._rates.maximum
        return max(rate, self._rates.table)

    def _input_depth(self) -> int:
        """Channels of a block that is read."""
        part = self._registers.enum("KERNEL_STRIDE", "weight_order") == "PART_KERNEL_FIRST"
        if self._target.family != "u85":
            return 16 if part or self._ifm.bits == 16 else 8 * 32 // self._ifm.bits
        if part:
            return 16
        return 32 if self._target.macs <= 256 and self._micro_depth() == 16 else 64

    def _micro_depth(self) -> int:
        rows, columns = _AREAS[self._registers.enum("ACC_FORMAT", "microblock")]
        return max(4, self._target.macs // 8 // (rows * columns))

    def _steps(self, kernel: Kernel, depthwise: bool, pool: bool, inputs: int) -> float:
        """Cycles of the MACs for a block."""
        rows, columns, depth = self._microblock(kernel)
        area = _up(self.block[0], rows) * _up(self.block[1], columns)
        deep = _up(self.block[2], depth)
        part = self._registers.enum("KERNEL_STRIDE", "weight_order") == "PART_KERNEL_FIRST"
        wide = self._ifm.bits > 8
        u85 = self._target.family == "u85"
        slots = 4 * depth  # cycles in which a microblock's weights arrive
        group = min(self._input_depth(), inputs)
        sparse = u85 and not pool and self._registers.has_field("WEIGHT_FORMAT", "weight_sparsity")
        total = 0.0
        for y in range(0, kernel.height, _PART):
            for x in range(0, kernel.width, _PART):
                points = min(_PART, kernel.height - y) * min(_PART, kernel.width - x)
                if pool:
                    count, cycles = 1, 4 * max(4, points) * area * deep
                    cycles *= 2 if wide else 1
                elif depthwise and inputs == 1:
                    count = _up(points, 4)
                    cycles = max(slots, 4 * area * (2 if wide else 1)) * count * deep
                elif part:
                    count = _up(points, 2 if wide else 4)
                    cycles = max(slots, 4 * area) * count * deep * _up(group, 8)
                else:
                    count = points
                    each = group / 8 * area if u85 else 4 * area
                    cycles = max(slots, math.ceil(each)) * count * deep
                    cycles *= 2 if wide and u85 else 1
                delay = 0
                if area == 1:
                    delay = 2 * (count if deep == 1 else (count - 1) * deep)
                    delay *= _up(group, 8) if part and not depthwise else 1
                total += cycles + delay
        if inputs > 1:
            total *= _up(inputs, group)
        if sparse and self._registers.enum("WEIGHT_FORMAT", "weight_sparsity") == "SPARSE_2_4":
            total /= 2
        return total / self._cores


_SIDES = ("HEIGHT", "WIDTH", "DEPTH")
