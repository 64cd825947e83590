"""What a program is expected to take, layer by layer: Vela's figures beside our own model's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.lowering.compile_spec import EthosUCompileSpec
from edgewise.backends.ethosu.simulator.errors import NotSimulatedError, NpuError
from edgewise.backends.ethosu.simulator.timing import NPU, WAITING, Timeline, timeline
from edgewise.backends.ethosu.targets import PROCESSORS
from edgewise.partition.spec import Estimates

Row = dict[str, str | int | float]


def estimates(
    made: vela.VelaProgram, origins: Mapping[str, str], spec: EthosUCompileSpec
) -> Estimates:
    """For the delegation report and the record. origins: by tensor, the node it was made for."""
    figures = made.figures
    known: dict[str, float] = {
        "cycles": figures.total_cycles,
        "NPU cycles": figures.npu_cycles,
        "MACs": figures.macs,
        "inferences per second": figures.inferences_per_second,
        "encoded weight bytes": figures.encoded_weight_bytes,
    }
    for name, memory in figures.memories.items():
        if memory.peak_bytes or memory.read_bytes or memory.written_bytes:
            known[f"{name} bytes used"] = memory.peak_bytes
            known[f"{name} bytes read"] = memory.read_bytes
            known[f"{name} bytes written"] = memory.written_bytes
    _, macs, cores = PROCESSORS[spec.target]
    ours = _modelled(made, spec)
    layers = [
        {
            **_layer(layer, macs * cores),
            "node": origin_of(layer.name, origins),
            **ours.get(number, {}),
        }
        for number, layer in enumerate(figures.layers)
    ]
    blocks: list[Row] = [
        {
            "name": block.name,
            "node": origin_of(block.name, origins),
            "memory": block.memory,
            "address": block.address,
            "bytes": block.bytes,
            "first": block.first,
            "last": block.last,
        }
        for block in figures.arena
    ]
    return Estimates(f"Vela {vela.VERSION}", known, layers, blocks)


def origin_of(name: str, origins: Mapping[str, str]) -> str:
    """The node of the tensor that Vela names so, or of the one that it made this for: what Vela
    puts in has that one's name and more behind it (`rescale_7/lut/Mul`, `rescale_7_transpose`)."""
    while name and name not in origins:
        name = name[: max(name.rfind("/"), name.rfind("_"), 0)]
    return origins.get(name, "")


def _layer(layer: vela.LayerFigures, peak: int) -> Row:
    """peak: multiply-accumulates of a cycle."""
    row: Row = {
        "name": layer.name,
        "operator": layer.operator,
        "cycles": layer.cycles,
        "NPU cycles": layer.npu_cycles,
        "MACs": layer.macs,
        "staging bytes": layer.staging_bytes,
        "commands": " ".join(map(str, layer.commands)),
    }
    if layer.macs and layer.cycles:
        row["MAC utilization"] = round(layer.macs / (layer.cycles * peak), 4)
    row.update({f"{name} cycles": cycles for name, cycles in layer.access_cycles.items()})
    return row


def _modelled(made: vela.VelaProgram, spec: EthosUCompileSpec) -> dict[int, Row]:
    """By number of layer what our model of the command stream says of it; empty where it cannot.

    The model's memories are those of the target's default configuration.
    """
    target = spec.processor
    chosen = (spec.system_config, spec.memory_mode, spec.config_ini)
    if chosen != (target.system_config, target.memory_mode, vela.DEFAULT_INI):
        return {}
    try:
        told = timeline(made.program.commands)
    except (NotSimulatedError, NpuError):
        return {}
    return _by_layer(told, made.figures)


def _by_layer(told: Timeline, figures: vela.VelaFigures) -> dict[int, Row]:
    layers = figures.layers_by_command()
    busy, waits = Counter[int](), Counter[int]()
    bounds: dict[int, Counter[str]] = {}
    for span in told.spans:
        number, cycles = layers.of(span.offset), span.end - span.begin
        if number is None or span.lane not in (NPU, WAITING):
            continue
        (busy if span.lane == NPU else waits)[number] += cycles
        if span.bound:
            bounds.setdefault(number, Counter())[span.bound] += cycles
    return {
        number: {
            "model cycles": cycles + waits[number],
            "model waiting": waits[number],
            "bound": bounds[number].most_common(1)[0][0] if number in bounds else "",
        }
        for number, cycles in busy.items()
    }
