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

from edgewise.backends.ethosu.simulator.dma_u85 import transfer_of
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError
from edgewise.backends.ethosu.simulator.feature_map import IN_MEMORY, TRANSPOSES
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
from edgewise.backends.ethosu.simulator.stream import Command, Target, parse

_AREAS = {"U1X1": (1, 1), "U1X2": (1, 2), "U1X4": (1, 4), "U2X2": (2, 2), "U2X4": (2, 4),
          "U4X4": (4, 4)}  # fmt: skip
_PART = 8
"""Rows and columns of a kernel that are computed at a time."""
_FILL = 4
"""Commands that the NPU has under way: the latency of a block is seen by a fourth."""
_UNARY = ("LRELU", "ABS", "CLZ")
_TURNED = ("WHC", "WCH", "CWH")
"""Transposes in which columns come before rows."""

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
    model.finish()
    return Timeline(target.name, model.system.clock, tuple(model.spans))


class _Model:
    def __init__(self, target: Target, given: System) -> None:
        self.target, self.system = target, given
        self.registers = Registers(target)
        self.rates = rates(target)
        self.spans: list[Span] = []
        self._chain: list[_Cost] = []
        """A kernel, and those that are computed on the way out of it."""
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
            cost = _Cost(self, command)
            if not cost.is_chained:
                self.finish()
            self._chain.append(cost)

    def _wait(self, ends: list[int], left: int) -> None:
        """Until at most `left` of them are under way."""
        self.finish()
        done = ends[: len(ends) - left]
        self._hold = max([self._hold, *done[-1:]])

    def _transfer(self, command: Command) -> None:
        self.finish()
        accesses = transfer_of(self.target, self.registers).accesses()
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

    def finish(self) -> None:
        """The kernels that are under way: the first takes the time of all that follow it."""
        chain, self._chain = self._chain, []
        for number, cost in enumerate(chain):
            command = cost.command
            free = self._free[NPU]
            begin = max(free, self._hold)
            if begin > free:
                start = free if self._kernels else 0
                self.spans.append(Span(WAITING, "waiting", command.offset, start, begin))
            cycles, bound = (0, "output") if number else cost.time(chain[1:])
            self._free[NPU] = begin + cycles
            self._kernels.append(begin + cycles)
            name = command.name.removeprefix("NPU_OP_")
            span = Span(NPU, name, command.offset, begin, begin + cycles, cost.macs, bound)
            self.spans.append(span)


def _up(value: int, step: int) -> int:
    return -(-value // step)


class _Map:
    """A feature map: where it lies, and how much of it a block has."""

    def __init__(self, model: _Model, name: str) -> None:
        registers = model.registers
        self.bits = 8 << registers.get(f"{name}_PRECISION", "activation_precision")
        self.bricks = registers.enum(f"{name}_PRECISION", "activation_format") == "NHCWB16"
        self.outside = True
        if registers.has_field(f"{name}_PRECISION", "activation_storage"):
            storage = registers.enum(f"{name}_PRECISION", "activation_storage")
            self.outside = storage in IN_MEMORY
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
    """Of a kernel. Units: cycles.

    is_chained: it reads what the kernel before computes, which memory never sees.
    rate: of the output unit, for an element. memories: how long each is busy.
    """

    def __init__(self, model: _Model, command: Command) -> None:
        self._registers = model.registers
        self._target = model.target
        self._rates = model.rates
        self.command = command
        self._cores = model.target.cores if model.target.family == "u65" else 1
        r = self._registers
        self.shape = tuple(r.get(f"OFM_{k}_M1", f"{k.lower()}_m1") + 1 for k in _SIDES)
        block = tuple(r.get(f"OFM_BLK_{k}_M1", f"{k.lower()}_m1") + 1 for k in _SIDES)
        self.block = tuple(min(a, b) for a, b in zip(block, self.shape, strict=True))
        self._ofm, self._ifm = _Map(model, "OFM"), _Map(model, "IFM")
        self._inputs = r.get("IFM_DEPTH_M1", "depth_m1") + 1
        if model.target.family == "u85" and command.name == "NPU_OP_POOL":
            # Microblocks lie in what is written: turned over, few channels fill one badly.
            order = TRANSPOSES[r.enum("OFM_PRECISION", "activation_transpose")]
            self.shape = tuple(self.shape[axis] for axis in order)
            self.block = tuple(self.block[axis] for axis in order)
        self.macs = 0
        self.is_chained = not self._ifm.outside and command.name == "NPU_OP_ELEMENTWISE"
        self._steps_of_block = 0.0
        self._copies = False
        self.memories: dict[str, float] = {}
        if command.name == "NPU_OP_ELEMENTWISE":
            self._elementwise(model)
        elif command.name == "NPU_OP_RESIZE":
            self.rate = self._output_rate("")
        else:
            self._windows(model)

    def time(self, chained: Sequence[_Cost]) -> tuple[int, str]:
        """With what is computed on its way out, and what bounds it."""
        rate = self.rate + sum(cost.rate for cost in chained)
        memories = dict(self.memories)
        for cost in chained:
            for name, cycles in cost.memories.items():
                memories[name] = memories.get(name, 0.0) + cycles
        ends = chained[-1] if chained else self
        if self.command.name == "NPU_OP_ELEMENTWISE":
            cycles, bound = self._time_of_elementwise(rate, ends), "output"
        elif self._copies or self.command.name == "NPU_OP_RESIZE":
            cycles, bound = math.prod(self.shape) * rate, "output"
        else:
            cycles, bound = self._time_of_windows(rate, ends)
        slowest = max(memories, key=memories.__getitem__, default="")
        if slowest and memories[slowest] > cycles:
            cycles, bound = memories[slowest], slowest
        return math.ceil(cycles), bound

    def _elementwise(self, model: _Model) -> None:
        enum = self.command.opcode.fields["elementwise_mode"].enum
        assert enum is not None
        mode = enum[self.command.field("elementwise_mode")]
        self.rate = self._output_rate(mode)
        maps = [self._ifm]
        if mode not in _UNARY and self._second_is_map():
            maps.append(_Map(model, "IFM2"))
        for read in maps:
            self._add(read, read.cycles(self.shape, self.shape[2], False, 1))
        self._add(self._ofm, self._written())

    def _time_of_elementwise(self, rate: float, ends: _Cost) -> float:
        channels = self.shape[2]
        if ends._ofm.bricks:
            channels = _up(channels, 16) * 16
        elements = math.prod(self.block)
        latency = self._latency(self.block, self.block, ends) + rate * elements
        rate = max(rate, latency / _FILL / elements)
        return rate * self.shape[0] * self.shape[1] * channels

    def _output_rate(self, mode: str) -> float:
        """mode: of an elementwise operator, or of a pool."""
        speed = self._rates
        if isinstance(speed, Rates):
            return max(self._output_rate_u55(speed, mode), speed.table)
        bits = (self._ifm.bits, self._ofm.bits)
        is_pair = self.command.name == "NPU_OP_ELEMENTWISE" and mode not in _UNARY
        if not self._ofm.outside and 32 in bits:
            rate = speed.wide
        elif self._ofm.bits < 64 and is_pair and self._ifm.bits == 32:
            rate = speed.wide_pair if self._ofm.bits == 32 else speed.wide
        else:
            rate = speed.written[self._ofm.bits]
        enum = self._registers.enum
        turned = enum("OFM_PRECISION", "activation_transpose") in _TURNED
        turned = turned or enum("OFM_PRECISION", "activation_reverse") == "W"
        return max(rate, speed.turned if turned else speed.activation)

    def _output_rate_u55(self, speed: Rates, mode: str) -> float:
        if self.command.name != "NPU_OP_ELEMENTWISE":
            if self._registers.enum("ACC_FORMAT", "acc_format") != "I32":
                return speed.product
            return speed.maximum if mode == "MAX" else speed.other
        if self._ifm.bits == 32:
            return speed.wide_unary if mode in _UNARY else speed.wide
        if mode == "MUL":
            return speed.wide_product if self._ofm.bits == 32 else speed.product
        return speed.sum if mode in ("ADD", "SUB") else speed.other

    def _second_is_map(self) -> bool:
        r = self._registers
        if r.has_field("IFM2_BROADCAST", "broadcast_constant"):
            return not r.get("IFM2_BROADCAST", "broadcast_constant")
        return r.enum("IFM2_PRECISION", "activation_storage") in IN_MEMORY

    def _add(self, moved: _Map, cycles: float) -> None:
        if moved.bus is not None and cycles:
            self.memories[moved.bus.name] = self.memories.get(moved.bus.name, 0.0) + cycles

    def _written(self) -> float:
        height, width, depth = self.shape
        _, columns, channels = self.block
        cycles = self._ofm.cycles((1, columns, channels), depth, True, self._cores)
        return cycles * height * width / columns * depth / channels

    def _latency(self, read: Sequence[int], written: Sequence[int], ends: _Cost) -> float:
        """Of a block that is read, and one that is written. ends: the last of the chain."""
        total = 0.0
        if self._ifm.bus is not None:
            total += self._ifm.bus.read_latency + self._ifm.cycles(read, self._inputs, False, 1)
        if ends._ofm.bus is not None:
            total += ends._ofm.bus.write_latency
            total += ends._ofm.cycles(written, self.shape[2], True, self._cores)
        return total

    def _microblock(self, kernel: Kernel) -> tuple[int, int, int]:
        if self._target.family == "u85":
            rows, columns = _AREAS[self._registers.enum("ACC_FORMAT", "microblock")]
            depth = max(4, self._target.macs // 8 // (rows * columns))
        else:
            rows, columns, depth = MICROBLOCKS[self._target.macs]
        flat = self.shape[0] == 1 and self.shape[1] % 2 == 0 and kernel.height == 1
        if rows == 2 and flat and self.command.name != "NPU_OP_POOL":
            rows, columns = 1, 4
        return rows, columns, depth

    def _windows(self, model: _Model) -> None:
        r = self._registers
        kernel = read_kernel(r)
        depthwise = self.command.name != "NPU_OP_CONV"
        pool = self.command.name == "NPU_OP_POOL"
        summed = pool and self._pooling() == "REDUCE_SUM"
        inputs = self._inputs
        points = kernel.height * kernel.width
        over = inputs if not depthwise or summed else 1
        self.macs = points * math.prod(self.shape) * over
        mode = self._pooling() if pool else ""
        self.rate = self._output_rate(mode)
        self._add(self._ofm, self._written())
        self._copies = pool and not summed and points == 1 and self._target.family != "u85"
        if self._copies:  # A transpose is many: each begins while those before end.
            self.macs = 0
            assert isinstance(self._rates, Rates)
            self.rate = self._rates.maximum
            self._add(self._ifm, self._ifm.cycles(self.shape, self.shape[2], False, 1))
            return
        self._steps_of_block = self._steps(kernel, depthwise, pool and not summed, over)
        self._blocks_of_output = self._blocks(kernel)
        self._scale_cycles = 0.0
        if not pool:
            const = model.system.buses.get(r.get("SCALE_REGION", "region"))
            self._scale_cycles = 10 * self.block[2] * (const.read_latency if const else 0) / 256
        read_rows, read_columns = (
            (side - 1) * stride + min(_PART, extent)
            for side, stride, extent in zip(
                self.block[:2], kernel.stride, (kernel.height, kernel.width), strict=True
            )
        )
        self._read = (read_rows, read_columns, min(self._input_depth(), inputs))
        parts = _up(kernel.height, _PART) * _up(kernel.width, _PART)
        spatial = _up(self.shape[0], self.block[0]) * _up(self.shape[1], self.block[1])
        again = 1 if depthwise and not summed else _up(self.shape[2], self.block[2])
        group = self._input_depth()
        if points == 1 and pool and not summed:
            whole = math.prod(self.shape) // inputs
            self._add(self._ifm, self._ifm.cycles((1, whole, inputs), inputs, False, 1))
        else:
            fetched = self._ifm.cycles((read_rows, read_columns, inputs), inputs, False, 1, group)
            self._add(self._ifm, fetched * spatial * again * parts)
        if not pool:
            for kind in ("WEIGHT", "SCALE"):
                bus = model.system.buses.get(r.get(f"{kind}_REGION", "region"))
                size = r.get_or(f"{kind}_LENGTH", "length", 0)
                if bus is not None:
                    taken = self.memories.get(bus.name, 0.0)
                    self.memories[bus.name] = taken + size * spatial / bus.bytes_per_cycle

    def _time_of_windows(self, rate: float, ends: _Cost) -> tuple[float, str]:
        steps = self._steps_of_block
        out = max(rate * math.prod(self.block), self._scale_cycles)
        latency = (self._latency(self._read, self.block, ends) + out + steps) / _FILL
        mac, output = max(steps, latency), max(out, latency)
        total = max(mac, output) * self._blocks_of_output + min(mac, output)
        return total, "MAC" if mac > output else "output"

    def _blocks(self, kernel: Kernel) -> float:
        """How many there are; of Ethos-U85 those at the edge are parts, of whole microblocks."""
        sides = list(zip(self.shape, self.block, self._microblock(kernel), strict=True))
        if self._target.family != "u85":
            return math.prod(_up(size, block) for size, block, _ in sides)
        return math.prod(_up(size, micro) / _up(block, micro) for size, block, micro in sides)

    def _pooling(self) -> str:
        enum = self.command.opcode.fields["pooling_mode"].enum
        assert enum is not None
        return enum[self.command.field("pooling_mode")]

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
        passes = self._ifm.bits // 8 if self._target.family == "u85" else 2 if wide else 1
        u85 = self._target.family == "u85"
        slots = 4 * depth  # cycles in which a microblock's weights arrive
        group = min(self._input_depth(), inputs)
        weighted = self.command.name != "NPU_OP_POOL"
        sparse = u85 and weighted and self._registers.has_field("WEIGHT_FORMAT", "weight_sparsity")
        total = 0.0
        for y in range(0, kernel.height, _PART):
            for x in range(0, kernel.width, _PART):
                points = min(_PART, kernel.height - y) * min(_PART, kernel.width - x)
                if pool:
                    count, cycles = 1, 4 * max(4, points) * area * deep
                    cycles *= passes
                elif depthwise and inputs == 1:
                    count = _up(points, 4)
                    cycles = max(slots, 4 * area * passes) * count * deep
                elif part:
                    count = _up(points, 2 if wide else 4)
                    cycles = max(slots, 4 * area) * count * deep * _up(group, 8)
                else:
                    count = points
                    each = group / 8 * area if u85 else 4 * area
                    cycles = max(slots, math.ceil(each)) * count * deep
                    cycles *= passes if u85 else 1
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
