"""Which configuration a node gets, and what is fused into what."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from annotations import Layers, config, observed, observers, prepare
from torch import nn

from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize import QuantizationConfig, get_symmetric_quantization_config

aten = torch.ops.aten
ROWS = (torch.randn(3, 8),)
IMAGE = (torch.randn(1, 8, 6, 6),)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))


class Net(nn.Module):
    """Linear layers inner.one, inner.two, outer; a tanh and an addition."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.outer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x)) + x


STATIC = config()
PER_TENSOR = config(is_per_channel=False)
DYNAMIC = config(is_dynamic=True)


def weights(quantizer: XNNPACKQuantizer) -> dict[str, str]:
    """How each linear layer is quantized: "static", "tensor" for one scale, "dynamic"."""
    graph = prepare(Net(), ROWS, quantizer)
    found = {}
    for node in graph.graph.nodes:
        if node.target != aten.linear.default or node.args[1].op != "call_module":
            continue
        weight = graph.get_submodule(str(node.args[1].target))
        activation = graph.get_submodule(str(node.args[0].target))
        per_channel = weight.qscheme == torch.per_channel_symmetric
        kind = "dynamic" if getattr(activation, "is_dynamic", False) else "static"
        path = list(node.meta["nn_module_stack"].values())[-1][0]
        found[path] = kind if per_channel else "tensor"
    return found


ALL = {"inner.one": "static", "inner.two": "static", "outer": "static"}


def test_global_is_for_all() -> None:
    assert weights(XNNPACKQuantizer().set_global(STATIC)) == ALL
    assert weights(XNNPACKQuantizer()) == {}


def test_operator_wins_over_global() -> None:
    quantizer = XNNPACKQuantizer().set_global(STATIC)
    assert weights(quantizer.set_operator_type(aten.linear.default, DYNAMIC)) == dict.fromkeys(
        ALL, "dynamic"
    )
    assert weights(quantizer.set_operator_type(aten.linear.default, None)) == {}


def test_type_wins_over_operator() -> None:
    quantizer = XNNPACKQuantizer().set_operator_type(aten.linear.default, DYNAMIC)
    quantizer.set_module_type(Inner, PER_TENSOR)
    assert weights(quantizer) == {"inner.one": "tensor", "inner.two": "tensor", "outer": "dynamic"}


def test_an_inner_type_wins_over_an_outer_one() -> None:
    quantizer = XNNPACKQuantizer().set_module_type(Inner, None).set_module_type(nn.Linear, STATIC)
    assert weights(quantizer) == ALL


def test_name_wins_over_type_and_the_longest_name_over_others() -> None:
    quantizer = XNNPACKQuantizer().set_module_type(nn.Linear, STATIC)
    quantizer.set_module_name("inner.two", DYNAMIC).set_module_name("inner", PER_TENSOR)
    assert weights(quantizer) == {"inner.one": "tensor", "inner.two": "dynamic", "outer": "static"}


def test_none_keeps_float() -> None:
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_name("inner", None)
    assert weights(quantizer) == {"outer": "static"}
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_type(nn.Linear, None)
    assert weights(quantizer) == {}


def test_a_name_is_not_a_prefix_of_another_name() -> None:
    model = Layers(lambda x, a, b: b(a(x)), fc=nn.Linear(8, 8), fc2=nn.Linear(8, 8))
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_name("fc", None)
    # What `fc` returns is quantized because `fc2` reads it.
    assert observed(prepare(model, ROWS, quantizer)) == {"linear": ">o,iw>o"}


def test_a_module_that_is_called_twice_is_named_once() -> None:
    model = Layers(lambda x, a: a(a(x)), fc=nn.Linear(8, 8))
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_name("fc", None)
    assert observed(prepare(model, ROWS, quantizer)) == {}


def test_a_filter_restricts_all_other_settings() -> None:
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_name("inner", DYNAMIC)
    quantizer.set_filter_function(lambda node: "linear" in node.name and node.name != "linear_1")
    assert weights(quantizer) == {"inner.one": "dynamic", "outer": "static"}


def test_settings_are_checked() -> None:
    with pytest.raises(TypeError, match="must be a QuantizationConfig or None; got str"):
        XNNPACKQuantizer().set_global("int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be one that is quantized; got aten\.exp\.default"):
        XNNPACKQuantizer().set_operator_type(aten.exp.default, STATIC)


def test_a_setting_that_matches_nothing_is_told() -> None:
    with pytest.warns(UserWarning, match="inner.three matches none"):
        prepare(Net(), ROWS, XNNPACKQuantizer().set_module_name("inner.three", STATIC))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*XNNPACKQuantizer.*")
        prepare(Net(), ROWS, XNNPACKQuantizer().set_module_name("inner.two", STATIC))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"act_qmin": 5}, "act_qmin < act_qmax must lie in -128..127 and hold 0; got 5..127"),
        ({"act_qmin": 7, "act_qmax": 7}, "got 7..7"),
        ({"act_qmax": 128}, "got -128..128"),
        ({"weight_qmin": -129}, "weight_qmin < weight_qmax .* got -129..127"),
        ({"weight_qmin": 3, "weight_qmax": -3}, "got 3..-3"),
    ],
)
def test_ranges_are_checked(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_symmetric_quantization_config(**options)


def test_ranges_reach_the_observers() -> None:
    narrow = config(act_qmin=-100, act_qmax=50, weight_qmin=-7, weight_qmax=7)
    graph = prepare(nn.Linear(8, 4), ROWS, XNNPACKQuantizer().set_global(narrow))
    before, after = observers(graph, "linear")
    ranges = {(o.quant_min, o.quant_max) for o in [*before, after]}
    assert ranges == {(-100, 50), (-7, 7)}


def test_the_config_is_torchaos() -> None:
    assert isinstance(STATIC, QuantizationConfig)
    assert STATIC.input_activation == STATIC.output_activation
    assert DYNAMIC.output_activation is None
    assert STATIC.bias is None


FUSED: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, str]]] = {
    "linear relu": (
        nn.Sequential(nn.Linear(8, 4), nn.ReLU()),
        ROWS,
        {"linear": "iw>", "relu": ">o"},
    ),
    "linear relu in place": (
        nn.Sequential(nn.Linear(8, 4), nn.ReLU(inplace=True)),
        ROWS,
        {"linear": "iw>", "relu_": ">o"},
    ),
    "conv relu6": (
        Layers(lambda x, c: F.relu6(c(x)), conv=nn.Conv2d(8, 4, 3)),
        IMAGE,
        {"conv2d": "iw>", "relu6": ">o"},
    ),
    "conv hardtanh": (
        nn.Sequential(nn.Conv2d(8, 4, 3), nn.Hardtanh()),
        IMAGE,
        {"conv2d": "iw>", "hardtanh": ">o"},
    ),
    "conv clamp": (
        Layers(lambda x, c: c(x).clamp(-1, 1), conv=nn.Conv2d(8, 4, 3)),
        IMAGE,
        {"conv2d": "iw>", "clamp": ">o"},
    ),
    # prepare_pt2e folds the normalisation before it asks the quantizer.
    "conv norm": (
        nn.Sequential(nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)),
        IMAGE,
        {"conv2d": "iw>o"},
    ),
    "conv norm relu": (
        nn.Sequential(nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        IMAGE,
        {"conv2d": "iw>", "relu": ">o"},
    ),
    "conv1d norm relu": (
        nn.Sequential(nn.Conv1d(6, 4, 3), nn.BatchNorm1d(4), nn.ReLU()),
        (torch.randn(1, 6, 8),),
        {"conv1d": "iw>", "relu": ">o"},
    ),
    "add relu": (Layers(lambda x: (x + 2 * x).relu()), ROWS, {"add": "ii>", "relu": ">o"}),
    "mul relu": (Layers(lambda x: (x * x.tanh()).relu()), ROWS, {"mul": "ii>", "relu": ">o"}),
}


@pytest.mark.parametrize("name", FUSED)
def test_nothing_is_quantized_between_what_is_fused(name: str) -> None:
    model, inputs, wanted = FUSED[name]
    found = observed(prepare(model, inputs))
    assert {k: v for k, v in found.items() if k in wanted} == wanted


@pytest.mark.parametrize("after", ["relu", "relu_"])
def test_a_clamp_belongs_to_what_is_quantized_if_nothing_is_said_of_it(after: str) -> None:
    """A setting for linear layers alone says nothing against the ReLU behind."""
    model = Layers(lambda x, fc: getattr(torch, after)(fc(x)), fc=nn.Linear(8, 4))
    wanted = {"linear": "iw>", after: ">o"}
    by_type = XNNPACKQuantizer().set_module_type(nn.Linear, STATIC)
    assert observed(prepare(model, ROWS, by_type)) == wanted
    by_name = XNNPACKQuantizer().set_module_name("fc", STATIC)
    assert observed(prepare(model, ROWS, by_name)) == wanted
    by_operator = XNNPACKQuantizer().set_operator_type(aten.linear.default, STATIC)
    assert observed(prepare(model, ROWS, by_operator)) == wanted


def test_a_clamp_that_is_kept_in_float_is_not_fused() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    quantizer = XNNPACKQuantizer().set_global(STATIC).set_module_name("1", None)
    assert observed(prepare(model, ROWS, quantizer)) == {"linear": "iw>o", "relu": "i>"}
    quantizer = XNNPACKQuantizer().set_global(STATIC)
    quantizer.set_filter_function(lambda node: node.target != aten.relu.default)
    assert observed(prepare(model, ROWS, quantizer)) == {"linear": "iw>o", "relu": "i>"}


def test_a_result_that_is_read_elsewhere_is_quantized_before_the_clamp() -> None:
    model = Layers(lambda x, fc: (lambda y: (y.relu(), y))(fc(x)), fc=nn.Linear(8, 4))
    found = observed(prepare(model, ROWS))
    assert found == {"linear": "iw>o", "relu": "i>o"}


def test_two_clamps_are_one_fused_and_one_of_the_same_scale() -> None:
    model = Layers(lambda x, fc: F.relu(fc(x)).clamp(max=0.5), fc=nn.Linear(8, 4))
    assert observed(prepare(model, ROWS)) == {"linear": "iw>", "relu": ">o", "clamp": "i>o"}


def test_integers_are_moved_as_integers_behind_what_alone_is_set() -> None:
    """A setting for one operator: what only moves its result goes along, but for a None."""
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Softmax(-1))
    quantizer = XNNPACKQuantizer().set_operator_type(aten.conv2d.default, STATIC)
    found = observed(prepare(model, IMAGE, quantizer))
    assert found.keys() - {"softmax"} == {"conv2d", "max_pool2d", "flatten"}
    quantizer.set_module_name("1", None)
    assert observed(prepare(model, IMAGE, quantizer)).keys() - {"max_pool2d"} == {"conv2d"}
