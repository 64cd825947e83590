"""What converting gives: zeros, saturation, odd values, training that simulates rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from annotations import Layers, config, convert, is_observer, prepare, sqnr_db
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize.observers import ZEROS

IMAGE = (torch.randn(2, 8, 6, 6),)


@pytest.mark.parametrize("qat", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(8, 6),
        nn.Conv2d(8, 6, 3),
        nn.Conv2d(8, 6, 3, groups=2),
        nn.ConvTranspose2d(8, 6, 3),
        nn.ConvTranspose2d(8, 6, 3, groups=2),
    ],
    ids=["linear", "conv", "grouped", "transposed", "grouped transposed"],
)
def test_a_channel_of_zeros_stays_zero(model: nn.Module, qat: bool) -> None:
    """And has a scale of its own, so that the others lose nothing by it."""
    axis = 1 if isinstance(model, nn.ConvTranspose2d) else 0
    with torch.no_grad():
        model.weight.select(axis, 1).zero_()
    inputs = (torch.randn(3, 8),) if isinstance(model, nn.Linear) else IMAGE
    graph = prepare(model, inputs, qat=qat)
    with torch.no_grad():
        graph(*inputs)
    weight = next(
        graph.get_submodule(str(n.target))
        for n in graph.graph.nodes
        if is_observer(graph, n) and n.all_input_nodes[0].op == "get_attr"
    )
    scale, zero_point = weight.calculate_qparams()
    assert scale.numel() == model.weight.shape[axis]
    assert scale[1] == ZEROS
    assert scale.isfinite().all()
    assert not zero_point.any()
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    got = convert_pt2e(graph)(*inputs)
    assert sqnr_db(model(*inputs).detach(), got) > 33


def test_a_model_of_zeros() -> None:
    model = nn.Linear(8, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    zeros = (torch.zeros(3, 8),)
    assert not convert(model, zeros)(*zeros).any()


def test_inputs_out_of_range_saturate() -> None:
    model = Layers(lambda x, fc: fc(x), fc=nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model.fc.weight.fill_(1)
    graph = convert(model, (torch.tensor([[-1.0], [3.0]]),))
    got = graph(torch.tensor([[-50.0], [50.0]])).flatten()
    # A range of 4 in 255 steps: the ends are met to a step.
    torch.testing.assert_close(got, torch.tensor([-1.0, 3.0]), rtol=0, atol=4 / 255 + 1e-6)


def test_ranges_that_do_not_hold_zero_are_widened_to_it() -> None:
    """Zero padding must be exact, so the zero point lies within the integers."""
    x = (torch.rand(2, 8, 6, 6) + 10,)
    graph = convert(nn.Conv2d(8, 4, 3, padding=1), x)
    first = next(n for n in graph.graph.nodes if "quantize_per_tensor" in str(n.target))
    scale, zero_point = first.args[1:3]
    assert -128 <= zero_point <= 127
    assert (-128 - zero_point) * scale == 0


@pytest.mark.parametrize(
    ("function", "least"),
    [
        (lambda x, a, b: torch.cat([a(x), 9 * b(x)], 1), 35),
        (lambda x, a, b: torch.cat([a(x).sigmoid(), b(x).tanh()], 1), 33),
        (lambda x, a, b: F.max_pool2d(a(x), 2) + F.avg_pool2d(b(x), 2), 33),
        (lambda x, a, b: (a(x) * b(x)).relu(), 28),
        (lambda x, a, b: F.pad(a(x), (1, 1), value=2.0) - F.pad(b(x), (1, 1)), 30),
        (lambda x, a, b: F.interpolate(a(x), scale_factor=2, mode="bilinear"), 33),
        (lambda x, a, b: F.elu(a(x)) - F.leaky_relu(b(x)), 30),
        (lambda x, a, b: F.gelu(a(x)) + F.hardswish(b(x)), 28),
        (lambda x, a, b: a(x).mean((2, 3)) - b(x).amax((2, 3)), 28),
    ],
)
def test_converted_graphs_are_near_the_float_model(function: object, least: float) -> None:
    """Each within 6 dB of what was measured; 8 bits of one value are some 40."""
    model = Layers(function, a=nn.Conv2d(8, 6, 3), b=nn.Conv2d(8, 6, 3))  # type: ignore[arg-type]
    got = convert(model, IMAGE)(*IMAGE)
    assert sqnr_db(model(*IMAGE).detach(), got) > least


@pytest.mark.filterwarnings("ignore:torch.inf detected")
def test_padding_with_infinity_saturates() -> None:
    """Observers pass over it, as no range holds it; the largest integers stand for it."""
    model = Layers(
        lambda x, a, b: b(F.max_pool2d(F.pad(a(x), (1, 1), value=-torch.inf), 2)),
        a=nn.Conv2d(8, 6, 3),
        b=nn.Conv2d(6, 6, 1),
    )
    got = convert(model, IMAGE)(*IMAGE)
    assert sqnr_db(model(*IMAGE).detach(), got) > 30


class Digits(nn.Module):
    """A convolution with normalisation, a transposed one in groups, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 8, 3, groups=2)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        return self.fc(F.relu(self.up(x)).mean((2, 3)))


@pytest.mark.slow
def test_training_that_simulates_rounding() -> None:
    """Weights with one scale: those with one per channel are test_xnnpack_quantized_rows' too."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    x, labels = torch.randn(64, 1, 8, 8), torch.randint(0, 4, (64,))
    x += labels.reshape(-1, 1, 1, 1) * 0.5
    quantizer = XNNPACKQuantizer().set_global(config(is_per_channel=False, is_qat=True))
    graph = prepare(Digits(), (x,), quantizer, qat=True)
    optimizer = torch.optim.Adam(graph.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(graph(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]
    move_exported_model_to_eval(graph)
    with torch.no_grad():
        simulated = graph(x)
        converted = convert_pt2e(graph)
        got = converted(x)
    # The same integers, but for values that lie on a step's edge.
    assert sqnr_db(simulated, got) > 30
    integers = [n for n in converted.graph.nodes if "dequantize_per" in str(n.target)]
    assert len(integers) >= 7


@pytest.mark.parametrize("rows", [64, 8192])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_ranges_of_half_are_those_of_float(rows: int, dtype: torch.dtype) -> None:
    """A channel of outliers, and more zeros than float16 counts to: int8 keeps as much of a half
    model as of the float model."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    model[0].weight.data[3] *= 40
    batches = [(torch.randn(rows, 64),) for _ in range(4)]
    model, batches = model.eval().to(dtype), [(x.to(dtype),) for (x,) in batches]
    (x,) = batches[0]
    program = edgewise.compile(
        model, (x,), quantize="int8", calibration=batches, methods=[], verbose=False
    )
    expected = model(x).detach().double()
    error = torch.from_numpy(edgewise.load(program.buffer)(x.numpy())).double() - expected
    assert 10 * torch.log10(expected.square().sum() / error.square().sum()) > 26
