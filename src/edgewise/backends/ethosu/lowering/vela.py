"""Vela, Arm's compiler for Ethos-U, called in memory: a TOSA graph becomes an NPU program."""

from __future__ import annotations

import configparser
import importlib
import importlib.metadata
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgewise.backends.ethosu.lowering import vela_process
from edgewise.backends.ethosu.lowering.extra import vela_folder
from edgewise.backends.ethosu.lowering.vela_options import (
    VelaError,
    compiler_options,
    parse_flags,
    prints,
    wants,
)
from edgewise.backends.ethosu.payload import NpuProgram, NpuTensor
from edgewise.backends.ethosu.targets import PROCESSORS as TARGETS
from edgewise.inspect.layers import LayersByCommand

VERSION = "5.1.0"
DEFAULT_INI = "Arm/vela.ini"


class VelaRefusal(VelaError):
    """A graph that the target cannot run. `words`: Vela's own, in one line."""

    def __init__(self, target: str, words: str) -> None:
        self.words = "; ".join(
            line.strip(" -:") for line in words.splitlines() if line.strip(" -:")
        )
        super().__init__(f"[vela] {target} cannot run the graph; got: {self.words}")


@dataclass(frozen=True)
class MemoryFigures:
    peak_bytes: int
    access_cycles: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class LayerFigures:
    name: str
    """Of the TOSA tensor that the layer writes."""
    operator: str
    cycles: int
    npu_cycles: int
    macs: int
    staging_bytes: int
    access_cycles: dict[str, int]
    """By memory."""
    commands: tuple[int, ...] = ()
    """Offsets in the command stream of the kernels that it ends with, one for each stripe."""


@dataclass(frozen=True)
class ArenaBlock:
    """Where a tensor lies in the memory that a program computes in."""

    name: str
    """Of the TOSA tensor, or Vela's for buffers of weights."""
    memory: str
    address: int
    bytes: int
    first: int
    """Numbers of the layers between which it is held, both included."""
    last: int


@dataclass(frozen=True)
class VelaFigures:
    """The compiler's estimates: nothing here was measured."""

    npu_cycles: int
    total_cycles: int
    macs: int
    inferences_per_second: float
    memories: dict[str, MemoryFigures]
    """By kind: Sram, Dram, OnChipFlash, OffChipFlash. Constants that share Sram count there."""
    original_weight_bytes: int
    encoded_weight_bytes: int
    npu_operators: int
    cpu_operators: int
    layers: tuple[LayerFigures, ...]
    arena: tuple[ArenaBlock, ...] = ()

    def layers_by_command(self) -> LayersByCommand[int]:
        """Numbers of layers."""
        return LayersByCommand(
            (offset, number) for number, one in enumerate(self.layers) for offset in one.commands
        )


@dataclass(frozen=True)
class VelaProgram:
    program: NpuProgram
    fast_scratch_size: int
    """Bytes of region 2, which only memory modes with dedicated SRAM use."""
    figures: VelaFigures


def compile_tosa(
    tosa: bytes,
    target: str,
    system_config: str | None = None,
    memory_mode: str | None = None,
    flags: Sequence[str] = (),
    ini: str = DEFAULT_INI,
) -> VelaProgram:
    """Compiles a TOSA flatbuffer.

    Args:
        target: one of TARGETS.
        system_config, memory_mode: sections of `ini`; None: the target's default.
        flags: of Vela's command line, such as "--optimise=Size".
        ini: a path, or FOLDER/NAME.ini of those that come with Vela.

    Raises:
        VelaError: see there.
    """
    if target not in TARGETS:
        raise VelaError(f"[vela] target must be one of {', '.join(TARGETS)}; got {target!r}")
    family, macs, cores = TARGETS[target]
    options = parse_flags(flags)
    _import_regor()
    ini_text = read_ini(ini)
    system_config = system_config or family.system_config
    memory_mode = memory_mode or family.memory_mode
    config = _parsed(ini_text, ini)
    clock = float(config.get("System_Config", system_config, "core_clock", "1"))
    _check_memories(config, system_config, memory_mode)
    limit = int(config.get("Memory_Mode", memory_mode, "arena_cache_size", "0"))
    if options.arena_cache_size is not None:
        limit = options.arena_cache_size
    if limit > 1 << family.address_bits:
        raise VelaError(
            f"[vela] arena_cache_size must be at most 2**{family.address_bits}; got {limit}"
        )
    system = (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={system_config}\nmemory_mode_name={memory_mode}\n{ini_text}"
    )
    try:
        made: VelaProgram = vela_process.call(
            {
                "family": family.name,
                "tosa": tosa,
                "system": system,
                "options": compiler_options(options, limit or 1 << family.address_bits),
                "verbose": prints(options),
                "clock": clock,
            }
        )
    except RuntimeError as error:
        raise VelaRefusal(target, str(error)) from error
    for line in _lines(made.figures, system_config, memory_mode, options):
        print(line)
    return made


def run(
    family: str, tosa: bytes, system: str, options: str, verbose: bool, clock: float
) -> VelaProgram:
    """What Vela makes of a graph, in this process. RuntimeError with its words if it refuses.

    clock: of the NPU, in Hz, for the estimates.
    """
    model = _import_regor().compile(family, tosa, "TOSA", system, options=options, verbose=verbose)
    program = NpuProgram(
        commands=bytes(model.command_stream),
        weights=bytes(model.read_only.data),
        scratch_size=model.scratch.size,
        inputs=tuple(_tensor(t) for t in model.inputs),
        outputs=tuple(_tensor(t) for t in model.outputs),
    )
    return VelaProgram(program, model.scratch_fast.size, _figures(model, clock))


def _lines(figures: VelaFigures, system: str, mode: str, options: Namespace) -> list[str]:
    """What the flags ask for, in words of ours."""
    lines = []
    if wants(options, "config"):
        lines.append(f"Vela {VERSION}: system configuration {system}, memory mode {mode}")
    if wants(options, "weights"):
        lines.append(
            f"weights: {figures.original_weight_bytes} bytes, "
            f"{figures.encoded_weight_bytes} encoded"
        )
    if wants(options, "cycle-estimate"):
        lines.append(f"cycles: {figures.total_cycles}, {figures.npu_cycles} of the NPU")
        lines += [
            f"  {name}: {memory.access_cycles} of access"
            for name, memory in figures.memories.items()
        ]
    if wants(options, "performance"):
        lines += [
            f"{layer.operator} {layer.name}: {layer.cycles} cycles, {layer.macs} MACs, "
            f"{layer.staging_bytes} bytes"
            for layer in figures.layers
        ]
    return lines


_MEMORIES = {
    "const_mem_area": ("Dram", "OnChipFlash", "OffChipFlash"),
    "arena_mem_area": ("Sram", "Dram"),
    "cache_mem_area": ("Sram",),
}
"""In which memories each of a memory mode's areas may lie."""


def _check_memories(config: _Ini, system_config: str, memory_mode: str) -> None:
    """Raises VelaError where an area lies in a memory that cannot hold it."""
    ports = {
        port: config.get("System_Config", system_config, f"{port.lower()}_port", "Sram")
        for port in ("Axi0", "Axi1")
    }
    areas = {area: config.get("Memory_Mode", memory_mode, area, "Axi0") for area in _MEMORIES}
    for area, allowed in _MEMORIES.items():
        found = ports.get(areas[area], areas[area])
        if area == "const_mem_area" and found == "Sram" and len(set(areas.values())) == 1:
            continue  # all in one: read-only data counts as flash of the same speed
        if found not in allowed:
            raise VelaError(
                f"[vela] {area} of memory mode {memory_mode} must lie in "
                f"{' or '.join(allowed)}; got {found}, by {system_config}; "
                f"try another memory_mode or system_config"
            )


def read_ini(ini: str) -> str:
    """The text of a configuration file. Raises VelaError if there is none."""
    path = Path(ini).expanduser()
    if not path.is_absolute() and len(path.parts) == 2 and not ini.startswith("."):
        folder = vela_folder()
        if folder is None:
            _import_regor()
        else:
            path = folder.parent / "config_files" / ini
    try:
        return path.read_text()
    except OSError as error:
        raise VelaError(
            f"[vela] config_ini must be a readable .ini file; got {ini!r} ({error.strerror}); "
            f"try {DEFAULT_INI!r}"
        ) from error


def _import_regor() -> Any:
    try:
        regor = importlib.import_module("ethosu.regor")
    except ImportError as error:
        raise VelaError(
            f"[vela] compiling for Ethos-U needs ethos-u-vela; got {error}; "
            "try pip install edgewise[ethosu]"
        ) from error
    found = importlib.metadata.version("ethos-u-vela")
    if found != VERSION:
        raise VelaError(
            f"[vela] ethos-u-vela must be {VERSION}, whose internal interface this uses; "
            f"got {found}; try pip install edgewise[ethosu]"
        )
    return regor


class _Ini:
    """Sections inherit: a key that a section lacks is its parent's."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._parser = configparser.ConfigParser()
        try:
            self._parser.read_string(text)
        except configparser.Error as error:
            raise VelaError(f"[vela] {path} must be an ini file; got {error}") from error

    def get(self, kind: str, name: str, key: str, default: str) -> str:
        section, seen = f"{kind}.{name}", set[str]()
        while section not in seen:
            seen.add(section)
            if not self._parser.has_section(section):
                names = [s[len(kind) + 1 :] for s in self._parser.sections() if s.startswith(kind)]
                raise VelaError(
                    f"[vela] {kind.lower()} must be one that {self._path} defines "
                    f"({', '.join(names)}); got {name!r}"
                )
            if self._parser.has_option(section, key):
                return self._parser.get(section, key)
            section = self._parser.get(section, "inherit", fallback=section)
        return default


@lru_cache(maxsize=16)
def _parsed(text: str, path: str) -> _Ini:
    return _Ini(text, path)


def _tensor(tensor: Any) -> NpuTensor:
    return NpuTensor(
        tuple(int(size) for size in tensor.shape),
        int(tensor.element_size),
        int(tensor.address),
        int(tensor.region),
    )


def _figures(model: Any, clock: float) -> VelaFigures:
    report = model.perf_report
    memories = {
        str(name): MemoryFigures(
            peak_bytes=int(memory.peakUsage),
            access_cycles=int(memory.totalAccessCycles),
            read_bytes=sum(int(a.bytesRead) for a in memory.accesses.values()),
            written_bytes=sum(int(a.bytesWritten) for a in memory.accesses.values()),
        )
        for name, memory in report.memories.items()
        if str(name).lower() not in ("shram", "lutram")  # inside the NPU
    }
    cycles = int(report.totalCycles)
    return VelaFigures(
        npu_cycles=int(report.npuCycles),
        total_cycles=cycles,
        macs=int(report.macCount),
        inferences_per_second=clock / cycles if cycles else 0.0,
        memories=memories,
        original_weight_bytes=int(report.originalWeights),
        encoded_weight_bytes=int(report.encodedWeights),
        npu_operators=int(report.npuOps),
        cpu_operators=int(report.cpuOps),
        layers=tuple(_layers(model.opt_database.tables, list(memories))),
        arena=tuple(_arena(model.opt_database.tables)),
    )


def _rows(tables: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """A table of Vela's debug database; empty if this one has none of that name."""
    table = tables.get(name)
    if table is None:
        return []
    return [dict(zip(table.header, row, strict=True)) for row in table.data]


def _layers(tables: Mapping[str, Any], memories: list[str]) -> list[LayerFigures]:
    commands: dict[str, list[int]] = {}
    for row in _rows(tables, "queue"):
        commands.setdefault(row["scheduled_id"], []).append(int(row["offset"]))
    return [
        LayerFigures(
            name=row["name"],
            operator=row["operator"],
            cycles=int(row["op_cycles"]),
            npu_cycles=int(row["npu_cycles"]),
            macs=int(row["mac_count"]),
            staging_bytes=int(row["staging_usage"]),
            access_cycles={m: int(row[f"{m}_ac"]) for m in memories if f"{m}_ac" in row},
            commands=tuple(commands.get(row["id"], ())),
        )
        for row in _rows(tables, "perf")
    ]


def _arena(tables: Mapping[str, Any]) -> list[ArenaBlock]:
    """Vela counts two for each step: a step runs at an even time, and what it leaves is held from
    there to the odd time of its last reader. Layers that are one step share a time. What is
    computed in place is one block, told once."""
    steps: dict[int, list[int]] = {}
    times = {row["id"]: int(row["time_index"]) // 2 for row in _rows(tables, "perf_debug")}
    for number, row in enumerate(_rows(tables, "perf")):
        if row["id"] in times:
            steps.setdefault(times[row["id"]], []).append(number)
    found: dict[tuple[Any, ...], ArenaBlock] = {}
    for row in _rows(tables, "tensors"):
        held = [
            number
            for step in range(int(row["start_time"]) // 2, int(row["end_time"]) // 2 + 1)
            for number in steps.get(step, ())
        ]
        if held and int(row["size"], 0) and row["usage"].startswith("Op"):
            address, size = int(row["start_address"], 0), int(row["size"], 0)
            key = (row["memory"], address, size, min(held), max(held))
            found.setdefault(key, ArenaBlock(row["name"], *key))
    return list(found.values())


def check(system_config: str, memory_mode: str, flags: Sequence[str], ini: str) -> None:
    """Raises VelaError for what `compile_tosa` would not know."""
    parse_flags(flags)
    config = _parsed(read_ini(ini), ini)
    config.get("System_Config", system_config, "core_clock", "1")
    config.get("Memory_Mode", memory_mode, "arena_cache_size", "0")
    _check_memories(config, system_config, memory_mode)
