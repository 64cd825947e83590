"""What is tagged, what is refused and where that is said; what the quantizers make of models."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ethosu_reference import SPECS, assert_simulated, compare, partitioned, parts, quantized
from torch import nn
from torch.fx.passes.operator_support import OperatorSupportBase

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_a16w8_quantization_config,
)
from edgewise.backends.ethosu.lowering import tosa
from edgewise.backends.ethosu.lowering.lower import build
from edgewise.backends.xnnpack import (
    XnnpackPartitioner,
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from edgewise.errors import EdgewiseError
from edgewise.format.file import read
from edgewise.partition.spec import TAG, CompileSpec
from support import Fn, assert_close, export, run_ours

QD = torch.ops.quantized_decomposed


class Net(nn.Module):
    """A bit of everything: a residual, pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.head(self.pool(self.second(x) + x).flatten(1))


INPUT = (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)),)


class Interrupted(nn.Module):
    """An operator in the middle that the NPU has not."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.cumprod(self.before(x), 2))


def tagged(result: Any) -> list[str]:
    nodes = result.tagged_exported_program.graph.nodes
    return [str(n.target) for n in nodes if n.meta.get(TAG)]


def test_whole_model_without_its_borders() -> None:
    result = partitioned(quantized(Net(), INPUT))
    (spec,) = result.partition_tags.values()
    assert spec.backend_id == "EthosUBackend"
    nodes = list(result.tagged_exported_program.graph.nodes)
    (first,) = [n for n in nodes if n.name in result.refusals and "quantize" in n.name][:1]
    assert TAG not in first.meta
    rules = {name: [r.rule for r in given] for name, given in result.refusals.items()}
    assert sorted(map(tuple, rules.values())) == [
        ("what goes to the NPU is quantized elsewhere",),
        ("what leaves the NPU is dequantized elsewhere",),
    ]
    (part,) = parts(result)
    assert [n.meta["val"].dtype for n in part.graph.nodes if n.name in _user_inputs(part)] == [
        torch.int8
    ]
    assert compare(part).steps <= 1


def _user_inputs(program: torch.export.ExportedProgram) -> set[str]:
    return set(program.graph_signature.user_inputs)


def test_layouts_cost_two_transposes_or_none() -> None:
    program = quantized(Net(), INPUT)
    (part,) = parts(partitioned(program))
    assert build(part, "U85").operators.count("TRANSPOSE") == 1  # pooled to one pixel at the end
    last = (INPUT[0].to(memory_format=torch.channels_last),)
    (part,) = parts(partitioned(quantized(Net(), last)))
    graph = build(part, "U85")
    assert graph.operators.count("TRANSPOSE") == 0
    assert graph.inputs[0].dims == (1, 16, 16, 3)
    assert compare(part).steps <= 1


def test_unquantized_model_says_so_and_how_to_quantize() -> None:
    result = partitioned(export(Net(), INPUT))
    assert not result.partition_tags
    (reason,) = (
        result.refusals["convolution"]
        if "convolution" in result.refusals
        else next(iter(result.refusals.values()))
    )
    assert reason.rule.startswith("the program is quantized")
    assert "EthosUQuantizer" in reason.hint
    program = edgewise.compile(Net(), INPUT, backend="ethos-u55-128", verbose=False)
    assert "the program is quantized" in str(program.delegation_report())
    assert program.delegation_report().share("macs") == 0


def test_dynamic_shape_is_refused() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            real = torch.ops.quantized_decomposed.dequantize_per_tensor(
                x, 0.1, 0, -128, 127, torch.int8
            )
            return torch.ops.quantized_decomposed.quantize_per_tensor(
                torch.tanh(real), 0.01, 0, -128, 127, torch.int8
            )

    x = torch.zeros(4, 5, dtype=torch.int8)
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    program = torch.export.export(Scaled(), (x,), dynamic_shapes=shapes)
    result = partitioned(program)
    assert not result.partition_tags
    (reason,) = result.refusals["tanh"]
    assert re.search(r"^static shapes only: .*; got \[s\d+, 5\]; try", str(reason))
    assert "dynamic_shapes" in reason.hint
    # It stays dynamic for whoever runs it.
    partitioners = [EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")), XnnpackPartitioner()]
    made = edgewise.to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch()
    for rows in (2, 4, 7):
        given = np.arange(5 * rows, dtype=np.int8).reshape(rows, 5)
        expected = program.module()(torch.from_numpy(given))
        np.testing.assert_array_equal(edgewise.load(bytes(made.buffer))(given), expected)


def test_only_moves_are_no_partition() -> None:
    result = partitioned(quantized(nn.Flatten(), INPUT))
    assert not result.partition_tags
    reasons = [str(r) for given in result.refusals.values() for r in given]
    assert any("only operators that lowering removes" in r for r in reasons)


class NoAdd(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.target is not torch.ops.aten.add.Tensor


def test_additional_checks_split_the_program() -> None:
    program = quantized(Net(), INPUT)
    result = partitioned(program, additional_checks=[NoAdd()])
    assert len(result.partition_tags) == 2
    (name,) = [n for n in result.refusals if n.startswith("add")]
    assert [str(r) for r in result.refusals[name]] == ["Rejected by NoAdd"]
    for part in parts(result):
        assert compare(part).steps <= 1
    with pytest.raises(TypeError, match="additional_checks must be OperatorSupportBase"):
        EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"), [NoAdd])  # type: ignore[list-item]


class NoCopy(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.target is not torch.ops.aten._to_copy.default


def test_indices_leave_the_npu_with_32_bits() -> None:
    class Classes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.relu(x).argmax(1).to(torch.int32)

    x = torch.randn(3, 10)
    program = quantized(Classes(), (x,))
    result = partitioned(program)
    (part,) = parts(result)
    found = compare(part)
    assert (found.steps, found.operators[-1]) == (0, "ARGMAX")
    # Without the copy nothing is left that could come out of a delegate.
    result = partitioned(program, additional_checks=[NoCopy()])
    (name,) = [n for n in result.refusals if n.startswith("argmax")]
    assert str(result.refusals[name][0]).startswith("results have at most 32 bits")


def test_composites_are_kept_where_they_are_quantized() -> None:
    def kept(program: torch.export.ExportedProgram) -> list[str]:
        ops, wanted = EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")).ops_to_not_decompose(
            program
        )
        assert wanted is not None
        return [str(n.target) for n in program.graph.nodes if n.target in ops and wanted(n)]

    model = nn.Sequential(nn.Linear(8, 8), nn.Hardswish(), nn.LayerNorm(8))
    x = (torch.randn(2, 8),)
    wholes = ["aten.linear.default", "aten.hardswish.default", "aten.layer_norm.default"]
    assert kept(quantized(model, x)) == wholes
    assert kept(export(model, x)) == []


class Attention(nn.Module):
    """Two heads over five tokens, with a mask of numbers if asked."""

    def __init__(self, masked: bool, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("mask", torch.randn(5, 5) if masked else None)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, self.mask, **self.options)


@pytest.mark.parametrize(
    ("module", "partitions"),
    [(Attention(False), 1), (Attention(True, scale=0.5), 1), (Attention(False, is_causal=True), 1)],
    ids=["plain", "mask and scale", "causal"],
)
def test_attention_is_quantized_in_steps(module: nn.Module, partitions: int) -> None:
    inputs = tuple(torch.randn(1, 2, 5, 8) for _ in range(3))
    program = quantized(module, inputs)
    with torch.no_grad():  # eight bits in each step keep what the float model computes
        assert float((program.module()(*inputs) - module(*inputs)).abs().max()) < 0.1
    result = partitioned(program)
    assert len(result.partition_tags) == partitions
    for part in parts(result):
        # Two products and a softmax in a row: each may round differently by one step.
        assert compare(part, seeds=1).steps <= 2


TABLE = """\
Partitioning for EthosUBackend: TOSA-1.0+INT+int16+int4+u55
The following nodes were rejected for TOSA-1.0+INT+int16+int4+u55:
╒═"""


def test_table_of_rejected_nodes(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    spec = EthosUCompileSpec("ethos-u55-128").dump_intermediate_artifacts_to(tmp_path)
    with caplog.at_level(logging.INFO, "edgewise.backends.ethosu.lowering.partitioner"):
        edge = edgewise.to_edge_transform_and_lower(
            quantized(Interrupted(), INPUT), partitioner=[EthosUPartitioner(spec)]
        )
    (text,) = [r.getMessage() for r in caplog.records]
    assert text.startswith(TABLE)
    head = next(line for line in text.splitlines() if line.startswith("│"))
    assert head.replace("│", " ").split() == ["Node", "name", "Target", "Torch", "func", "Reason"]
    assert "aten.cumprod.default" in text
    assert (tmp_path / "partition_report.txt").read_text() == text + "\n"
    graphs = sorted(tmp_path.glob("*/graph.tosa"))
    assert len(graphs) == 2
    assert all(g.read_bytes()[4:8] == b"TOSA" for g in graphs)
    figures = json.loads((graphs[0].parent / "vela.json").read_text())
    assert figures["total_cycles"] > 0
    assert figures["layers"]
    report = edge.delegation_report()
    assert sorted(report.estimates) == ["ethosu_0", "ethosu_1"]


def test_estimates_are_in_the_report_and_marked() -> None:
    program = edgewise.compile(
        Net(), INPUT, backend="ethos-u55-128", quantize="int8", calibration=[INPUT], verbose=False
    )
    report = program.delegation_report()
    assert report.share("macs") == 1
    found = report.estimates["ethosu_0"]
    assert found.source == "Vela 5.1.0"
    assert found.figures["cycles"] > found.figures["NPU cycles"] > 0
    assert sum(int(layer["cycles"]) for layer in found.layers) > 0
    assert "estimates of Vela 5.1.0" in str(report)
    assert report.to_dict()["estimates"]["ethosu_0"]["figures"]["MACs"] > 0


def test_models_of_another_quantizer() -> None:
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    result = partitioned(quantized(Net(), INPUT, quantizer=quantizer))
    assert len(result.partition_tags) == 1
    assert compare(parts(result)[0]).steps <= 1


def test_sixteen_bit_activations() -> None:
    config = get_symmetric_a16w8_quantization_config()
    result = partitioned(quantized(Net(), INPUT, config))
    (part,) = parts(result)
    assert {n.meta["val"].dtype for n in part.graph.nodes if n.name in _user_inputs(part)} == {
        torch.int16
    }
    # Steps are 256 times finer: what rounds differently in one layer is seen in the next.
    assert compare(part).steps <= 16


FOUR_BITS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "conv": (nn.Conv2d(8, 16, 3, padding=1), (1, 8, 7, 6)),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 7, 6)),
    "transposed": (nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1), (1, 8, 5, 6)),
    "linear": (nn.Linear(24, 10), (3, 24)),
}


@pytest.mark.parametrize("name", FOUR_BITS)
def test_four_bit_weights_are_int4(name: str) -> None:
    """In the TOSA graph, in the reference model, and in what Vela makes of it."""
    torch.manual_seed(0)
    module, shape = FOUR_BITS[name]
    config = get_symmetric_quantization_config(True, weight_qmin=-7, weight_qmax=7)
    program = quantized(module, (torch.randn(shape),), config)
    for family, target in SPECS.items():
        (part,) = parts(partitioned(program, family))
        found = compare(part)
        assert found.steps <= 1
        assert tosa.INT4 in _weight_types(found.tosa)
        assert_simulated(found, target)
    (part,) = parts(partitioned(quantized(module, (torch.randn(shape),))))
    assert tosa.INT4 not in _weight_types(compare(part).tosa)


def _weight_types(graph: bytes) -> set[str]:
    """The types of a TOSA graph's tensors."""
    from tosa.DType import DType
    from tosa.TosaGraph import TosaGraph

    names = {number: name for name, number in vars(DType).items() if isinstance(number, int)}
    block = TosaGraph.GetRootAs(graph, 0).Regions(0).Blocks(0)
    return {names[block.Tensors(i).Type()] for i in range(block.TensorsLength())}


def test_what_is_quantized_to_32_bits_says_so_for_what_is_beside_it() -> None:
    def wide(x: torch.Tensor) -> torch.Tensor:
        x = QD.quantize_per_tensor.default(x, 1 / 64, 0, -128, 127, torch.int8)
        x = QD.dequantize_per_tensor.default(x, 1 / 64, 0, -128, 127, torch.int8)
        scale, limit = 2.0**-20, 2**31 - 1
        y = QD.quantize_per_tensor.default(x.sigmoid(), scale, 0, -limit, limit, torch.int32)
        y = QD.dequantize_per_tensor.default(y, scale, 0, -limit, limit, torch.int32)
        y = QD.quantize_per_tensor.default(y * 0.5, 1 / 256, 0, -128, 127, torch.int8)
        return QD.dequantize_per_tensor.default(y, 1 / 256, 0, -128, 127, torch.int8)

    edge = edgewise.to_edge_transform_and_lower(
        export(Fn(wide), (torch.zeros(4),)),
        partitioner=[EthosUPartitioner(EthosUCompileSpec("ethos-u85-256"))],
    )
    reasons = {n.operator: n.refusals for n in edge.delegation_report().nodes}
    for operator in ("aten.sigmoid.default", "aten.mul.Scalar"):
        (refusal,) = reasons[operator]
        assert (refusal.rule, refusal.got) == ("quantized to int8 or int16", "int32")


def test_a_module_kept_in_float_stays_outside() -> None:
    quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128")).set_module_name("second", None)
    result = partitioned(quantized(Net(), INPUT, quantizer=quantizer))
    assert [n for n in result.refusals if n.startswith("conv")]
    assert len(result.partition_tags) == 2


def test_mixed_with_xnnpack_in_one_file() -> None:
    program = quantized(Interrupted(), INPUT)
    spec = EthosUCompileSpec("ethos-u55-128")
    edge = edgewise.to_edge_transform_and_lower(
        program, partitioner=[EthosUPartitioner(spec), XnnpackPartitioner()]
    )
    buffer = edge.to_executorch().buffer
    (plan,) = read(buffer).program.execution_plan
    assert {d.id for d in plan.delegates} == {"EthosUBackend", "XnnpackBackend"}
    with torch.no_grad():
        expected = program.module()(*INPUT)
    ((found,),) = run_ours(buffer, INPUT)
    # Steps of the last quantization are below 1 % of the largest output; one or two of them.
    assert_close([found], [expected], rel=0, floor=0.02 * float(expected.abs().max()))


@pytest.mark.peer
@pytest.mark.parametrize("family", SPECS)
def test_payload_is_the_peers(family: str, capfd: pytest.CaptureFixture[str]) -> None:
    from executorch.backends.arm.arm_vela import vela_compile

    spec = EthosUCompileSpec(SPECS[family])
    program = quantized(Net(), INPUT)
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    file = read(edge.to_executorch().buffer)
    (delegate,) = file.program.execution_plan[0].delegates
    assert delegate.id == "EthosUBackend"
    mine = bytes(file.segments[delegate.processed.index])
    (part,) = parts(partitioned(program, family))
    tosa = build(part, family).serialize()
    assert vela_compile(tosa, list(spec.compiler_flags)).processed_bytes == mine
    assert len(mine) % 16 == 0
    assert file.program.segments[delegate.processed.index].offset % 16 == 0
    keys = {s.key: bytes(s.value) for s in delegate.compile_specs}
    assert keys["target"] == SPECS[family].encode()
    assert keys["output_format"] == b"vela"


BAD_SPECS = {
    "target": ({"target": "ethos-u55-100"}, ValueError, "ethos-u55-32, .*; got 'ethos-u55-100'"),
    "system_config": (
        {"system_config": "Ethos_U55_Low"},
        EdgewiseError,
        "system_config must be one that .*Ethos_U55_High_End_Embedded",
    ),
    "another family's": (
        {"system_config": "Ethos_U85_SYS_DRAM_Mid"}, ValueError, "must describe an U55",
    ),
    "no memory for the arena": (
        {"memory_mode": "Dedicated_Sram"}, EdgewiseError, "arena_mem_area .* got OffChipFlash",
    ),
    "memory_mode": ({"memory_mode": "None"}, EdgewiseError, "one that .*Sram_Only"),
    "flag": ({"extra_flags": ["--turbo"]}, EdgewiseError, "unrecognized arguments: --turbo"),
    "text": ({"extra_flags": "--optimise=Size"}, TypeError, "must be a list of flags"),
    "blocks outside": (
        {"external_block_placements": {"cmd_data": "x"}}, ValueError, "stay in the .pte file",
    ),
    "file": ({"config_ini": "none.ini"}, EdgewiseError, "config_ini must be a readable"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_SPECS)
def test_bad_compile_spec(name: str) -> None:
    changes, error, message = BAD_SPECS[name]
    with pytest.raises(error, match=message):
        EthosUCompileSpec(**{"target": "ethos-u55-128", **changes})


def test_compile_spec_survives_the_file() -> None:
    spec = EthosUCompileSpec(
        "ethos-u65-512", memory_mode="Sram_Only", extra_flags=["--optimise=Size"]
    )
    again = EthosUCompileSpec.from_list(spec.to_list())
    assert again == spec
    assert again.extra_flags == ["--optimise=Size"]
    assert all(isinstance(s, CompileSpec) for s in spec.to_list())
    assert spec.tosa_spec == "TOSA-1.0+INT+int16+int4+u55"


def test_compile_spec_as_the_peer_takes_it() -> None:
    plain = EthosUCompileSpec("ethos-u85-256")
    assert EthosUCompileSpec("Ethos-U85-256", config_ini=None) == plain
    assert not plain.get_output_order_workaround()
    changed = EthosUCompileSpec("ethos-u85-256").set_output_order_workaround(True)
    assert "ouput_reorder_workaround" in {s.key for s in changed.to_list()}
    again = EthosUCompileSpec.from_list(changed.to_list())
    assert again == changed
    assert again.get_output_order_workaround()


def test_compile_refuses_other_schemes() -> None:
    with pytest.raises(ValueError, match="computes in integers; got int8-dynamic"):
        edgewise.compile(Net(), INPUT, backend="ethos-u55-128", quantize="int8-dynamic")
    with pytest.raises(ValueError, match=r"got .ethos-u99.; try .ethos-u55"):
        edgewise.compile(Net(), INPUT, backend="ethos-u99")


def test_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    (part,) = parts(partitioned(quantized(Net(), INPUT)))
    monkeypatch.setattr("edgewise.backends.ethosu.lowering.extra.import_module", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install edgewise\[ethosu\]"):
        build(part, "U85")
