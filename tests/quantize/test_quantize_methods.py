"""Methods that keep accuracy: against the equations of their papers, on small nets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from annotations import sqnr_db
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import edgewise
from edgewise.backends.ethosu import EthosUQuantizer
from edgewise.backends.neutron import NeutronQuantizer
from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from edgewise.quantize import quantize
from edgewise.quantize.methods import (
    adaround,
    awq,
    correct_biases,
    equalize,
    gptq,
    scale_outputs,
    smooth,
    with_ranges,
)
from edgewise.quantize.methods.activation_aware import rounded_in_groups
from edgewise.quantize.methods.adaptive_rounding import rectified_sigmoid
from edgewise.quantize.methods.float_sums import annotated_copy, float_neighbours
from edgewise.quantize.methods.gptq_rounding import round_in_turn
from edgewise.quantize.methods.layers import layers_of
from edgewise.quantize.methods.moments import moments
from edgewise.quantize.methods.ranges import entropy_bins, percentile_bins

Inputs = tuple[torch.Tensor, ...]


def static() -> XNNPACKQuantizer:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


class PreNorm(nn.Module):
    """A normalization with outliers that a linear layer alone reads, and one with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a = nn.LayerNorm(16), nn.Linear(16, 16)
        self.second, self.b = nn.LayerNorm(16), nn.Linear(16, 16)
        with torch.no_grad():
            self.first.weight[3], self.second.weight[5] = 40.0, 30.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(x + self.a(self.first(x)))
        return torch.softmax(self.b(F.gelu(y)) + self.b(y), -1)


class Residual(nn.Module):
    """As in BERT: a sum and what it adds have outliers, and a normalization reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.a, self.b = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.last, self.head = nn.LayerNorm(32), nn.Linear(32, 8)
        with torch.no_grad():
            self.first.weight[3] = 20.0
            self.b.weight[7] *= 100

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.head(self.last(y + self.b(F.gelu(self.a(y)))))


class Chain(nn.Module):
    """Convolutions of all kinds between homogeneous operators; channels of very different size."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, groups=8)
        self.c = nn.ConvTranspose2d(8, 6, 2)
        self.d = nn.Conv2d(6, 4, 1, bias=False)
        with torch.no_grad():
            self.norm.weight.copy_(torch.logspace(-2, 1, 8))
            self.norm.running_mean.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.a(x))), 2)
        x = self.c(F.leaky_relu(self.b(x)))
        return self.d(F.relu(x))


def exported(model: nn.Module, inputs: Inputs) -> torch.fx.GraphModule:
    with torch.no_grad():
        return torch.export.export(model.eval(), inputs).module()


def batches_of(*shape: int, count: int = 4) -> list[Inputs]:
    torch.manual_seed(1)
    return [(torch.randn(shape),) for _ in range(count)]


REWRITES: dict[str, tuple[type[nn.Module], tuple[int, ...], Callable[..., bool]]] = {
    "smooth": (PreNorm, (4, 16), lambda g, b: smooth(g, b)),
    "smooth with products": (Residual, (4, 32), lambda g, b: smooth(g, b, products=True)),
    "equalize": (Chain, (2, 3, 12, 12), lambda g, b: equalize(g)),
    "scale outputs": (Residual, (4, 32), lambda g, b: scale_outputs(g, b, static)),
}


@pytest.mark.parametrize("case", REWRITES)
def test_rewrites_compute_the_same(case: str) -> None:
    torch.manual_seed(0)
    build, shape, rewrite = REWRITES[case]
    model, batches = build(), batches_of(*shape)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = exported(model, batches[0])
    assert rewrite(graph, batches)
    with torch.no_grad():
        for (x,) in batches:
            wanted = model(x)
            assert torch.allclose(graph(x), wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
    # The model's own parameters are others' too.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_smoothing_by_equation_4() -> None:
    torch.manual_seed(0)
    model, batches = PreNorm(), batches_of(4, 16)
    graph = exported(model, batches[0])
    weight = model.first.weight.detach()
    x = torch.cat([model.first(x).detach() for (x,) in batches]).abs().amax(0)
    w = model.a.weight.detach().abs().amax(0)
    factors = x**0.75 / w**0.25
    assert smooth(graph, batches, alpha=0.75)
    torch.testing.assert_close(graph.first.weight.detach(), weight / factors)
    torch.testing.assert_close(graph.a.weight.detach(), model.a.weight.detach() * factors)
    # The other is read by gelu, too: without products it stays.
    assert torch.equal(graph.second.weight, model.second.weight)


def test_smoothing_leaves_even_channels_and_other_readers_alone() -> None:
    even = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4))
    batches = batches_of(64, 16)
    assert not smooth(exported(even, batches[0]), batches)
    assert smooth(exported(even, batches[0]), batches, outlier=1.0)
    other = nn.Sequential(nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    assert not smooth(exported(other, batches[0]), batches, outlier=1.0, products=True)
    with pytest.raises(ValueError, match=r"alpha must lie in 0 to 1; got 1.5"):
        smooth(exported(even, batches[0]), batches, alpha=1.5)


def test_equalization_by_equation_11() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight *= torch.logspace(-2, 2, 6)[:, None]
    r1 = model[0].weight.detach().abs().amax(1)
    r2 = model[2].weight.detach().abs().amax(0)
    graph = exported(model, (torch.randn(2, 4),))
    assert equalize(graph)
    first, second = layers_of(graph)
    wanted = (r1 * r2).sqrt()
    torch.testing.assert_close(first.largest_by_output(), wanted)
    torch.testing.assert_close(second.largest_by_input(), wanted)
    s = (r1 * r2).sqrt() / r2  # the paper's s_i = sqrt(r1_i r2_i) / r2_i
    torch.testing.assert_close(first.stored, model[0].weight.detach() / s[:, None])
    torch.testing.assert_close(first.stored_bias, model[0].bias.detach() / s)


@pytest.mark.parametrize("between", [nn.GELU(), nn.ReLU6(), nn.Sigmoid(), nn.Hardswish()])
def test_only_homogeneous_operators_are_equalized_across(between: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 6), between, nn.Linear(6, 3))
    assert not equalize(exported(model, (torch.randn(2, 4),)))


def test_equalization_keeps_its_hands_off_shared_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(F.relu(self.a(x)))

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = F.relu(self.a(x))
            return self.b(y), y

    for model in (Twice(), Read()):
        assert not equalize(exported(model, (torch.randn(2, 4),)))


def observed(
    model: nn.Module, batches: Sequence[Inputs], quantizer: Any = None
) -> torch.fx.GraphModule:
    prepared = prepare_pt2e(exported(model, batches[0]), quantizer or static())
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
    return prepared


def rounded(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.abs().flatten(1).amax(1) / 127
    scale = scale.reshape(-1, *[1] * (weight.dim() - 1))
    return (weight / scale).round() * scale


@pytest.mark.parametrize("groups", [1, 4])
def test_bias_correction_by_equation_17(groups: int) -> None:
    torch.manual_seed(0)
    model, shape = nn.Conv2d(4, 8, 3, groups=groups, bias=groups == 1), (2, 4, 9, 9)
    batches = [(x + torch.arange(4.0).reshape(-1, 1, 1),) for (x,) in batches_of(*shape)]
    prepared = observed(model, batches)
    assert correct_biases(prepared, batches)
    weight = model.weight.detach()
    error = (rounded(weight) - weight).double()
    mean = torch.cat([x for (x,) in batches]).double().mean((0, 2, 3))
    wanted = -F.conv2d(mean.reshape(1, 4, 1, 1), error.sum((2, 3), keepdim=True), groups=groups)
    own = model.bias.detach().double() if model.bias is not None else 0
    (node,) = (n for n in prepared.graph.nodes if "conv" in str(n.target) and n.op != "call_module")
    got = prepared.get_parameter(str(node.args[2].target))
    torch.testing.assert_close(got.double(), own + wanted.flatten(), rtol=1e-5, atol=1e-7)
    (x,) = batches[0]
    assert sqnr_db(model(x).detach(), convert_pt2e(prepared)(x)) > 30


def test_the_corrected_bias_takes_the_mean_error_away() -> None:
    torch.manual_seed(0)
    model, batches = nn.Linear(64, 32), [(x + 3,) for (x,) in batches_of(256, 64)]
    inputs = torch.cat([x for (x,) in batches])
    wanted = model(inputs).detach()

    def shift(correct: bool) -> float:
        prepared = observed(model, batches)
        if correct:
            correct_biases(prepared, batches)
        (node,) = (n for n in prepared.graph.nodes if n.target is torch.ops.aten.linear.default)
        bias = prepared.get_parameter(str(node.args[2].target))
        got = F.linear(inputs, rounded(model.weight.detach()), bias).detach()
        return float((got - wanted).mean(0).abs().amax())

    assert shift(True) < 1e-5 < 1e-3 < shift(False)


# --- rounding -----------------------------------------------------------------------------


def layer_error(model: nn.Linear, converted: Any, inputs: torch.Tensor) -> float:
    with torch.no_grad():
        return float((converted(inputs) - model(inputs)).square().mean())


@pytest.mark.parametrize("method", [adaround, gptq])
@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_for_the_layers_result(method: Callable[..., bool], bits: int) -> None:
    """Activations that go together let errors make up for each other."""
    torch.manual_seed(0)
    limit = 2 ** (bits - 1) - 1
    model = nn.Linear(32, 16)
    mix = torch.randn(6, 32)
    batches = [(torch.randn(64, 6) @ mix + 0.05 * torch.randn(64, 32),) for _ in range(8)]
    inputs = torch.cat([x for (x,) in batches])
    config = get_symmetric_quantization_config(True, weight_qmin=-limit, weight_qmax=limit)
    found = []
    for how in (None, method):
        prepared = observed(model, batches, XNNPACKQuantizer().set_global(config))
        if how is not None:
            assert how(prepared, batches)
        name = next(n.target for n in prepared.graph.nodes if "weight" in n.name)
        weight = prepared.get_parameter(str(name)).detach()
        scale = model.weight.detach().abs().amax(1, keepdim=True) / limit
        steps = weight / scale
        if how is None:
            steps = steps.round()
        else:  # integers of the old scales
            assert torch.allclose(steps, steps.round(), atol=1e-3)
            assert steps.round().abs().max() <= limit
        change = steps.round() * scale - model.weight.detach()
        found.append(float((inputs @ change.T).square().mean()))
    assert found[1] < 0.6 * found[0]


def test_adaptive_rounding_has_the_papers_sigmoid() -> None:
    v = torch.linspace(-4, 4, 33)
    wanted = ((1.1 - -0.1) * torch.sigmoid(v) + -0.1).clamp(0, 1)
    torch.testing.assert_close(rectified_sigmoid(v), wanted)


def test_gptq_is_the_papers_update_without_order() -> None:
    """Against the equations with an inverse that is taken anew for each column: the paper's (2)."""
    torch.manual_seed(0)
    weight, inputs = torch.randn(3, 8, dtype=torch.float64), torch.randn(40, 8, dtype=torch.float64)
    inputs = inputs * torch.linspace(2, 1, 8, dtype=torch.float64)
    second = inputs.T @ inputs / 40
    damped = second + torch.eye(8, dtype=torch.float64) * 0.01 * second.diagonal().mean()
    order = damped.diagonal().argsort(descending=True)
    scale = torch.full_like(weight, 0.3)
    rest, wanted = weight.clone(), torch.empty_like(weight)
    left = order.tolist()
    while left:
        j = left[0]
        inverse = torch.linalg.inv(damped[left][:, left])
        wanted[:, j] = (rest[:, j] / 0.3).round().clamp(-7, 7)
        error = (rest[:, j] - wanted[:, j] * 0.3) / inverse[0, 0]
        rest[:, left] -= error[:, None] * inverse[0]
        left = left[1:]
    assert torch.equal(round_in_turn(weight, scale, second, (-7, 7)), wanted)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(6, 4),
        nn.Conv2d(6, 4, 3, stride=2, padding=1),
        nn.Conv2d(6, 6, 3, groups=3, dilation=2),
        nn.Conv1d(6, 4, 3, padding=1),
    ],
    ids=str,
)
def test_second_moments_give_the_error_of_any_change(layer: nn.Module) -> None:
    torch.manual_seed(0)
    shape = (5, 6) if isinstance(layer, nn.Linear) else (2, 6, *[9] * (layer.weight.dim() - 2))
    batches = batches_of(*shape)
    (found,) = layers_of(exported(layer, batches[0]))
    second = moments(found.model, [found], batches)[found.node]
    change = torch.randn_like(layer.weight)
    grouped = found.grouped(change).flatten(2)
    got = float(((grouped @ second) * grouped).sum())
    state = {"weight": change}
    if layer.bias is not None:
        state["bias"] = torch.zeros_like(layer.bias)
    outputs = [torch.func.functional_call(layer, state, x) for x in batches]
    axis = 1 if layer.weight.dim() > 2 else -1
    rows = torch.cat([y.detach().transpose(0, axis).flatten(1) for y in outputs], 1)
    assert math.isclose(got, float(rows.square().mean(1).sum()), rel_tol=1e-4)


class Outlying(nn.Module):
    """Few channels carry most of what the layers behind a normalization read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.RMSNorm(64), nn.Linear(64, 96), nn.Linear(64, 96)
        with torch.no_grad():
            self.norm.weight[5], self.norm.weight[40] = 30.0, 30.0
            self.a.weight.normal_(std=0.1)
            self.b.weight.normal_(std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return F.silu(self.a(y)) * self.b(y)


def test_awq_searches_the_papers_factors() -> None:
    torch.manual_seed(0)
    model, batches = Outlying(), batches_of(64, 64)
    graph = exported(model, batches[0])
    x = torch.cat([model.norm(b).detach() for (b,) in batches])
    weights = [model.a.weight.detach(), model.b.weight.detach()]
    errors = {}
    for alpha in torch.arange(20) / 20:
        s = x.abs().mean(0) ** alpha
        s = s / (s.max() * s.min()).sqrt()
        changes = [rounded_in_groups(w * s, 32) / s - w for w in weights]
        errors[tuple(s.tolist())] = sum(float((x @ c.T).square().sum()) for c in changes)
    assert awq(graph, batches, 32)
    best = torch.tensor(min(errors, key=lambda s: errors[s]))
    torch.testing.assert_close(graph.norm.weight.detach(), model.norm.weight.detach() / best)
    torch.testing.assert_close(graph.a.weight.detach(), weights[0] * best)
    (given,) = batches[0]
    assert torch.allclose(graph(given), model(given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheme", ["int4-weight", "int4-dynamic"])
def test_four_bits_in_files_are_better_with_methods(scheme: str) -> None:
    torch.manual_seed(0)
    model, mix = Outlying(), torch.randn(8, 64)
    mixed = [(h @ mix + 0.1 * torch.randn(128, 64),) for (h,) in batches_of(128, 8, count=5)]
    batches, (x,) = mixed[:4], mixed[4]
    found = {}
    for methods in ((), ("awq",), ("gptq",), ("awq", "gptq")):
        program = edgewise.compile(
            model,
            batches[0],
            quantize=scheme,
            calibration=batches,
            methods=methods,
            verbose=False,
        )
        got = torch.as_tensor(edgewise.load(program.buffer)(x))
        found[methods] = sqnr_db(model(x).detach(), got)
    assert found["awq",] > found[()] + 0.5
    assert found["gptq",] > found[()] + 1
    assert found["awq", "gptq"] > found[()] + 1


# --- ranges -------------------------------------------------------------------------------


def test_percentiles_leave_out_the_share() -> None:
    histogram = torch.ones(1000)
    assert percentile_bins(histogram, 0.02) == (10, 989)
    histogram[500:] = 0
    assert percentile_bins(histogram, 0.02) == (5, 494)
    assert percentile_bins(histogram, 0.0) == (0, 499)


def test_entropy_cuts_a_long_tail_and_keeps_a_short_one() -> None:
    torch.manual_seed(0)
    bell = torch.histc(torch.randn(100_000), 2048, -4, 4)
    first, last = entropy_bins(bell, 256)
    assert last - first > 1200  # at least 2.3 deviations to each side
    tail = torch.zeros(2048)
    tail[:256] = 2000 * torch.rand(256)
    tail[2047] = 1.0
    assert entropy_bins(tail, 256)[1] < 1024


@pytest.mark.parametrize("ranges", ["minmax", "mse", "percentile", "entropy"])
def test_ranges_by_name(ranges: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 8)
    x = torch.randn(1024, 64)
    x[0, 0] = 1000.0
    config = with_ranges(get_symmetric_quantization_config(True), ranges)
    prepared = observed(model, [(x,)], XNNPACKQuantizer().set_global(config))
    scale, _ = prepared.activation_post_process_0.calculate_qparams()
    wanted = 1004 / 255
    if ranges in ("minmax", "mse"):  # one value of a thousand outweighs all others' squares
        assert float(scale) == pytest.approx(wanted, rel=0.02)
    else:
        assert float(scale) < 0.6 * wanted
    with pytest.raises(ValueError, match="one of minmax, mse, percentile, entropy; got 'median'"):
        with_ranges(config, "median")


# --- the flow -----------------------------------------------------------------------------


def test_sums_that_floating_point_surrounds() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x) + x  # read by an integer product: stays
            return self.norm(self.b(y) + y)  # read by a normalization

    annotated = annotated_copy(exported(Net(), (torch.randn(2, 8),)), static())
    found = float_neighbours(annotated)
    assert {n.name for n in found.sums} == {"add_1"}
    assert {n.name for n in found.read} == {"linear_1"}


def test_int8_survives_outliers_by_default() -> None:
    torch.manual_seed(0)
    model, batches = Residual(), batches_of(16, 32, count=8)
    (x,) = batches[0]
    wanted = model(x).detach()
    found = {}
    for methods in (None, []):
        program = edgewise.compile(
            model,
            batches[0],
            quantize="int8",
            calibration=(batch for batch in batches),
            methods=methods,
            verbose=False,
        )
        assert len(program.delegation_report().delegates) == 1
        found[methods is None] = sqnr_db(wanted, torch.as_tensor(edgewise.load(program.buffer)(x)))
    assert found[True] > found[False] + 6


TOGETHER = {
    "round for the result": ("smooth", "equalize", "adaround", "bias-correction", "minmax"),
    "make up for errors": ("gptq", "percentile"),
    "clip": ("mse", "equalize", "gptq", "bias-correction"),
}


@pytest.mark.parametrize("quantizer", [XNNPACKQuantizer, EthosUQuantizer, NeutronQuantizer])
@pytest.mark.parametrize("methods", TOGETHER)
def test_methods_run_with_each_quantizer(quantizer: Any, methods: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Chain(), nn.Flatten(2), nn.LayerNorm(25), nn.Linear(25, 8)).eval()
    batches = batches_of(2, 3, 12, 12)
    options: dict[str, Any] = {"calibration": batches, "progress": False}
    program = quantize(net, batches[0], "int8", quantizer, methods=TOGETHER[methods], **options)
    (x,) = batches[0]
    with torch.no_grad():
        assert sqnr_db(net(x), program.module()(x)) > 15
    if not quantizer.computes_floats:
        with pytest.raises(ValueError, match="float-sums is for backends that compute in float"):
            quantize(net, batches[0], "int8", quantizer, methods=["float-sums"], **options)


REFUSED = {
    "unknown": (["smoth"], "int8", "methods must be of .* got 'smoth'; try 'smooth'"),
    "scheme": (["smooth"], "int8-dynamic", "must fit the scheme; got smooth for int8-dynamic"),
    "groups": (["smooth"], "int4-weight", "got smooth for int4-weight; try awq or gptq"),
    "no groups": (["awq"], "int8", "got awq for int8"),
    "no data": (["awq"], "int4-weight", "awq needs calibration data; got none"),
    "two ranges": (["mse", "entropy"], "int8", "one kind of ranges"),
    "two roundings": (["adaround", "gptq"], "int8", "both round the weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_methods_that_do_not_fit(case: str) -> None:
    methods, scheme, message = REFUSED[case]
    net, batches = nn.Linear(32, 4), batches_of(2, 32)
    options = {"calibration": batches} if scheme == "int8" else {}
    with pytest.raises(ValueError, match=message):
        edgewise.compile(net, batches[0], quantize=scheme, methods=methods, **options)
    with pytest.raises(ValueError, match="methods is for quantize"):
        edgewise.compile(net, batches[0], methods=methods)
    with pytest.raises(TypeError, match=r"must be a list; got 'smooth'; try \['smooth'\]"):
        edgewise.compile(net, batches[0], quantize="int8", calibration=batches, methods="smooth")
