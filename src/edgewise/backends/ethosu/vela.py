"""Vela, Arm's compiler for Ethos-U, called in memory: a TOSA graph becomes an NPU program."""

from __future__ import annotations

import argparse
import configparser
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from edgewise.backends.ethosu.payload import NpuProgram, NpuTensor
from edgewise.errors import EdgewiseError

VERSION = "5.1.0"
DEFAULT_INI = "Arm/vela.ini"


class VelaError(EdgewiseError):
    """Vela is not there, does not know what it is asked for, or refuses a graph."""


class VelaRefusal(VelaError):
    """A graph that the target cannot run. `words`: Vela's own, in one line."""

    def __init__(self, target: str, words: str) -> None:
        self.words = "; ".join(
            line.strip(" -:") for line in words.splitlines() if line.strip(" -:")
        )
        super().__init__(f"[vela] {target} cannot run the graph; got: {self.words}")


@dataclass(frozen=True)
class Family:
    """What the targets of one NPU generation have in common."""

    name: str
    """As Vela's compiled core spells it."""
    address_bits: int
    system_config: str
    memory_mode: str


_U55 = Family("EthosU55", 32, "Ethos_U55_High_End_Embedded", "Shared_Sram")
_U65 = Family("EthosU65", 40, "Ethos_U65_High_End", "Dedicated_Sram_384KB")
_U85 = Family("EthosU85", 40, "Ethos_U85_SYS_DRAM_Mid", "Sram_Only")

TARGETS: dict[str, tuple[Family, int, int]] = {
    **{f"ethos-u55-{macs}": (_U55, macs, 1) for macs in (32, 64, 128, 256)},
    "ethos-u65-256": (_U65, 256, 1),
    "ethos-u65-512": (_U65, 256, 2),
    **{f"ethos-u85-{macs}": (_U85, macs, 1) for macs in (128, 256, 512, 1024, 2048)},
}
"""Target: family, multiply-accumulate units of a core, cores."""


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
    options = _parse_flags(flags)
    regor = _import_regor()
    ini_text = read_ini(ini)
    system_config = system_config or family.system_config
    memory_mode = memory_mode or family.memory_mode
    config = _Ini(ini_text, ini)
    clock = float(config.get("System_Config", system_config, "core_clock", "1"))
    limit = int(config.get("Memory_Mode", memory_mode, "arena_cache_size", "0"))
    if options.arena_cache_size is not None:
        limit = options.arena_cache_size
    system = (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={system_config}\nmemory_mode_name={memory_mode}\n{ini_text}"
    )
    try:
        model = regor.compile(
            family.name,
            tosa,
            "TOSA",
            system,
            options=_compiler_options(options, limit or 1 << family.address_bits),
            verbose=False,
        )
    except RuntimeError as error:
        raise VelaRefusal(target, str(error)) from error
    program = NpuProgram(
        commands=model.command_stream,
        weights=model.read_only.data,
        scratch_size=model.scratch.size,
        inputs=tuple(_tensor(t) for t in model.inputs),
        outputs=tuple(_tensor(t) for t in model.outputs),
    )
    return VelaProgram(program, model.scratch_fast.size, _figures(model, clock))


def read_ini(ini: str) -> str:
    """The text of a configuration file. Raises VelaError if there is none."""
    path = Path(ini).expanduser()
    if not path.is_absolute() and len(path.parts) == 2 and not ini.startswith("."):
        path = Path(next(iter(importlib.import_module("ethosu").__path__))) / "config_files" / ini
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


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise VelaError(f"[vela] extra_flags must be flags that regor takes; got: {message}")


def _parse_flags(flags: Sequence[str]) -> argparse.Namespace:
    parser = _Flags(prog="vela", add_help=False, allow_abbrev=False)
    parser.add_argument("--optimise", choices=("Size", "Performance"), default="Performance")
    parser.add_argument("--arena-cache-size", type=int)
    parser.add_argument("--cpu-tensor-alignment", type=int, default=16)
    parser.add_argument(
        "--tensor-allocator", choices=("LinearAlloc", "Greedy", "HillClimb"), default="HillClimb"
    )
    parser.add_argument("--cop-format", choices=("COP1",), default="COP1")
    parser.add_argument("--experimental-softmax-int16-neg-exp-range", type=float, default=10.0)
    for flag in _FEATURES:
        parser.add_argument(f"--disable-{flag}", action="store_true")
    # What these print elsewhere is in VelaFigures here, always.
    for flag in ("verbose-performance", "enable-debug-db"):
        parser.add_argument(f"--{flag}", action="store_true")
    return parser.parse_args(list(flags))


_FEATURES = {
    "chaining": "Grouping",
    "fwd": "FWD",
    "cascading": "Cascading",
    "buffering": "WeightBuffering",
    "ifm-reuse": "ReuseIFM",
}


def _compiler_options(options: argparse.Namespace, arena_size_limit: int) -> str:
    disabled = [
        name
        for flag, name in _FEATURES.items()
        if getattr(options, f"disable_{flag.replace('-', '_')}")
    ]
    return (
        "[compiler]\noutput_format=Raw\nenable_db=true\n"
        f"cop_format={options.cop_format}\n"
        f"[scheduler]\noptimize={options.optimise}\narena_size_limit={arena_size_limit}\n"
        f"disable_feature={'|'.join(disabled)}\n"
        f"cpu_tensor_alignment={options.cpu_tensor_alignment}\n"
        f"tensor_allocator={options.tensor_allocator}\n"
        "[graph]\n"
        f"softmax_int16_neg_exp_range={options.experimental_softmax_int16_neg_exp_range}\n"
    )


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
        layers=tuple(_layers(model.opt_database.tables.get("perf"), list(memories))),
    )


def _layers(table: Any, memories: list[str]) -> list[LayerFigures]:
    if table is None:
        return []
    rows = [dict(zip(table.header, row, strict=True)) for row in table.data]
    return [
        LayerFigures(
            name=row["name"],
            operator=row["operator"],
            cycles=int(row["op_cycles"]),
            npu_cycles=int(row["npu_cycles"]),
            macs=int(row["mac_count"]),
            staging_bytes=int(row["staging_usage"]),
            access_cycles={m: int(row[f"{m}_ac"]) for m in memories if f"{m}_ac" in row},
        )
        for row in rows
    ]


def check(system_config: str, memory_mode: str, flags: Sequence[str], ini: str) -> None:
    """Raises VelaError for what `compile_tosa` would not know."""
    _parse_flags(flags)
    if importlib.util.find_spec("ethosu") is None:
        _import_regor()
    config = _Ini(read_ini(ini), ini)
    config.get("System_Config", system_config, "core_clock", "1")
    config.get("Memory_Mode", memory_mode, "arena_cache_size", "0")
