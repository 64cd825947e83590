"""What Vela refuses of a partition, found by compiling it.

Definitions state the limits that are known. What is left is known to Vela alone: a partition that
it does not compile is tried in parts, and what fails is refused in Vela's words.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch.export import ExportedProgram
from torch.fx import Node

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.lowering.extents import stray_access
from edgewise.backends.ethosu.lowering.lower import build
from edgewise.backends.ethosu.lowering.vela import VelaProgram, VelaRefusal
from edgewise.partition.cut_out import cut_out
from edgewise.partition.spec import Refusal

Unit = TypeVar("Unit")

_KEPT = 64
_tried: OrderedDict[tuple[bytes, tuple[str, ...]], VelaProgram] = OrderedDict()
"""What was compiled in trial, until it is asked for: by the graph's hash and the options."""


def compiled(tosa: bytes, spec: EthosUCompileSpec) -> VelaProgram:
    """What Vela makes of a graph. VelaError as `vela.compile_tosa`."""
    found = _tried.pop(_key(tosa, spec), None)
    return found or _compile(tosa, spec)


def refusal_of(
    program: ExportedProgram, nodes: Sequence[Node], spec: EthosUCompileSpec
) -> Refusal | None:
    """Vela's words against the nodes as a partition; None if it compiles them."""
    graph = build(cut_out(program, nodes)[0], spec.processor.family)
    tosa = graph.serialize()
    key = _key(tosa, spec)
    if key not in _tried:
        try:
            _tried[key] = _compile(tosa, spec)
        except VelaRefusal as error:
            return refusal(spec, error)
        while len(_tried) > _KEPT:
            _tried.popitem(last=False)
    made = _tried[key].program
    # The runtime hands over what the program has by position: one that is dropped moves the rest.
    for kind, kept, wanted in (
        ("input", len(made.inputs), len(graph.inputs)),
        ("result", len(made.outputs), len(graph.outputs)),
    ):
        if kept != wanted:
            return Refusal(f"Vela keeps every {kind} for {spec.target}", f"{kept} of {wanted}")
    return None


def offenders(
    units: Sequence[Unit], refusal: Callable[[Sequence[Unit]], Refusal | None]
) -> dict[Unit, Refusal]:
    """Units without which the rest may be tried again, of several that are refused together.

    units: in topological order. Those that are refused alone; if there are none, the last one of
    the shortest beginning that is refused.
    """
    alone = {unit: found for unit in units if (found := refusal([unit])) is not None}
    if alone:
        return alone
    # Of the first `low` units nothing is refused, of the first `high` something is.
    low, high, words = 1, len(units), refusal(units)
    while high - low > 1:
        middle = (low + high) // 2
        found = refusal(units[:middle])
        if found is None:
            low = middle
        else:
            high, words = middle, found
    assert words is not None
    return {units[high - 1]: words}


def refusal(spec: EthosUCompileSpec, error: VelaRefusal) -> Refusal:
    return Refusal(f"Vela compiles it for {spec.target}", error.words)


def _compile(tosa: bytes, spec: EthosUCompileSpec) -> VelaProgram:
    made = vela.compile_tosa(
        tosa,
        spec.target,
        spec.system_config,
        spec.memory_mode,
        spec.extra_flags,
        spec.config_ini,
    )
    stray = stray_access(made)
    if stray is not None:
        raise VelaRefusal(spec.target, f"a command beyond the memory held for it: {stray}")
    return made


def _key(tosa: bytes, spec: EthosUCompileSpec) -> tuple[bytes, tuple[str, ...]]:
    return hashlib.sha256(tosa).digest(), tuple(spec.compiler_flags)
