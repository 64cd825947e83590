"""Comparing lowered programs with the float model, layer by layer."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import edgewise
from edgewise.accuracy.advice import advice
from edgewise.accuracy.comparing import _as_exported, _chunks, _Native
from edgewise.accuracy.figures import Layer
from edgewise.accuracy.hooks import find_hooks, with_hooks
from edgewise.accuracy.matching import match
from edgewise.backends.xnnpack import XnnpackPartitioner, XNNPACKQuantizer
from edgewise.inspect import compare
from examples.models import MODELS

SCHEMES = [None, "int8", "int8-dynamic", "int8-weight"]


def batches(name: str, count: int = 3) -> list[Any]:
    return [MODELS[name].example_inputs(seed) for seed in range(count)]


def compiled(name: str, scheme: str | None) -> tuple[nn.Module, Any]:
    model, data = MODELS[name].build(), batches(name)
    given = data if scheme == "int8" else None
    return model, edgewise.compile(
        model, data[0], quantize=scheme, calibration=given, verbose=False
    )


def flat(program: Any, inputs: Any) -> list[torch.Tensor]:
    exported = program.origin.programs["forward"]
    native = _Native(program.buffer, "forward")
    return [torch.as_tensor(y) for y in native.run(_as_exported(inputs, exported))]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["tiny_mlp", "tiny_cnn", "bert_small"])
def test_taps_change_nothing_and_every_layer_is_matched(name: str, scheme: str | None) -> None:
    model, program = compiled(name, scheme)
    exported = program.origin.programs["forward"]
    hooks = find_hooks(exported)
    hooked, _ = with_hooks(exported, hooks)
    lowered = program.origin.lower({"forward": hooked}).to_executorch()
    for inputs in batches(name):
        plain, more = flat(program, inputs), flat(lowered, inputs)
        assert len(more) > len(plain)
        for one, other in zip(plain, more, strict=False):
            assert torch.equal(one, other)
    found = compare(model, program, batches(name))
    assert found.hook_error == 0
    assert found.unmatched == []
    assert len(found.layers) == len(hooks)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_figures_are_those_of_the_native_run(scheme: str | None) -> None:
    """Against the formulas, spelt here over the outputs of all batches in one vector."""
    model, program = compiled("tiny_cnn", scheme)
    data = batches("tiny_cnn")
    with torch.no_grad():
        wanted = torch.cat([model(*x).flatten() for x in data]).double()
    got = torch.cat([flat(program, x)[0].flatten() for x in data]).double()
    noise = wanted - got
    (output,) = compare(model, program, data).outputs
    ratio = 10 * torch.log10(wanted.square().sum() / noise.square().sum())
    assert output.sqnr_db == pytest.approx(float(ratio))
    cosine = torch.nn.functional.cosine_similarity(wanted, got, 0)
    assert output.cosine == pytest.approx(float(cosine))
    assert output.max_error == pytest.approx(float(noise.abs().max()))


def test_layers_are_those_of_the_model_in_its_order() -> None:
    model, program = compiled("tiny_cnn", "int8")
    layers = compare(model, program, batches("tiny_cnn")).layers
    assert [(x.module, x.operator) for x in layers] == [
        ("conv1", "conv2d batch_norm relu"),
        ("conv2", "conv2d relu"),
        ("", "max_pool2d"),
        ("", "mean"),
        ("fc", "linear"),
    ]
    assert all(re.search(r"examples/models/tiny\.py:\d+$", x.source) for x in layers)


def test_a_folded_normalisation_without_activation_is_part_of_the_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish())
    nn.init.uniform_(model[1].running_mean)
    nn.init.uniform_(model[1].weight, 2, 3)
    x = torch.randn(2, 3, 8, 8)
    program = edgewise.compile(model, x, quantize="int8", calibration=[x], verbose=False)
    layers = compare(model, program, [x]).layers
    assert [x.operator for x in layers] == ["conv2d batch_norm", "hardswish"]
    assert all(layer.sqnr_db > 33 for layer in layers)


def test_float_programs_are_the_model_to_rounding() -> None:
    for name in ("tiny_mlp", "tiny_cnn"):
        model, program = compiled(name, None)
        found = compare(model, program, batches(name), double=True)
        # float32 has 24 bits: 144 dB, less what sums of a few hundred terms lose.
        assert found.sqnr_db > 125
        assert all(layer.sqnr_db > 125 for layer in found.layers)


def test_a_half_program_gets_half_inputs() -> None:
    spec = MODELS["tiny_mlp"]
    half = spec.build().half()
    x = spec.example_inputs(0)[0]
    program = edgewise.compile(half, x.half(), verbose=False)
    found = compare(spec.build(), program, batches("tiny_mlp"))
    # 11 bits: 66 dB, less a few for two layers.
    assert 55 < found.sqnr_db < 80
    assert [layer.module for layer in found.layers] == ["hidden", "out"]


class Broken(nn.Module):
    """Three linear layers; the second has one huge weight, which ruins its scale."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, 16) for _ in range(3))
        with torch.no_grad():
            self.second.weight[:, 3] += 50

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x) - 9 * torch.eye(16)[3])
        return self.third(torch.relu(self.second(x)))


def test_the_layer_that_loses_most_is_found() -> None:
    model, x = Broken(), torch.randn(4, 16)
    program = edgewise.compile(model, x, quantize="int8-weight", verbose=False)
    found = compare(model, program, [x])
    worst = found.worst()
    assert worst[0].module == "second"
    assert worst[0].added_noise > 10 * max(w.added_noise for w in worst[1:])
    assert worst == found.worst(len(worst))
    assert len(found.worst(1)) == 1


def test_noise_is_not_counted_twice() -> None:
    """Max pooling behind a quantized layer adds none: it picks from what is there."""
    model, program = compiled("tiny_cnn", "int8")
    found = {x.operator: x for x in compare(model, program, batches("tiny_cnn")).layers}
    assert found["max_pool2d"].added_noise <= 0.5 * found["conv2d relu"].added_noise


def test_structured_outputs_are_named() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"scores": self.fc(x), "more": [x.argmax(1), x * 2]}

    model, x = Two(), torch.randn(2, 8)
    found = compare(model, edgewise.compile(model, x, verbose=False), [x])
    assert [o.name for o in found.outputs] == ["['scores']", "['more'][0]", "['more'][1]"]
    assert found.outputs[1].sqnr_db == math.inf


def test_sizes_may_vary_where_the_program_takes_any() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x).reshape(x.shape[0], 2, 3).relu()

    shapes = ({0: torch.export.Dim("n", min=2, max=16)},)
    x = torch.randn(4, 8)
    program = edgewise.compile(
        Net(), x, quantize="int8-dynamic", dynamic_shapes=shapes, verbose=False
    )
    with pytest.raises(ValueError, match="try the model"):
        compare(Two(), program, [x])
    torch.manual_seed(1)
    model = Net()
    program = edgewise.compile(
        model, x, quantize="int8-dynamic", dynamic_shapes=shapes, verbose=False
    )
    found = compare(model, program, [x, torch.randn(7, 8)])
    assert found.batches == 2
    assert found.sqnr_db > 30


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, x + 1


def test_in_place_operators_do_not_spoil_the_reference() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.fc(x)
            y += x
            return y.mul_(2).tanh()

    model, x = Net(), torch.randn(2, 8)
    found = compare(model, edgewise.compile(model, x, verbose=False), [x])
    assert all(layer.sqnr_db > 100 for layer in found.layers)
    assert found.layers[-1].operator == "tanh"


def test_state_runs_along() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(1, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.fc(self.total)

    model, data = Counter(), [torch.randn(1, 4) for _ in range(3)]
    program = edgewise.compile(model, data[0], verbose=False)
    for _ in range(2):
        assert compare(model, program, data).sqnr_db > 100
    assert not model.total.any()


@pytest.mark.slow
def test_training_that_simulates_rounding_is_matched() -> None:
    """There batch normalisation is spelt out while training, and folded at the end."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    from edgewise.backends.xnnpack import get_symmetric_quantization_config

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = (torch.randn(4, 3, 8, 8),)
    config = get_symmetric_quantization_config(is_per_channel=True, is_qat=True)
    graph = torch.export.export(model.train(), x).module()
    graph = prepare_qat_pt2e(graph, XNNPACKQuantizer().set_global(config))
    for _ in range(3):
        graph(*x)
    move_exported_model_to_eval(graph)
    model.eval()
    with torch.no_grad():
        # The graph's own statistics, which the passes above have moved.
        model[1].running_mean.copy_(graph.get_buffer("1.running_mean"))
        model[1].running_var.copy_(graph.get_buffer("1.running_var"))
    exported = torch.export.export(convert_pt2e(graph), x)
    program = edgewise.to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()]
    ).to_executorch()
    found = compare(model, program, [x])
    assert found.unmatched == []
    assert [layer.module for layer in found.layers] == ["0", "3"]
    assert all(layer.sqnr_db > 25 for layer in found.layers)


def test_other_ways_to_lower_keep_where_they_come_from() -> None:
    model, x = MODELS["tiny_mlp"].build(), MODELS["tiny_mlp"].example_inputs(0)
    exported = torch.export.export(model, x)
    edge = edgewise.to_edge({"forward": exported, "again": exported})
    edge = edge.transform([lambda graph: None])
    program = edge.to_backend({"again": XnnpackPartitioner()}).to_executorch()
    for method in ("forward", "again"):
        found = compare(model, program, [x], method=method)
        assert found.sqnr_db > 120
        assert len(found.layers) == 2
    with pytest.raises(ValueError, match="method must be one of forward, again; got 'other'"):
        compare(model, program, [x], method="other")


def test_many_taps_are_spread_over_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, program = compiled("bert_small", "int8-dynamic")
    whole = compare(model, program, batches("bert_small", 1))
    monkeypatch.setattr("edgewise.accuracy.comparing.MOST_TAPS", 7)
    hooks = find_hooks(program.origin.programs["forward"])
    assert [len(c) for c in _chunks(hooks)] == [7] * (len(hooks) // 7) + [len(hooks) % 7]
    assert compare(model, program, batches("bert_small", 1)).layers == whole.layers


def test_outputs_alone() -> None:
    model, program = compiled("tiny_mlp", "int8")
    found = compare(model, program, batches("tiny_mlp"), layers=False)
    assert found.layers == []
    assert found.outputs == compare(model, program, batches("tiny_mlp")).outputs


def test_table_json_and_picture(tmp_path: Any) -> None:
    model, program = compiled("bert_small", "int8")
    found = compare(model, program, batches("bert_small", 1))
    lines = str(found).splitlines()
    assert lines[0] == "1 batch"
    assert max(map(len, lines)) <= 120
    assert found.worst()[0].module in str(found)
    data = json.loads(found.to_json(tmp_path / "c.json"))
    assert data == json.loads((tmp_path / "c.json").read_text())
    ratios = [None if one.sqnr_db == math.inf else one.sqnr_db for one in found.layers]
    assert [one["sqnr_db"] for one in data["layers"]] == ratios
    assert [o["name"] for o in data["outputs"]] == [o.name for o in found.outputs]
    found.to_svg(tmp_path / "c.svg")
    root = ElementTree.parse(tmp_path / "c.svg").getroot()
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(found.layers) + len(found.outputs)
    assert sum(c.get("class") == "marked" for c in circles) == 5


class Outlier(nn.Module):
    """One channel of the middle is far larger than the others, behind a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.norm.weight[3] = 300.0
            self.last.weight[:, 3] = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(self.norm(x)).relu())


def test_before_and_after_a_method() -> None:
    torch.manual_seed(0)
    model, data = Outlier().eval(), [torch.randn(16, 64) for _ in range(4)]

    def made(methods: list[str]) -> Any:
        return edgewise.compile(
            model, data[0], quantize="int8", calibration=data, methods=methods, verbose=False
        )

    plain, smooth = made([]), made(["smooth"])
    found = compare(model, smooth, data, before=plain, label="rounding alone")
    alone, after = compare(model, plain, data), compare(model, smooth, data)
    assert found.earlier is not None
    assert found.earlier.layers == {layer.name: layer.sqnr_db for layer in alone.layers}
    assert found.earlier.outputs == {"0": alone.sqnr_db}
    assert found.layers == after.layers
    assert after.sqnr_db > alone.sqnr_db + 3
    text = str(found)
    assert "rounding alone dB" in text
    assert f"{alone.sqnr_db:.1f}" in text
    told = found.to_dict()
    assert told["earlier"]["label"] == "rounding alone"
    assert told["settings"]["methods"] == ["smooth"]


def test_lines_sum_what_their_layers_add() -> None:
    model, program = compiled("bert_small", "int8")
    found = compare(model, program, batches("bert_small", 1))
    lines = found.lines()
    assert [line.added_noise for line in lines] == sorted(x.added_noise for x in lines)[::-1]
    assert sum(line.layers for line in lines) == len(found.worst())
    assert sum(line.share for line in lines) == pytest.approx(1)
    for line in lines:
        own = [x.added_noise for x in found.layers if x.source == line.source]
        assert line.added_noise == pytest.approx(sum(own))


def test_histograms_count_every_value() -> None:
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).eval(), [torch.randn(4, 8)] * 2
    program = edgewise.compile(model, data[0], quantize="int8", calibration=data, verbose=False)
    found = compare(model, program, data)
    with torch.no_grad():
        wanted = {"0": model[0](data[0]), "1": model(data[0])}
    for layer in found.layers:
        told, values = layer.histogram, wanted[layer.module]
        assert told is not None
        assert (told.low, told.high) == pytest.approx((float(values.min()), float(values.max())))
        counted = torch.histc(values, len(told.wanted), told.low, told.high) * 2
        assert list(told.wanted) == pytest.approx(counted.tolist(), abs=2)
        assert sum(told.wanted) == sum(told.got) == 2 * values.numel()
        rms = values.square().mean().sqrt()
        assert layer.peak == pytest.approx(float(values.abs().max() / rms))
        assert len(told.bars()) == 16


def noisy(module: str, added: float, peak: float = 4.0) -> Layer:
    return Layer(module, "linear", module, "m.py:1", 20.0, 0.99, 0.1, added, peak)


INT8 = {"quantize": "int8", "methods": ["smooth"], "keep_float": []}
EVEN = [noisy(f"layers.{i}", 0.01) for i in range(20)]
FEW = [*EVEN, noisy("head", 1.0)]
WIDE = [noisy("norm", 0.5, peak=40.0), *EVEN]

# layers, the worst output, settings, batches of calibration; what a line must have, and must not
ADVICE: dict[str, tuple[list[Layer], float, dict[str, Any], int | None, list[str], list[str]]] = {
    "a good program": (FEW, 45.0, INT8, 64, [], ["keep_float", "auto"]),
    "a float program": (FEW, 20.0, {}, None, [], ["keep_float", "auto"]),
    "even noise": (EVEN, 20.0, INT8, 64, ["adaround", "auto"], ["keep_float", "smooth", "calibr"]),
    "few layers": (FEW, 20.0, INT8, 64, ["keep_float=['head']"], []),
    "kept already": (FEW, 20.0, {**INT8, "keep_float": ["head"]}, 64, [], ["keep_float"]),
    "outliers": (WIDE, 20.0, {**INT8, "methods": []}, 64, ["'smooth'"], ["percentile"]),
    "smoothed": (WIDE, 20.0, INT8, 64, ["'percentile'"], ["'smooth'"]),
    "rounded": (EVEN, 20.0, {**INT8, "methods": ["adaround", "bias-correction"]}, 64, ["auto"],
                ["adaround", "bias-correction"]),
    "one batch": (EVEN, 20.0, INT8, 1, ["more calibration data: 1 batch may"], []),
    "4 bits": (EVEN, 20.0, {"quantize": "int4-weight"}, None, ["gptq", "groups"], ["auto"]),
    "4 bits by gptq": (EVEN, 20.0, {"quantize": "int4-weight", "methods": ["gptq"]}, None,
                       ["groups"], ["gptq"]),
    "dynamic": (EVEN, 20.0, {"quantize": "int8-dynamic"}, None, ["int8-weight"], ["adaround"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ADVICE)
def test_advice_is_never_what_was_done(case: str) -> None:
    layers, worst, settings, calibrated, wanted, unwanted = ADVICE[case]
    told = "\n".join(advice(layers, worst, settings, calibrated))
    assert [text for text in wanted if text not in told] == []
    assert [text for text in unwanted if text in told] == []


def test_exact_values_have_no_ratio_in_json() -> None:
    model, x = nn.ReLU(), torch.randn(2, 8)
    found = compare(model, edgewise.compile(model, x, verbose=False), [x])
    assert found.sqnr_db == math.inf
    assert found.to_dict()["outputs"][0]["sqnr_db"] is None
    assert "exact" in str(found)
    assert found.worst() == []
    ElementTree.fromstring(found.to_svg())


def test_what_is_refused() -> None:
    model, program = compiled("tiny_mlp", None)
    with pytest.raises(ValueError, match="batches must hold at least one; got none"):
        compare(model, program, [])
    with pytest.raises(ValueError, match="got bytes without what it was lowered from"):
        compare(model, program.buffer, [torch.randn(1, 16)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have the program's 1 inputs; got 2"):
        compare(nn.Bilinear(16, 16, 4), program, [(torch.randn(1, 16), torch.randn(1, 16))])


def test_nodes_of_other_operators_are_no_match() -> None:
    x = (torch.randn(2, 4),)

    def graph(model: nn.Module) -> torch.fx.Graph:
        return torch.export.export(model, x).graph

    one = graph(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    other = graph(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()))
    found = {a.name: b.name for a, b in match(one, other).items()}
    assert found == {"linear": "linear"}
