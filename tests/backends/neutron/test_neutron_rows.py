"""Every row: what it lowers to, run in LiteRT's reference kernels, against the PT2E reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from neutron_cases import ACCEPTED, IDLE, IMAGE, REFUSED, REFUSED_UNLESS_DECOMPOSED, Fn, Shape
from torch import nn
from torch.export import ExportedProgram

import edgewise
from closeness import assert_bounded
from edgewise.backends.neutron import (
    NeutronPartitioner,
    NeutronQuantizer,
    generate_neutron_compile_spec,
)
from edgewise.backends.neutron.operators import TABLE
from edgewise.backends.neutron.payload import read_reference
from edgewise.backends.neutron.tflite.schema import BuiltinOperator
from edgewise.inspect.reading import delegate_payloads
from edgewise.lowering import ExecutorchProgramManager
from edgewise.quantize.flow import quantize
from edgewise.runtime import load

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert


Make = Callable[[], nn.Module]


class AsItIs(NeutronQuantizer):
    """Decomposes nothing, as others' quantizers."""

    def transform_for_annotation(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return model


def quantized(
    make: Make,
    batches: Sequence[tuple[torch.Tensor, ...]],
    quantizer: type[NeutronQuantizer] = NeutronQuantizer,
) -> ExportedProgram:
    """Calibrated with the batches."""
    torch.manual_seed(0)
    return quantize(
        make().eval(), batches[0], "int8", quantizer, calibration=batches, progress=False
    )


def around_zero(shapes: tuple[Shape, ...]) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.randn(s, generator=generator) for s in shapes) for _ in range(4)]


def beside_zero(shapes: tuple[Shape, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Each operand has a range of its own, not around zero."""
    generator = torch.Generator().manual_seed(2)
    return [
        tuple((2 + i) * torch.rand(s, generator=generator) - 0.3 for i, s in enumerate(shapes))
        for _ in range(4)
    ]


def with_another_result(program: ExportedProgram, factor: float, offset: int) -> ExportedProgram:
    """The same with other steps of the result, than which calibration found."""
    last = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1]
    quantize_ = last.args[0]
    for node in (quantize_, last):
        scale, zero = node.args[1] * factor, max(-128, min(127, node.args[2] + offset))
        node.args = (node.args[0], scale, zero, *node.args[3:])
    program.graph_module.recompile()
    return program


def lowered(program: ExportedProgram, **options: Any) -> ExecutorchProgramManager:
    spec = generate_neutron_compile_spec(
        "imxrt700", neutron_converter_flavor="reference", **options
    )
    partitioner = NeutronPartitioner(spec)
    return edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()


ROWS = {str(target): row for row in TABLE.definitions for target in row.targets}


def declared(lowered: ExecutorchProgramManager) -> int:
    """The steps that an element may be off by the rows of all operators together, each of whose
    results is an operand of the next."""
    nodes = [n for n in lowered.delegation_report().nodes if n.partition and n.operator in ROWS]
    return sum(ROWS[n.operator].accuracies()["int8"].steps or 0 for n in nodes)


def assert_within_steps(
    program: ExportedProgram,
    lowered: ExecutorchProgramManager,
    batches: Sequence[tuple[torch.Tensor, ...]],
) -> None:
    """Each element is near enough to the PT2E reference, in steps of the result's scale."""
    scale = [n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1].args[1]
    reference = program.module()
    run = load(bytes(lowered.buffer))
    steps = declared(lowered)
    for inputs in batches:
        want = reference(*inputs).detach()
        found = torch.from_numpy(np.ascontiguousarray(run(*(x.numpy() for x in inputs))))
        bound = torch.full(want.shape, (steps + 1e-3) * scale)
        why = f"{steps} steps of {scale:g}"
        assert_bounded(found.reshape(want.shape), want, bound, inputs=inputs, why=why)


BORDER = {
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.default",
}


def is_whole(made: ExecutorchProgramManager) -> bool:
    return {n.operator for n in made.delegation_report().refused} <= BORDER


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str, tmp_path: Path) -> None:
    make, shapes = ACCEPTED[name]
    batches = around_zero(shapes)
    program = quantized(make, batches)
    made = lowered(program)
    assert is_whole(made), str(made.delegation_report())
    beyond = [tuple(3 * x for x in batch) for batch in batches[:1]]  # saturates
    assert_within_steps(program, made, [batches[1], *beyond])
    made.save(tmp_path / "case.pte")
    compared[name] = kernels_that_differ(tmp_path / "case.pte")
    assert {operator for operator, off in compared[name].items() if off > 1} <= WRONG


OF_ANY_SIZE = ("add", "mul-zero", "conv", "exp_", "softmax-bmm", "sigmoid", "tanh")


@pytest.mark.parametrize("size", [1e-9, 1e5])
@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_inputs_of_any_size(name: str, size: float) -> None:
    """LiteRT ends where factors between scales are too small or too large for a kernel: such
    operators stay on the CPU."""
    make, shapes = ACCEPTED[name]
    batches = [tuple(size * x for x in batch) for batch in around_zero(shapes)]
    program = quantized(make, batches)
    assert_within_steps(program, lowered(program), [batches[1]])


PRODUCTS = ("conv", "depthwise", "transposed", "linear", "addmm", "mm", "bmm", "mul", "mul-number")
OTHERS = ("add", "sub", "abs", "neg", "leaky_relu", "prelu", "hardswish", "exp", "log", "sum")


@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-3, 1e4])
@pytest.mark.parametrize("name", PRODUCTS + OTHERS)
def test_results_of_any_size(name: str, size: float) -> None:
    """LiteRT's kernels end, or their integers overflow, where a result's steps are much finer than
    those of its operands."""
    make, shapes = ACCEPTED[name]
    batches = around_zero(shapes)
    program = with_another_result(quantized(make, batches), size, 0)
    assert_within_steps(program, lowered(program), batches[:1])


def test_hardswish_of_negative_numbers() -> None:
    """The result is all but zero, with steps that LiteRT's kernel refuses."""
    batches = [(torch.linspace(-200, -2.9, 64).reshape(2, 32),)]
    program = quantized(nn.Hardswish, batches)
    made = lowered(program)
    assert_within_steps(program, made, batches)
    reasons = [str(r) for n in made.delegation_report().refused for r in n.refusals]
    assert any("a scale above the operand's / 2**7" in r for r in reasons), reasons


@pytest.mark.filterwarnings("ignore:.*results must be larger than a step")
def test_a_softmax_of_many_that_are_nearly_alike() -> None:
    """LiteRT's reference kernel ends its process where exponentials add up to 512 and more."""
    batches = [(torch.randn(2, 3, 600) * 0.01,)]
    program = quantized(lambda: nn.Softmax(-1), batches)
    assert_within_steps(program, lowered(program), batches)


WRONG = {"SUM"}
"""Of LiteRT's reference kernels; programs with them run by its ordinary ones."""
compared: dict[str, dict[str, int]] = {}
"""By case, by operator: by how many steps the reference kernels differ from the ordinary ones."""


def kernels_that_differ(file: Path) -> dict[str, int]:
    """Each operator of the program by both kinds of LiteRT's kernels, on the same operands."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    found: dict[str, int] = {}
    for _, _, _, data in delegate_payloads(file):
        model = read_reference(bytes(data)).model
        runs = []
        for kind in (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
            run = Interpreter(
                model_content=model,
                experimental_op_resolver_type=kind,
                experimental_preserve_all_tensors=True,
            )
            run.allocate_tensors()
            random = np.random.default_rng(0)
            for given in run.get_input_details():
                run.set_tensor(given["index"], random.integers(-128, 128, given["shape"], np.int8))
            run.invoke()
            runs.append(run)
        for operator in runs[0]._get_ops_details():
            reads, writes = (
                [[value(run, i) for i in operator[key] if i >= 0] for run in runs]
                for key in ("inputs", "outputs")
            )
            known = all(one is not None for one in (*reads[0], *writes[0]))
            if known and all(map(np.array_equal, *reads)):
                off = max(int(np.abs(a - b).max()) for a, b in zip(*writes, strict=True))
                found[operator["op_name"]] = max(off, found.get(operator["op_name"], 0))
    return found


def value(run: Any, index: int) -> np.ndarray[Any, Any] | None:
    """A tensor's integers; None for one without dimensions, of which LiteRT gives out none."""
    try:
        return np.asarray(run.get_tensor(index)).astype(np.int64)
    except ValueError:
        return None


def test_every_operator_was_compared() -> None:
    """By `test_accepted`, which runs before."""
    if set(compared) != set(ACCEPTED):
        pytest.skip("not every case ran")
    seen = {operator for found in compared.values() for operator in found}
    assert seen >= {one.name for one in BuiltinOperator} - {"CUSTOM", "QUANTIZE"}  # none is made
    assert any(found.get("SUM", 0) > 1 for found in compared.values()), "the kernel is right now"


@pytest.mark.parametrize("name", ACCEPTED)
def test_ranges_that_differ(name: str) -> None:
    """Operands beside zero, results in other steps; where the row wants the operand's, these."""
    make, shapes = ACCEPTED[name]
    batches = beside_zero(shapes)
    program = with_another_result(quantized(make, batches), 1.37, 5)
    made = lowered(program)
    if is_whole(made):
        assert_within_steps(program, made, batches[:2])
        return
    told = {str(r) for n in made.delegation_report().refused for r in n.refusals}
    assert any(re.search("quantized alike|a result with the scale", r) for r in told), told
    program = quantized(make, batches)
    made = lowered(program)
    assert_within_steps(program, made, batches[:2])
    assert is_whole(made), str(made.delegation_report())


def test_sum_of_a_few_numbers() -> None:
    x = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.1, 0.1]])
    program = quantized(lambda: Fn(lambda x: x.sum(-1)), [(x,)])
    made = lowered(program)
    assert is_whole(made)
    assert_within_steps(program, made, [(x,)])
    found = torch.tensor(np.asarray(load(bytes(made.buffer))(x)))
    assert_bounded(found, torch.tensor([1.0, 0.3]), torch.full((2,), 4 * 0.5 / 255), inputs=(x,))


@pytest.mark.parametrize(
    ("name", "convolutions"),
    [("groups", 2), ("groups-of-two", 3), ("groups-joined", 1), ("groups-1d", 2)],
)
def test_small_groups_are_computed_together(name: str, convolutions: int, tmp_path: Path) -> None:
    """As many as fill the eight channels that the NPU reads at a time."""
    make, shapes = ACCEPTED[name]
    lowered(quantized(make, around_zero(shapes))).save(tmp_path / "case.pte")
    ((_, _, _, data),) = delegate_payloads(tmp_path / "case.pte")
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(model_content=read_reference(bytes(data)).model)
    names = [operator["op_name"] for operator in run._get_ops_details()]
    assert names.count("CONV_2D") == convolutions, names


@pytest.mark.parametrize("name", IDLE)
def test_what_gives_its_operand(name: str) -> None:
    """The converter removes it, and makes no program of a partition that has nothing else."""
    make, shapes, delegated = IDLE[name]
    batches = around_zero(shapes)
    program = quantized(make, batches)
    made = lowered(program)
    report = made.delegation_report()
    taken = [n.operator for n in report.nodes if n.partition and n.operator in ROWS]
    assert sorted(n.split(".")[1] for n in taken) == delegated, str(report)
    idle = [n for n in report.refused if n.operator not in BORDER]
    assert all("compute something" in str(n.refusals) for n in idle)
    assert bool(idle) == (not name.startswith(("before", "inside")))
    assert_within_steps(program, made, batches[:2])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, shapes, message = REFUSED[name]
    assert_refused(quantized(make, around_zero(shapes)), message)


@pytest.mark.parametrize("name", REFUSED_UNLESS_DECOMPOSED)
def test_refused_of_other_quantizers(name: str) -> None:
    make, message = REFUSED_UNLESS_DECOMPOSED[name]
    assert_refused(quantized(make, around_zero((IMAGE,)), AsItIs), message)


@pytest.mark.parametrize("make", [lambda: nn.AvgPool2d(3, 2, 1), lambda: nn.MaxPool2d(2)])
def test_an_image_without_a_batch_of_other_quantizers(make: Callable[[], nn.Module]) -> None:
    assert_refused(quantized(make, around_zero(((4, 8, 8),)), AsItIs), "self is 4-D; got 3-D")


def assert_refused(program: ExportedProgram, message: str) -> None:
    reasons = [str(r) for n in lowered(program).delegation_report().refused for r in n.refusals]
    assert any(re.search(message, r) for r in reasons), reasons
