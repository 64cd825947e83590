"""Options of the partitioner: what each changes in the program."""

from __future__ import annotations

import logging
import time
from typing import Any

import by_rows
import pytest
import quantized
import torch
import torch.nn.functional as F
from quantized_cases import DynamicLinear, qd
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewise
from edgewise.backends.xnnpack import (
    ConfigPrecisionType,
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackFloatingPointPartitioner,
    XnnpackPartitioner,
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from support import Fn, assert_close, eager64, export, operators, run_ours

FP32 = ConfigPrecisionType.FP32
STATIC = ConfigPrecisionType.STATIC_QUANT
DYNAMIC = ConfigPrecisionType.DYNAMIC_QUANT

Q, DQ = "quantized_decomposed::quantize_per_tensor", "quantized_decomposed::dequantize_per_tensor"
CHOOSE = "quantized_decomposed::choose_qparams.Tensor_out"
DQ_WEIGHT = "quantized_decomposed::dequantize_per_channel.out"


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.Sigmoid()
    )


FLOAT_OPTIONS: dict[str, tuple[Any, list[str]]] = {
    "all": (XnnpackPartitioner(), ["delegate"]),
    "no row": (
        XnnpackPartitioner([]),
        ["aten::addmm.out", "aten::relu.out", "aten::addmm.out", "aten::sigmoid.out"],
    ),
    "two rows": (XnnpackPartitioner(["linear", "relu"]), ["delegate", "aten::sigmoid.out"]),
    "one row": (
        XnnpackPartitioner(("relu",)),
        ["aten::addmm.out", "delegate", "aten::addmm.out", "aten::sigmoid.out"],
    ),
    "its precision": (XnnpackPartitioner(config_precisions=FP32), ["delegate"]),
    "no node of the precision": (
        XnnpackPartitioner(config_precisions=[DYNAMIC, STATIC]),
        ["aten::addmm.out", "aten::relu.out", "aten::addmm.out", "aten::sigmoid.out"],
    ),
    "one delegate per operator": (XnnpackPartitioner(per_op_mode=True), ["delegate"] * 4),
    "floating point only": (XnnpackFloatingPointPartitioner(), ["delegate"]),
}


@pytest.mark.parametrize("name", FLOAT_OPTIONS)
def test_of_floating_point(name: str) -> None:
    partitioner, expected = FLOAT_OPTIONS[name]
    module, x = net(), (torch.randn(2, 4),)
    pte = quantized.lower(export(module, x), partitioner).buffer
    assert [o for o in operators(pte) if "permute" not in o] == expected
    assert_close(run_ours(pte, x)[0], eager64(module, x))


class Mixed(torch.nn.Module):
    """exp(dynamic linear(static add)): one operator of each precision."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = DynamicLinear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real = requantize(x, 0.05)
        return (self.linear(requantize((real + real).relu(), 0.06)) * 0.01).exp()


def requantize(x: torch.Tensor, scale: float) -> torch.Tensor:
    stored = qd.quantize_per_tensor(x, scale, 2, -128, 127, torch.int8)
    return qd.dequantize_per_tensor(stored, scale, 2, -128, 127, torch.int8)


OUTSIDE = {
    FP32: ["aten::mul.Scalar_out", "aten::exp.out"],
    STATIC: [f"{Q}.out", f"{DQ}.out", "aten::add.out", "aten::relu.out", f"{Q}.out", f"{DQ}.out"],
    DYNAMIC: [CHOOSE, f"{Q}.Tensor_out", f"{DQ}.Tensor_out", DQ_WEIGHT],
}
PRODUCT = ["aten::permute_copy.out", "aten::mm.out", "aten::linear.out"]


@pytest.mark.parametrize(
    ("partitioner", "taken", "delegates"),
    [
        (XnnpackPartitioner(), {FP32, STATIC, DYNAMIC}, 1),
        (XnnpackPartitioner(config_precisions=[STATIC, DYNAMIC]), {STATIC, DYNAMIC}, 1),
        (XnnpackPartitioner(config_precisions=[FP32, DYNAMIC]), {FP32, DYNAMIC}, 1),
        (XnnpackPartitioner(config_precisions=STATIC), {STATIC}, 1),
        (XnnpackPartitioner(config_precisions=(DYNAMIC,)), {DYNAMIC}, 1),
        (XnnpackDynamicallyQuantizedPartitioner(), {DYNAMIC}, 1),
        (XnnpackDynamicallyQuantizedPartitioner(configs=["linear"]), {DYNAMIC}, 1),
        (XnnpackPartitioner(["linear"]), {DYNAMIC}, 1),
        (XnnpackPartitioner(["mul", "exp"]), {FP32}, 1),
    ],
)
def test_of_mixed_precision(partitioner: Any, taken: set[Any], delegates: int) -> None:
    x = (torch.randn(3, 32),)
    exported = torch.export.export(Mixed().eval(), x)
    edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
    pte = edge.to_executorch().buffer
    found = [o for o in operators(pte) if o not in PRODUCT]
    expected = [o for p in (STATIC, DYNAMIC, FP32) if p not in taken for o in OUTSIDE[p]]
    assert sorted(o for o in found if o != "delegate") == sorted(expected)
    assert found.count("delegate") == delegates
    if partitioner.configs is None and len(taken) < 3:
        refused = edge.delegation_report().refused
        reasons = [r for n in refused for rs in n.reasons.values() for r in rs]
        assert any(r.startswith("a precision of `config_precisions`: ") for r in reasons)
    reference = by_rows.reference if DYNAMIC in taken else quantized.reference
    assert_close(run_ours(pte, x)[0], reference(exported, x))


@pytest.mark.parametrize("steps", [1, 2])
def test_floating_point_alone_takes_quantized_operators_too(steps: int) -> None:
    """The quantizations around them stay where they are; weights come dequantized."""
    partitioner = XnnpackFloatingPointPartitioner()
    x = (torch.randn(3, 32),)
    exported = torch.export.export(Mixed().eval(), x)
    if steps == 1:
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
    else:
        edge = edgewise.to_edge(exported).to_backend(partitioner)
    found = operators(edge.to_executorch().buffer)
    static = [f"{Q}.out", f"{DQ}.out"]
    dynamic = [CHOOSE, f"{Q}.Tensor_out", f"{DQ}.Tensor_out"]
    assert found == [*static, "delegate", *static, *dynamic, "delegate"]
    assert all(reason.startswith("a precision of `config_precisions`") for reason in reasons(edge))
    (want,) = quantized.reference(exported, x)
    assert_close(run_ours(edge.to_executorch().buffer, x)[0], [want])


SEQUENCES = {
    "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 2),
    "avg_pool1d that does not count padding": lambda x: F.avg_pool1d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4),
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", SEQUENCES)
def test_the_precision_of_integers_has_pooling_of_sequences(name: str, steps: int) -> None:
    """Pooling of images between two views, which belong to it."""
    x = (torch.randn(2, 6, 11),)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Fn(SEQUENCES[name]), x).module(), quantizer)
    prepared(*x)
    exported = torch.export.export(convert_pt2e(prepared), x)
    partitioner = XnnpackPartitioner(config_precisions=STATIC)
    if steps == 1:
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
    else:
        edge = edgewise.to_edge(exported).to_backend(partitioner)
    assert operators(edge.to_executorch().buffer) == ["delegate"]


@pytest.mark.parametrize("steps", [1, 2])
def test_the_precision_of_floats_leaves_out_what_is_quantized_at_run_time(steps: int) -> None:
    """What is between fixed scales it takes, as ExecuTorch's does."""
    partitioner = XnnpackPartitioner(config_precisions=FP32)
    x = (torch.randn(3, 32),)
    exported = torch.export.export(Mixed().eval(), x)
    if steps == 1:
        edge = edgewise.to_edge_transform_and_lower(exported, partitioner=[partitioner])
    else:
        edge = edgewise.to_edge(exported).to_backend(partitioner)
    static = [f"{Q}.out", f"{DQ}.out"]
    found = [o for o in operators(edge.to_executorch().buffer) if o not in PRODUCT]
    assert found == [*static, "delegate", *static, *OUTSIDE[DYNAMIC], "delegate"]


def reasons(edge: edgewise.EdgeProgramManager) -> list[str]:
    return [r for n in edge.delegation_report().refused for rs in n.reasons.values() for r in rs]


NON_STATIC: dict[str, tuple[torch.nn.Module, list[str]]] = {
    "a layer": (torch.nn.Linear(4, 3), ["weight", "bias"]),
    "without bias": (torch.nn.Linear(4, 3, bias=False), ["weight"]),
    "several": (net(), ["0.weight", "0.bias", "2.weight", "2.bias"]),
    "a matrix product": (Fn(lambda x, w: x @ w, w=torch.randn(4, 3)), ["w"]),
    "beside others": (
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)),
        ["0.weight", "0.bias"],
    ),
    "quantized": (DynamicLinear(4, 3), []),
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", NON_STATIC)
def test_weights_that_delegates_do_not_own(name: str, steps: int) -> None:
    module, held = NON_STATIC[name]
    x = (torch.randn(5, 4),)
    partitioner = XnnpackPartitioner(force_non_static_weights_for_f32_linear=True)
    program = export(module, x)
    if steps == 1:
        edge = edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner])
    else:
        edge = edgewise.to_edge(program).to_backend(partitioner)
    specs = edge.exported_program().graph_signature.input_specs
    assert sorted(str(s.target) for s in specs if s.target is not None) == sorted(held)
    pte = edge.to_executorch().buffer
    assert operators(pte) == ["delegate"]
    if held:
        assert_close(run_ours(pte, x)[0], eager64(module, x))


OF_A_LAYER = ["bias_hh_l0", "bias_ih_l0", "weight_hh_l0", "weight_ih_l0"]
RECURRENT: dict[str, tuple[torch.nn.Module, tuple[int, ...], list[str]]] = {
    "lstm": (torch.nn.LSTM(4, 3), (5, 2, 4), OF_A_LAYER),
    "lstm, batch first": (torch.nn.LSTM(4, 3, batch_first=True), (2, 5, 4), OF_A_LAYER),
    "lstm, projected": (torch.nn.LSTM(4, 3, proj_size=2), (3, 1, 4), [*OF_A_LAYER, "weight_hr_l0"]),
    "gru, both ways": (
        torch.nn.GRU(4, 3, bidirectional=True),
        (3, 2, 4),
        [name + way for name in OF_A_LAYER for way in ("", "_reverse")],
    ),
    "rnn": (torch.nn.RNN(4, 3), (3, 2, 4), OF_A_LAYER),
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", RECURRENT)
def test_weights_of_recurrent_layers_that_delegates_do_not_own(name: str, steps: int) -> None:
    module, shape, held = RECURRENT[name]
    x = (torch.randn(shape),)
    partitioner = XnnpackPartitioner(force_non_static_weights_for_f32_linear=True)
    program = export(module, x)
    if steps == 1:
        edge = edgewise.to_edge_transform_and_lower(program, partitioner=[partitioner])
    else:
        edge = edgewise.to_edge(program).to_backend(partitioner)
    specs = edge.exported_program().graph_signature.input_specs
    assert sorted(str(s.target) for s in specs if s.target is not None) == sorted(held)
    pte = edge.to_executorch().buffer
    assert operators(pte) == ["delegate"]
    assert_close(run_ours(pte, x)[0], eager64(module, x))


def test_per_op_mode_keeps_quantizations_with_their_operator() -> None:
    x = (torch.randn(3, 32),)
    exported = torch.export.export(Mixed().eval(), x)
    pte = quantized.lower(exported, XnnpackPartitioner(per_op_mode=True)).buffer
    # The first quantization, which belongs to no operator; add and relu; linear; mul; exp. The
    # dequantization that the linear layer's choice of scales reads is its own.
    delegates = [sorted(quantized.kinds(g)) for g in quantized.payloads(pte)]
    assert operators(pte) == ["delegate"] * len(delegates)
    assert delegates == [
        ["Convert"],
        ["Add"],
        ["Convert"],
        ["Convert", "FullyConnected"],
        ["Multiply"],
        ["Exp"],
    ]
    assert_close(run_ours(pte, x)[0], by_rows.reference(exported, x))


def test_per_op_mode_of_a_convolution_is_one_integer_node() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 1)
    )
    exported = quantized.pt2e(module, (torch.randn(1, 3, 8, 8),))
    pte = quantized.lower(exported, XnnpackPartitioner(per_op_mode=True)).buffer
    graphs = quantized.payloads(pte)
    products = [k for g in graphs for k, types in quantized.node_types(g) if types[0] == 3]
    assert products.count("Conv2d") == 2
    assert not quantized.float_kinds(pte)


def test_per_op_mode_is_linear() -> None:
    """Twice the operators take about twice the time (three times is allowed)."""

    def seconds(count: int) -> float:
        module = Fn(lambda x: chain(x, count))
        exported = torch.export.export(module, (torch.randn(2),))
        edge = edgewise.to_edge_transform_and_lower(exported).exported_program()
        start = time.perf_counter()
        result = XnnpackPartitioner(per_op_mode=True).partition(edge)
        elapsed = time.perf_counter() - start
        assert len(result.partition_tags) == count
        return elapsed

    seconds(10)
    small, large = min(seconds(300) for _ in range(2)), min(seconds(1200) for _ in range(2))
    assert large <= 4 * 3 * small


def chain(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = x.exp()
    return x


def test_verbose_says_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("edgewise").setLevel(logging.WARNING)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.CELU(0.5), torch.nn.Linear(4, 4))
    exported = export(Fn(lambda x: module(x).cumsum(0)), (torch.randn(2, 4),))
    quantized.lower(exported, XnnpackPartitioner(verbose=True))
    said = capsys.readouterr().err
    assert "[xnnpack] xnnpack_0: " in said
    assert "aten.linear.default" in said
    assert said.count("aten.cumsum.default: an operator of the XNNPACK table") <= 1
    assert "not delegated: " in said
    quantized.lower(exported, XnnpackPartitioner())
    assert capsys.readouterr().err == ""


def test_verbose_logs_where_logging_is_set_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edgewise.backends.xnnpack"):
        quantized.lower(export(net(), (torch.randn(2, 4),)), XnnpackPartitioner(verbose=True))
    assert any(r.message.startswith("xnnpack_0: ") for r in caplog.records)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"configs": ["convolution"]}, ValueError, "configs must be names of the operator table"),
        ({"configs": "conv2d"}, TypeError, "configs must be a list of names; got 'conv2d'"),
        ({"configs": [STATIC]}, TypeError, "configs must be a list of names"),
        ({"config_precisions": "FP32"}, TypeError, "must be of ConfigPrecisionType; got 'FP32'"),
        ({"config_precisions": [STATIC, 1]}, TypeError, "must be of ConfigPrecisionType; got 1"),
        ({"config_precisions": []}, ValueError, "must name at least one precision; got none"),
        ({"per_op_mode": 1}, TypeError, "per_op_mode must be True or False; got 1"),
        ({"verbose": "yes"}, TypeError, "verbose must be True or False; got 'yes'"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="XnnpackPartitioner") as caught:
        XnnpackPartitioner(**options)
    assert message in str(caught.value)
