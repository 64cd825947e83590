"""How fast the NPUs and their memories are: figures that Arm publishes with Vela, as data.

Rates are cycles for an element of the output, memories those of Vela's default system
configuration and memory mode of each family.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.backends.ethosu.simulator.stream import Target


@dataclass(frozen=True)
class Bus:
    """A memory as the NPU sees it."""

    name: str
    bytes_per_cycle: float
    read_latency: int
    write_latency: int
    burst: int
    """Bytes; shorter accesses take as long."""


@dataclass(frozen=True)
class System:
    """clock: in Hz. buses: by region; regions without one are inside the NPU."""

    clock: float
    buses: dict[int, Bus]


@dataclass(frozen=True)
class Rates:
    """Of Ethos-U55 and U65: cycles for an element."""

    wide: float
    """Operands of 32 bits: of two operands, of one, and products into 32 bits."""
    wide_unary: float
    wide_product: float
    product: float
    """And what is accumulated in 40 bits."""
    sum: float
    maximum: float
    other: float
    table: float
    """Of the unit for activations, through which all outputs go. Like Vela, the model takes it to
    be as slow as it is with a table."""


@dataclass(frozen=True)
class RatesU85:
    """Cycles for an element, by what is read and written."""

    written: dict[int, float]
    """By the bits of the output."""
    wide: float
    """Of 32 bits from or to the kernel beside it in a chain; two operands of 32 bits, narrowed."""
    wide_pair: float
    """Two operands of 32 bits, and an output of as many."""
    activation: float
    """Of the unit for tables, transposes and reversed columns, through which all outputs go."""
    turned: float
    """Of the same if rows and columns are exchanged, or columns are reversed."""


_U55 = {
    32: Rates(2.0, 3.0, 3.0, 3.0, 6.0, 1.0, 2.0, 1.0),
    64: Rates(1.0, 1.5, 1.5, 1.5, 3.0, 0.5, 1.0, 1.0),
    128: Rates(0.75, 1.25, 0.75, 0.75, 1.5, 0.25, 0.5, 1.0),
    256: Rates(0.625, 1.125, 0.5, 0.375, 0.75, 0.125, 0.25, 1.0),
    512: Rates(0.3125, 0.5625, 0.25, 0.1875, 0.375, 0.0625, 0.125, 0.5),
}
_U85 = {
    128: RatesU85({8: 0.5, 16: 0.5, 32: 0.5, 64: 1.0}, 1.0, 1.0, 0.5, 1.0),
    256: RatesU85({8: 0.25, 16: 0.25, 32: 0.25, 64: 0.5}, 0.5, 0.5, 0.25, 0.5),
    512: RatesU85({8: 0.125, 16: 0.125, 32: 0.25, 64: 0.5}, 0.25, 0.25, 0.125, 0.25),
    1024: RatesU85({8: 0.0625, 16: 0.125, 32: 0.25, 64: 0.5}, 0.125, 0.25, 0.0625, 0.125),
    2048: RatesU85({8: 0.03125, 16: 0.0625, 32: 0.125, 64: 0.25}, 0.0625, 0.125, 0.03125, 0.0625),
}

MICROBLOCKS = {32: (1, 1, 4), 64: (1, 1, 8), 128: (1, 2, 8), 256: (2, 2, 8), 512: (2, 2, 8)}
"""Of Ethos-U55 and U65: rows, columns and channels that the MACs compute at a time."""


def rates(target: Target) -> Rates | RatesU85:
    return _U85[target.macs] if target.family == "u85" else _U55[target.macs]


def system(target: Target) -> System:
    """Vela's default of the family."""
    if target.family == "u55":  # Ethos_U55_High_End_Embedded, Shared_Sram
        sram = Bus("SRAM", 8, 32, 32, 32)
        return System(500e6, {0: Bus("flash", 1, 64, 0, 128), **dict.fromkeys((1, 2, 3, 4), sram)})
    if target.family == "u65":  # Ethos_U65_High_End, Dedicated_Sram_384KB
        dram = Bus("DRAM", 3.75, 500, 250, 128)
        return System(1e9, {**dict.fromkeys((0, 1, 3, 4), dram), 2: Bus("SRAM", 16, 32, 32, 32)})
    # Ethos_U85_SYS_DRAM_Mid, Sram_Only
    return System(1e9, dict.fromkeys(range(5), Bus("SRAM", 32, 32, 32, 64)))
