"""A quantized module's TOSA graphs in the TOSA reference model, against its PT2E program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tosa_reference_model
from torch.export import ExportedProgram

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer
from edgewise.backends.ethosu.lowering import vela
from edgewise.backends.ethosu.lowering.lower import build
from edgewise.backends.ethosu.lowering.tosa import Tosa
from edgewise.backends.ethosu.simulator import Simulator
from edgewise.edge.program import output_node
from edgewise.edge.quantized_decomposed import is_quantize
from edgewise.edge.to_edge import to_edge_program
from edgewise.partition.cut_out import cut_out
from edgewise.partition.spec import TAG, PartitionResult
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e
from support import exported_again

SPECS = {"U55": "ethos-u55-128", "U65": "ethos-u65-256", "U85": "ethos-u85-256"}


def quantized(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    config: Any = None,
    quantizer: Any = None,
    batches: int = 4,
) -> ExportedProgram:
    """Calibrated on the inputs and on others like them."""
    quantizer = quantizer or EthosUQuantizer()
    if config is not None:
        quantizer.set_global(config)
    inputs = tuple(inputs)
    exported = torch.export.export(module.eval(), inputs)
    prepared = prepare_pt2e(exported.module(), quantizer)
    with torch.no_grad():
        prepared(*inputs)
        for _ in range(batches):
            prepared(*(like(x) for x in inputs))
        return exported_again(convert_pt2e(prepared), exported, inputs)


def like(x: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in another order."""
    return x.reshape(-1)[torch.randperm(x.numel())].reshape(x.shape)


def partitioned(program: ExportedProgram, target: str = "U55", **options: Any) -> PartitionResult:
    partitioner = EthosUPartitioner(EthosUCompileSpec(SPECS[target]), **options)

    def keep(edge: ExportedProgram) -> Any:
        ops, wanted = partitioner.ops_to_not_decompose(edge)
        return lambda node: node.target in ops and (wanted is None or wanted(node))

    return partitioner.partition(to_edge_program(program, keep))


def parts(result: PartitionResult) -> list[ExportedProgram]:
    """The programs that the tags cut out."""
    program = result.tagged_exported_program
    found = []
    for tag in result.partition_tags:
        nodes = [n for n in program.graph.nodes if n.meta.get(TAG) == tag]
        found.append(cut_out(program, nodes)[0])
    return found


@dataclass(frozen=True)
class Compared:
    """The largest difference in steps, and the share of elements that differ."""

    steps: int
    share: float
    operators: list[str]
    refusals: dict[str, list[str]]
    tosa: bytes = b""
    inputs: Sequence[np.ndarray] = ()
    """Of the last run, as they lie in memory."""
    outputs: Sequence[np.ndarray] = ()
    """What the TOSA reference model makes of them."""
    place: str = ""
    """Of the largest difference: index, both values, and the operands there."""

    def __str__(self) -> str:
        return f"{self.steps} steps off, {self.share:.1%} of the elements at all; {self.place}"


def compare(
    part: ExportedProgram,
    seeds: int = 3,
    inputs: Sequence[torch.Tensor] | None = None,
    family: str = "U85",
) -> Compared:
    """Random integers, or `inputs`, through both."""
    graph = build(part, family)
    blob = graph.serialize()
    values = [n.meta["val"] for n in part.graph.nodes if n.op == "placeholder"]
    values = values[-len(graph.inputs) :] if graph.inputs else []
    generator = torch.Generator().manual_seed(7)
    worst, different, total, place = 0, 0, 0, ""
    module = part.module()
    for _ in range(seeds):
        given = []
        for value in values:
            info = torch.iinfo(value.dtype) if value.dtype != torch.bool else None
            low, high = (info.min, info.max) if info else (0, 1)
            x = torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype)
            given.append(x)
        given = given if inputs is None else list(inputs)
        with torch.no_grad():
            expected = module(*given)
        lying = [
            x.permute(t.order).contiguous().numpy()
            for x, t in zip(given, graph.inputs, strict=True)
        ]
        got, status = tosa_reference_model.run(blob, lying, tosa_level="EIGHTK")
        assert status == tosa_reference_model.GraphStatus.TOSA_VALID
        for y, want, t in zip(got, expected, graph.outputs, strict=True):
            want_array = want.permute(t.order).contiguous().numpy()
            assert y.shape == want_array.shape
            off = np.abs(y.astype(np.int64) - want_array.astype(np.int64))
            if off.max(initial=0) > worst:
                worst = int(off.max())
                at = np.unravel_index(int(off.argmax()), off.shape)
                there = [x[at] for x in lying if x.shape == off.shape]
                place = f"[{', '.join(map(str, at))}] got {y[at]}, expected {want_array[at]}"
                place += f"; inputs {', '.join(map(str, there))}" if there else ""
            different += int((off > 0).sum())
            total += off.size
    return Compared(worst, different / max(total, 1), graph.operators, {}, blob, lying, got, place)


class _OneByOne(torch.fx.Interpreter):
    """Computes each quantized value of the program from those that are `given` for what it reads,
    and notes how far the given one is off."""

    def __init__(self, program: torch.fx.GraphModule, given: dict[str, torch.Tensor]) -> None:
        super().__init__(program)
        self.given, self.steps = given, dict[str, int]()

    def run_node(self, n: torch.fx.Node) -> Any:
        found = super().run_node(n)
        if n.name not in self.given:
            return found
        given = self.given[n.name]
        self.steps[n.name] = int((given.long() - found.long()).abs().max())
        return given


def operator_steps(
    part: ExportedProgram, inputs: Sequence[torch.Tensor], family: str = "U85"
) -> dict[str, int]:
    """How many steps each quantized value of the part is off in the TOSA reference model, by its
    node: from the program's result for the integers that the operator read there."""
    shown = copy.deepcopy(part)
    results = output_node(shown.graph)
    values = [n for n in shown.graph.nodes if is_quantize(n)]
    ends: list[torch.fx.Node] = list(results.args[0])  # type: ignore[arg-type]
    results.args = (tuple(dict.fromkeys([*ends, *values])),)
    named = _reference(build(shown, family), results.args[0], inputs)
    alone = _reference(build(part, family), ends, inputs)
    for name, value in alone.items():
        assert torch.equal(value, named[name])
    run = _OneByOne(part.module(), named)
    with torch.no_grad():
        run.run(*inputs)
    assert run.steps.keys() == named.keys()
    return run.steps


def _reference(graph: Tosa, results: Any, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The results in the TOSA reference model, by their nodes' names."""
    lying = [
        x.permute(t.order).contiguous().numpy() for x, t in zip(inputs, graph.inputs, strict=True)
    ]
    found, status = tosa_reference_model.run(graph.serialize(), lying, tosa_level="EIGHTK")
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID
    named = {}
    for node, y, t in zip(results, found, graph.outputs, strict=True):
        back = [t.order.index(d) for d in range(len(t.order))]
        named[node.name] = torch.from_numpy(y).permute(back)
    return named


def assert_simulated(found: Compared, target: str) -> None:
    """What Vela makes of the graph for `target` equals the reference model, bit by bit."""
    simulator = Simulator(vela.compile_tosa(found.tosa, target).program)
    for got, want in zip(simulator.run(found.inputs), found.outputs, strict=True):
        np.testing.assert_array_equal(got.reshape(want.shape), want, target)
