"""The flags of Vela's command line, as what its compiled core takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

from edgewise.errors import EdgewiseError


class VelaError(EdgewiseError):
    """Vela is not there, does not know what it is asked for, or refuses a graph."""


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise VelaError(f"[vela] extra_flags must be flags that regor takes; got: {message}")


_FEATURES = {
    "chaining": "Grouping",
    "fwd": "FWD",
    "cascading": "Cascading",
    "buffering": "WeightBuffering",
    "ifm-reuse": "ReuseIFM",
}
_PRINTED_BY_REGOR = {
    "high-level-command-stream": ("compiler", "verbose_high_level_command_stream"),
    "register-command-stream": ("compiler", "verbose_register_command_stream"),
    "schedule": ("scheduler", "verbose"),
    "allocation": ("scheduler", "verbose_allocation"),
    "graph": ("graph", "verbose"),
    "quantization": ("graph", "verbose_quantization"),
}
"""What regor itself prints: the section of its options, and the key."""
_FIGURES = ("performance", "cycle-estimate", "weights", "config")
"""What is printed of `VelaFigures`."""
_WITHOUT_EFFECT = """
verbose-operators verbose-packing verbose-progress verbose-tensor-format verbose-tensor-purpose
debug-force-regor enable-debug-db force-symmetric-int-weights show-cpu-operations
show-subgraph-io-summary timing
"""
"""Of TFLite or of the compiler that TOSA graphs never reach; the database is always kept."""

_ARGUMENTS = {
    "--accelerator-config": "target",
    "--config": "config_ini",
    "--memory-mode": "memory_mode",
    "--system-config": "system_config",
}


@cache
def _parser() -> _Flags:
    parser = _Flags(prog="vela", add_help=False, allow_abbrev=False)
    parser.add_argument("--optimise", choices=("Size", "Performance"), default="Performance")
    parser.add_argument("--arena-cache-size", type=int)
    parser.add_argument("--cpu-tensor-alignment", type=int, default=16)
    parser.add_argument(
        "--tensor-allocator", choices=("LinearAlloc", "Greedy", "HillClimb"), default="HillClimb"
    )
    parser.add_argument("--cop-format", choices=("COP1", "COP2"), default="COP1")
    parser.add_argument("--separate-io-regions", action="store_true")
    parser.add_argument("--experimental-softmax-int16-neg-exp-range", type=float, default=10.0)
    parser.add_argument("--ignore-ops", action="append", default=[])
    parser.add_argument("--verbose-all", action="store_true")
    for flag in [f"verbose-{name}" for name in (*_PRINTED_BY_REGOR, *_FIGURES)]:
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in [*(f"disable-{name}" for name in _FEATURES), *_WITHOUT_EFFECT.split()]:
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--max-block-dependency", type=int, choices=range(4))
    for name in ("recursion-limit", "hillclimb-max-iterations"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--output-dir")
    parser.add_argument("--output-format", choices=("raw",))
    return parser


def parse_flags(flags: Sequence[str]) -> argparse.Namespace:
    """Raises VelaError for a flag that Vela has not, or that means nothing here."""
    parser = _parser()
    for flag in flags:
        name = flag.split("=")[0]
        if name in _ARGUMENTS:
            parser.error(f"{flag}; try EthosUCompileSpec's argument {_ARGUMENTS[name]}")
    found = parser.parse_args(list(flags))
    alignment = found.cpu_tensor_alignment
    if alignment < 16 or alignment & (alignment - 1):
        parser.error(f"--cpu-tensor-alignment={alignment}; try a power of 2 from 16 on")
    if found.separate_io_regions and found.cop_format != "COP2":
        parser.error("--separate-io-regions without --cop-format=COP2; try both")
    if found.arena_cache_size is not None and found.arena_cache_size < 0:
        parser.error(f"--arena-cache-size={found.arena_cache_size}; try 0 or more")
    if re.search(r"[^A-Za-z0-9_,]", ",".join(found.ignore_ops)):
        parser.error(f"--ignore-ops={','.join(found.ignore_ops)}; try names separated by commas")
    return found


def wants(options: argparse.Namespace, figures: str) -> bool:
    """Whether one of `performance`, `cycle-estimate`, `weights` and `config` is to be printed."""
    asked = getattr(options, f"verbose_{figures.replace('-', '_')}")
    return bool(asked or options.verbose_all)


def prints(options: argparse.Namespace) -> bool:
    """Whether regor is to print something."""
    return any(wants(options, name) for name in _PRINTED_BY_REGOR)


def compiler_options(options: argparse.Namespace, arena_size_limit: int) -> str:
    """As regor reads them."""
    disabled = [
        name
        for flag, name in _FEATURES.items()
        if getattr(options, f"disable_{flag.replace('-', '_')}")
    ]
    sections: dict[str, dict[str, object]] = {
        "compiler": {
            "output_format": "Raw",
            "enable_db": "true",
            "cop_format": options.cop_format,
        },
        "scheduler": {
            "optimize": options.optimise,
            "arena_size_limit": arena_size_limit,
            "disable_feature": "|".join(disabled),
            "cpu_tensor_alignment": options.cpu_tensor_alignment,
            "tensor_allocator": options.tensor_allocator,
        },
        "graph": {
            "softmax_int16_neg_exp_range": options.experimental_softmax_int16_neg_exp_range,
        },
    }
    if options.separate_io_regions:
        sections["scheduler"]["separate_io_regions"] = "true"
    if options.ignore_ops:
        sections["graph"]["ignore_ops"] = ",".join(options.ignore_ops).upper()
    for name, (section, key) in _PRINTED_BY_REGOR.items():
        if wants(options, name):
            sections[section][key] = "true"
    lines = []
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{key}={value}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"
