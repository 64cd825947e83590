"""What XNNPACK's quantizer annotates around each operator of its table."""

from __future__ import annotations

import annotations
import pytest
import torch
import torch.nn.functional as F
from annotations import Layers, config, observed, observers, prepare
from torch import nn

from edgewise.backends.xnnpack import XNNPACKQuantizer
from support import Fn

IMAGE = (torch.randn(1, 8, 6, 6),)
LINE = (torch.randn(1, 8, 9),)
ROWS = (torch.randn(3, 8),)
TWO = (torch.randn(3, 8), torch.randn(3, 8))

WEIGHTED = {
    "linear": (nn.Linear(8, 4), ROWS),
    "conv1d": (nn.Conv1d(8, 4, 3), LINE),
    "conv2d": (nn.Conv2d(8, 4, 3), IMAGE),
    "conv2d ": (nn.Conv2d(8, 8, 3, groups=8, bias=False), IMAGE),
    "conv_transpose1d": (nn.ConvTranspose1d(8, 4, 3), LINE),
    "conv_transpose2d": (nn.ConvTranspose2d(8, 4, 3, groups=2), IMAGE),
}
DYNAMIC = {"linear", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"}
ELEMENTWISE = {
    "add": Fn(lambda x, y: x + y),
    "sub": Fn(lambda x, y: x - y),
    "mul": Fn(lambda x, y: x * y),
    "add_": Fn(lambda x, y: x.clone().add_(y)),
    "mul_": Fn(lambda x, y: x.clone().mul_(y)),
}
ALONE = {
    "hardswish": F.hardswish,
    "silu": F.silu,
    "gelu": F.gelu,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
SAME = {
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "max_pool1d": lambda x: F.max_pool1d(x[0], 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "view": lambda x: x.view(1, 8, 36, 1),
    "reshape": lambda x: x.reshape(1, 8, 3, -1),
    "permute": lambda x: x.permute(0, 1, 3, 2),
    "transpose": lambda x: x.transpose(2, 3),
    "slice": lambda x: x[:, :, 1:4],
    "narrow": lambda x: x.narrow(2, 1, 3),
    "unflatten": lambda x: x.unflatten(1, (2, 4)),
    "view_as": lambda x: x.view_as(x),
    "reshape_as": lambda x: x.reshape_as(x),
    "moveaxis": lambda x: x.moveaxis(2, 3),
    "movedim": lambda x: x.movedim((2, 3), (3, 2)),
    "swapaxes": lambda x: x.swapaxes(2, 3),
    "swapdims": lambda x: x.swapdims(2, 3),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: torch.channel_shuffle(x, 2),
    "flip": lambda x: x.flip(2),
    "roll": lambda x: x.roll(1, 2),
    "unfold": lambda x: x.unfold(2, 4, 2),
    "repeat": lambda x: x.repeat(1, 1, 2, 1),
    "tile": lambda x: x.tile(1, 1, 2, 1),
    "feature_dropout": lambda x: F.dropout2d(x, 0.5, False),
    "pad": lambda x: F.pad(x, (1, 1)),
    "upsample_bilinear2d": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "upsample_linear1d": lambda x: F.interpolate(x.flatten(2), scale_factor=2, mode="linear"),
    "upsample_nearest2d": lambda x: F.interpolate(x, scale_factor=2),
    "hardtanh": lambda x: F.hardtanh(x.permute(0, 1, 3, 2), -0.5, 0.5),
    "relu": lambda x: F.relu(x.permute(0, 1, 3, 2)),
    "clamp": lambda x: x.permute(0, 1, 3, 2).clamp(-0.5, 0.5),
}


def between(function: object) -> nn.Module:
    """Behind a convolution, whose result is quantized."""
    return Layers(lambda x, conv: function(conv(x)), conv=nn.Conv2d(8, 8, 1))  # type: ignore[operator]


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_operators_have_activation_weight_and_result_quantized(
    name: str, per_channel: bool
) -> None:
    model, inputs = WEIGHTED[name]
    name = name.strip()
    quantizer = XNNPACKQuantizer().set_global(config(is_per_channel=per_channel))
    graph = prepare(model, inputs, quantizer)
    assert observed(graph)[name] in ("iw>o", "wi>o")
    graph(*inputs)
    weight = next(o for o in observers(graph, name)[0] if o.qscheme != torch.per_tensor_affine)
    scale, zero_point = weight.calculate_qparams()
    axis = 1 if "transpose" in name else 0
    assert scale.numel() == (model.weight.shape[axis] if per_channel else 1)
    assert not zero_point.any()
    if per_channel:
        other = [d for d in range(model.weight.dim()) if d != axis]
        largest = model.weight.detach().abs().amax(other)
        torch.testing.assert_close(scale, largest / 127.0, rtol=5e-3, atol=0)


@pytest.mark.parametrize("name", WEIGHTED)
def test_dynamic_activations_are_quantized_where_that_can_be_run(name: str) -> None:
    model, inputs = WEIGHTED[name]
    quantizer = XNNPACKQuantizer().set_global(config(is_dynamic=True))
    found = observed(prepare(model, inputs, quantizer))
    assert found == ({name.strip(): found[name.strip()]} if name in DYNAMIC else {})
    if name in DYNAMIC:
        assert sorted(found[name.strip()]) == sorted("iw>")


@pytest.mark.parametrize("name", [*ELEMENTWISE, *ALONE, *SAME, "cat"])
def test_dynamic_leaves_what_has_no_weight_in_float(name: str) -> None:
    quantizer = XNNPACKQuantizer().set_global(config(is_dynamic=True))
    model: nn.Module = ELEMENTWISE.get(name) or Fn(lambda x, y: torch.cat([x, y]))
    inputs = TWO
    if name in ALONE or name in SAME:
        model, inputs = Fn(ALONE.get(name) or SAME[name]), IMAGE
    assert observed(prepare(model, inputs, quantizer)) == {}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operators_have_a_scale_for_each_operand(name: str) -> None:
    graph = prepare(ELEMENTWISE[name], TWO)
    assert observed(graph)[name] == "ii>o"
    before, after = observers(graph, name)
    assert len({id(o) for o in [*before, after]}) == 3


def test_a_number_is_an_operand_and_an_integer_tensor_is_none() -> None:
    number = prepare(Fn(lambda x: x + 2), ROWS)
    assert observed(number) == {"add": "iw>o"}  # as a constant of its own
    integers = torch.ones(3, 8, dtype=torch.int64)
    assert observed(prepare(Fn(lambda x, y: x * y), (*ROWS, integers))) == {}


def test_a_value_added_to_itself_is_observed_once() -> None:
    assert observed(prepare(Fn(lambda x: x + x), ROWS)) == {"add": "i>o"}


@pytest.mark.parametrize("name", ALONE)
def test_operators_that_are_looked_up_have_a_scale_for_operand_and_result(name: str) -> None:
    graph = prepare(Fn(ALONE[name]), IMAGE)
    assert observed(graph) == {name: "i>o"}
    (before,), after = observers(graph, name)
    assert before is not after


@pytest.mark.parametrize(
    ("name", "low", "high"), [("hardsigmoid", 0, 1), ("sigmoid", 0, 1), ("tanh", -1, 1)]
)
def test_results_of_a_known_range_do_not_look_at_data(name: str, low: int, high: int) -> None:
    graph = prepare(Fn(ALONE[name]), IMAGE)
    graph(IMAGE[0] * 1e-3)
    _, after = observers(graph, name)
    scale, zero_point = (float(v) for v in after.calculate_qparams())
    assert (-128 - zero_point) * scale == low
    assert (128 - zero_point) * scale == high


@pytest.mark.parametrize("name", SAME)
def test_what_moves_chooses_or_averages_shares_its_operands_scale(name: str) -> None:
    graph = prepare(between(SAME[name]), IMAGE)
    (before,), after = observers(graph, name)
    assert before is after


AVERAGES = {"adaptive_avg_pool2d", "avg_pool2d", "mean"}


@pytest.mark.parametrize("name", SAME)
def test_what_moves_is_not_quantized_for_its_own_sake_but_averages_are(name: str) -> None:
    expected = {name: "i>o"} if name in AVERAGES else {}
    assert observed(prepare(Fn(SAME[name]), IMAGE)) == expected


def test_all_parts_of_a_cat_and_its_result_share_one_observer() -> None:
    graph = prepare(
        Layers(
            lambda x, a, b: torch.cat([a(x), x, b(x).relu()], 1),
            a=nn.Conv2d(8, 4, 1),
            b=nn.Conv2d(8, 2, 1),
        ),
        IMAGE,
    )
    before, after = observers(graph, "cat")
    assert len(before) == 3
    assert {id(o) for o in before} == {id(after)}


def test_a_cat_of_one_value_twice() -> None:
    graph = prepare(Fn(lambda x: torch.cat([x, x], 1)), IMAGE)
    (before,), after = observers(graph, "cat")
    assert before is after


def test_a_weight_that_is_computed_stays_in_float() -> None:
    assert observed(prepare(Fn(lambda x, w: F.linear(x, w)), (*ROWS, torch.randn(4, 8)))) == {}


@pytest.mark.parametrize(
    ("dtype", "quantized"),
    [(torch.float32, True), (torch.float16, True), (torch.bfloat16, False), (torch.float64, False)],
)
def test_of_floating_types_two_are_quantized(dtype: torch.dtype, quantized: bool) -> None:
    prepared = prepare(nn.Linear(8, 4).to(dtype), (ROWS[0].to(dtype),))
    assert observed(prepared) == ({"linear": "iw>o"} if quantized else {})


def test_the_table_is_covered_here() -> None:
    """Every operator of the table but spellings of those above has a case."""
    same = {
        "adaptive_avg_pool1d",
        "avg_pool1d",
        "clone",
        "concat",
        "concatenate",
        "constant_pad_nd",
        "contiguous",
        "detach",
        "dropout",
        "expand",
        "expand_as",
    }
    same |= {"flatten", "relu6", "select", "squeeze", "t", "unsqueeze"}
    named = {n.strip().rstrip("_") for n in [*WEIGHTED, *ELEMENTWISE, *ALONE, *SAME, *same, "cat"]}
    table = {op._schema.name.split("::")[-1] for op in XNNPACKQuantizer.table}
    table = {name.removesuffix("_copy").strip("_") for name in table}
    assert table <= named


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.adaptive_avg_pool1d(x.flatten(2), 3),
        lambda x: x.clone(),
        lambda x: x.transpose(2, 3).contiguous(),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: x[:, :, :1, :1].expand(1, 8, 3, 3),
        lambda x: x.flatten(1),
        lambda x: F.relu6(x.transpose(2, 3)),
        lambda x: x.select(2, 1),
        lambda x: x[:, :, :1].squeeze(2),
        lambda x: x.unsqueeze(0),
        lambda x: torch.constant_pad_nd(x, (1, 2)),
    ],
)
def test_scales_pass_unchanged(function: object) -> None:
    graph = prepare(between(function), IMAGE)
    graph(*IMAGE)
    scales = {
        tuple(map(float, graph.get_submodule(str(n.target)).calculate_qparams()))
        for n in graph.graph.nodes
        if annotations.is_observer(graph, n) and n.all_input_nodes[0].op == "call_function"
    }
    assert len(scales) == 1
    (result,) = graph.graph.output_node().all_input_nodes
    assert annotations.is_observer(graph, result)
