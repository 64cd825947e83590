"""Constants, weights and activations of any size keep their digits under static int8."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from annotations import convert
from torch import nn

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_a16w8_quantization_config,
)
from edgewise.quantize.config import get_symmetric_quantization_config
from edgewise.quantize.observers import ZEROS, HistogramObserver

BACKENDS = ("xnnpack", "ethos-u55-128", "ethos-u85-256", "neutron-imxrt700-reference")
SIZES = (1e-5, 1e-20)
"""Below 2**-12 * 127; and one whose square float32 does not have."""
ROWS = torch.linspace(-1, 1, 64).reshape(4, 16)
IMAGES = torch.linspace(-1, 1, 256).reshape(1, 4, 8, 8).sin()


class Fn(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], constant: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("constant", constant)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.constant)


def times(layer: nn.Module, size: float, bias: float | None = None) -> nn.Module:
    """The layer with weights of that size, and a bias of it or of another."""
    torch.manual_seed(3)
    layer.reset_parameters()  # type: ignore[operator]
    with torch.no_grad():
        layer.weight.mul_(size)  # type: ignore[operator]
        layer.bias.mul_(size if bias is None else bias)  # type: ignore[operator]
    return layer


def decayed(layer: nn.Module) -> nn.Module:
    """Channels of nothing, as training leaves them, with the biases that a batch norm leaves."""
    layer = times(layer, 1.0)
    axis = 1 if isinstance(layer, nn.ConvTranspose2d) else 0
    with torch.no_grad():
        layer.weight.select(axis, 3).mul_(1e-12)  # type: ignore[operator]
        layer.bias[3] = 0.7  # type: ignore[operator]
        layer.weight.select(axis, 1).zero_()  # type: ignore[operator]
    return layer


CASES: dict[str, tuple[Callable[[float], nn.Module], Callable[[float], torch.Tensor]]] = {
    "x * number": (lambda k: Fn(lambda x, c: x * k, ROWS), lambda k: ROWS),
    "x + number": (lambda k: Fn(lambda x, c: x + k, ROWS), lambda k: ROWS * k),
    "a number is added, which is nothing": (lambda k: Fn(lambda x, c: x + k, ROWS), lambda k: ROWS),
    "x * constant": (lambda k: Fn(torch.mul, k * ROWS[0].cos()), lambda k: ROWS),
    "x - constant": (lambda k: Fn(torch.sub, k * ROWS.cos()), lambda k: ROWS * k),
    "linear": (lambda k: times(nn.Linear(16, 8), k), lambda k: ROWS),
    "conv2d": (lambda k: times(nn.Conv2d(4, 8, 3), k), lambda k: IMAGES),
    "small inputs": (lambda k: times(nn.Linear(16, 8), 1.0, k), lambda k: ROWS * k),
    "small inputs, a bias": (lambda k: times(nn.Linear(16, 8), 1.0, 30.0), lambda k: ROWS * k),
    "small weights, a bias": (lambda k: times(nn.Linear(16, 8), k, 30.0), lambda k: ROWS),
    "decayed channels": (lambda k: decayed(nn.Conv2d(4, 8, 3)), lambda k: IMAGES),
    "decayed, depthwise": (lambda k: decayed(nn.Conv2d(4, 4, 3, groups=4)), lambda k: IMAGES),
    "decayed, transposed": (lambda k: decayed(nn.ConvTranspose2d(4, 8, 2)), lambda k: IMAGES),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_digits_are_kept(backend: str, case: str, size: float) -> None:
    """Within 2 % of the largest: three roundings of a range of one sign or two."""
    make, values = CASES[case]
    model, x = make(size).eval(), values(size)
    program = edgewise.compile(
        model, (x,), backend=backend, quantize="int8", calibration=[(x,)], verbose=False
    )
    got = np.asarray(edgewise.load(program.buffer)(x.numpy()))
    want = model(x).detach().numpy()
    assert np.abs(got - want).max() <= 0.02 * np.abs(want).max(), (got, want)


@pytest.mark.parametrize("case", ["x * number", "x + number", "linear", "small weights, a bias"])
def test_digits_are_kept_in_16_bits(case: str) -> None:
    """On Ethos-U. Weights have 8 bits."""
    make, values = CASES[case]
    model, x = make(1e-20).eval(), values(1e-20)
    spec = EthosUCompileSpec("ethos-u85-256")
    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_a16w8_quantization_config())
    program = edgewise.to_edge_transform_and_lower(
        torch.export.export(convert(model, (x,), quantizer), (x,)),
        partitioner=[EthosUPartitioner(spec)],
    )
    got = np.asarray(edgewise.load(program.to_executorch().buffer)(x.numpy()))
    want = model(x).detach().numpy()
    bound = 1e-2 if "linear" in case or "weights" in case else 1e-3  # a bin of the histogram
    assert np.abs(got - want).max() <= bound * np.abs(want).max(), (got, want)


@pytest.mark.parametrize("function", [torch.tanh, lambda x: (x - 30).sigmoid()])
def test_what_a_fixed_scale_leaves_nothing_of_is_told(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """The scales of tanh and sigmoid are XNNPACK's: their results have a range that is known."""

    def compiled(size: float) -> None:
        edgewise.compile(
            Fn(lambda x, c: function(x * size), ROWS),
            (ROWS,),
            quantize="int8",
            calibration=[(ROWS,)],
            verbose=False,
        )

    with pytest.warns(UserWarning, match=r"(tanh|sigmoid): .*test_quantize_small.* fixed scale"):
        compiled(1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(40.0)


@pytest.mark.parametrize("exponent", [-120, -60, 60])
def test_the_range_of_least_error_is_the_same_for_all_sizes(exponent: int) -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(1_000_000), torch.tensor([20.0])])
    found = []
    for factor in (1.0, 2.0**exponent):
        observer = HistogramObserver(dtype=torch.int8, qscheme=torch.per_tensor_affine)
        observer(x * factor)
        observer(0.5 * x * factor)
        scale, zero_point = observer.calculate_qparams()
        found.append((float(scale) / factor, int(zero_point)))
    assert found[0] == found[1]
    assert found[0][0] < 20 / 255  # what is rare is clipped


@pytest.mark.parametrize("is_per_channel", [False, True])
@pytest.mark.parametrize("is_qat", [False, True])
def test_scales_of_zeros_and_of_the_smallest_numbers(is_per_channel: bool, is_qat: bool) -> None:
    config = get_symmetric_quantization_config(is_per_channel, is_qat)
    for spec in (config.weight, config.input_activation):
        made = spec.observer_or_fake_quant_ctr(
            dtype=spec.dtype, qscheme=spec.qscheme, quant_min=-127, quant_max=127
        )
        observer = getattr(made, "activation_post_process", made)
        rows = torch.tensor([[0.0, 0.0], [0.0, 1e-41]])
        for x in (rows[:1], rows[1:]):
            fresh = type(observer)(
                dtype=spec.dtype, qscheme=spec.qscheme, quant_min=-127, quant_max=127
            )
            fresh(x)
            scale, _ = fresh.calculate_qparams()
            assert float(scale) == (ZEROS if not x.any() else torch.finfo(torch.float32).tiny)
