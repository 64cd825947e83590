"""What each scheme quantizes, and that the rest is told: in the report, and as a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.backends.xnnpack import XNNPACKQuantizer, get_symmetric_quantization_config
from support import Fn

SCHEMES = ("int8", "int8-dynamic", "int8-weight", "int4-dynamic", "int4-weight")
IMAGE, SEQUENCE, ROWS = (1, 16, 6, 6), (1, 16, 12), (2, 4, 64)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x).relu())


class _OfWeights(nn.Module):
    """Layers whose weights are computed, from weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.Parameter(torch.randn(64, 32))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.normed(nn.functional.linear(x, self.turned.t()))


class _StandardWeights(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return nn.functional.conv2d(x, w, self.bias)


class _WrittenWeights(nn.Module):
    """The weight is another at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 64))
        self.register_buffer("gain", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gain.mul_(1.0)
        return nn.functional.linear(x, self.weight * self.gain)


class _Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class _Einsum(_Product):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...i,io->...o", x, self.weight)


class _ByTranspose(nn.Linear):
    """As models spell it that have a linear layer of their own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T + self.bias


class _Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias) * 2


PRODUCT = "a product of two activations"
FOUR = "4 bits are for linear layers"
RECURRENT = "a recurrent layer is written out for integers, up to 256 steps"
EMBEDDING = "tables of embeddings are quantized by int4-weight"
DEPTHWISE = "XNNPACK has no depthwise kernel"
COMPUTED = "its weight is computed"
NO_LAYER = "a product with a weight that is no layer's"
MODULE = "its weight is not that of an nn.Linear module"

# Model, shape, then for each scheme what is told of it ("" where it is quantized).
CASES: dict[str, tuple[Any, tuple[int, ...], tuple[str, str, str, str, str]]] = {
    "linear of three dimensions": (lambda: nn.Linear(64, 32), ROWS, ("", "", "", "", "")),
    "a linear layer twice": (_Twice, ROWS, ("", "", "", "", "")),
    "weights of weights": (_OfWeights, ROWS, ("", "", "", MODULE, MODULE)),
    "weights of mean 0": (lambda: _StandardWeights(16, 8, 3), IMAGE, ("", "", "", FOUR, FOUR)),
    "weights that are written": (_WrittenWeights, ROWS, (COMPUTED,) * 3 + (MODULE,) * 2),
    "a weight of no layer": (_Product, ROWS, ("", "", "", MODULE, MODULE)),
    "an einsum with a weight": (_Einsum, ROWS, (NO_LAYER,) * 3 + (MODULE,) * 2),
    "a forward of its own": (lambda: _Doubled(64, 32), ROWS, ("", "", "", MODULE, MODULE)),
    "by a transpose": (lambda: _ByTranspose(64, 32), ROWS, ("", "", "", "", "")),
    "conv1d": (lambda: nn.Conv1d(16, 8, 3), SEQUENCE, ("", "", "", FOUR, FOUR)),
    "conv1d, even": (
        lambda: nn.Conv1d(16, 8, 4, padding="same"),
        SEQUENCE,
        ("", "", "", FOUR, FOUR),
    ),
    "conv1d, no batch": (
        lambda: nn.Conv1d(16, 8, 2, padding="same"),
        SEQUENCE[1:],
        ("", "", "", FOUR, FOUR),
    ),
    "conv2d, no batch": (lambda: nn.Conv2d(16, 8, 3), IMAGE[1:], ("", "", "", FOUR, FOUR)),
    "transposed, no batch": (
        lambda: nn.ConvTranspose2d(16, 8, 3),
        IMAGE[1:],
        ("", "", "", FOUR, FOUR),
    ),
    "transposed, dilated": (
        lambda: nn.ConvTranspose2d(16, 8, 3, 2, dilation=2),
        IMAGE,
        ("", "", "", FOUR, FOUR),
    ),
    "conv2d, padding by reflection": (
        lambda: nn.Conv2d(16, 8, 3, padding=1, padding_mode="reflect"),
        IMAGE,
        ("", "", "", FOUR, FOUR),
    ),
    "conv2d, same": (lambda: nn.Conv2d(16, 8, 3, padding="same"), IMAGE, ("", "", "", FOUR, FOUR)),
    "grouped": (lambda: nn.Conv2d(16, 8, 3, groups=4), IMAGE, ("", "", "", FOUR, FOUR)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 3, groups=16), IMAGE, ("", DEPTHWISE, "", FOUR, FOUR)),
    "transposed": (lambda: nn.ConvTranspose2d(16, 8, 3), IMAGE, ("", "", "", FOUR, FOUR)),
    "transposed, grouped": (
        lambda: nn.ConvTranspose2d(16, 8, 3, groups=4),
        IMAGE,
        ("", "", "", FOUR, FOUR),
    ),
    "transposed, 1-D": (lambda: nn.ConvTranspose1d(16, 8, 3), SEQUENCE, ("", "", "", FOUR, FOUR)),
    "conv3d": (
        lambda: nn.Conv3d(16, 16, 3),
        (1, 16, 4, 4, 4),
        ("", "", "", FOUR, FOUR),
    ),
    "bmm": (lambda: Fn(lambda x: x @ x.transpose(1, 2)), ROWS, (PRODUCT,) * 5),
    "embedding": (
        lambda: nn.Sequential(Fn(lambda x: (x * 2).abs().long()), nn.Embedding(64, 32)),
        (2, 4),
        (EMBEDDING, EMBEDDING, EMBEDDING, "", ""),
    ),
    "attention": (_Attention, (1, 8, 64), ("", PRODUCT, PRODUCT, MODULE, MODULE)),
    "lstm": (
        lambda: nn.Sequential(nn.LSTM(16, 64), Fn(lambda pair: pair[0])),
        (2, 1, 16),
        ("", "", "", FOUR, FOUR),
    ),
    "lstm, many steps": (
        lambda: nn.Sequential(nn.LSTM(4, 2), Fn(lambda pair: pair[0])),
        (257, 1, 4),
        (RECURRENT, RECURRENT, RECURRENT, FOUR, FOUR),
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CASES)
def test_each_layer_is_quantized_or_told(name: str, scheme: str) -> None:
    build, shape, told = CASES[name]
    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(shape)
    because = told[SCHEMES.index(scheme)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = edgewise.compile(
            model, x, quantize=scheme, calibration=[x] if scheme == "int8" else None, verbose=False
        )
    report = program.delegation_report()
    reasons = [one.reason for one in report.unquantized]
    said = [str(one.message) for one in caught if "[compile]" in str(one.message)]
    if not because:
        assert not any(one.has_weights for one in report.unquantized)
        assert said == []
        integers = edgewise.compile(model, x, verbose=False)
        if name not in ("depthwise",):
            assert len(program.buffer) < len(integers.buffer)
    else:
        assert any(because in reason for reason in reasons)
        line = f"asked for {scheme}; stays float: "
        assert line in " ".join(str(report).split())
        # An activation's product is no layer: it is in the report alone where others are quantized.
        assert bool(said) == (
            any(o.has_weights for o in report.unquantized)
            or name in ("bmm", "an einsum with a weight", "a weight of no layer")
        )
    if name != "embedding":
        want = model(x).detach().numpy()
        got = np.asarray(edgewise.load(program.buffer)(x))
        assert np.abs(got - want).max() <= (0.15 if "int4" in scheme else 0.04) * np.abs(want).max()


def test_nothing_changed_is_said_once_and_with_its_reason() -> None:
    depthwise = nn.Conv2d(8, 8, 3, groups=8)
    with pytest.warns(UserWarning, match=r"'int8-dynamic' changed nothing: .*depthwise kernel"):
        edgewise.compile(depthwise, torch.randn(1, 8, 5, 5), quantize="int8-dynamic", verbose=False)


@pytest.mark.parametrize("verbose", [True, False])
def test_a_layer_left_alone_is_told_once(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """In the report where that is printed, else as a warning; and nothing is said of oneDNN."""
    model = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 8))
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        edgewise.compile(model, tokens, quantize="int8", calibration=[(tokens,)], verbose=verbose)
    warned = [str(w.message) for w in caught]
    assert any("embedding" in text for text in warned) is not verbose
    assert ("embeddings" in capsys.readouterr().err) is verbose
    assert not any("TF32" in text for text in warned)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_other_types_are_refused_with_the_remedy(scheme: str) -> None:
    x = torch.randn(2, 64, dtype=torch.float64)
    rule = r"be float32, float16 or bfloat16 to be quantized; got float64; try model\.float\(\)"
    with pytest.raises(ValueError, match=rule):
        edgewise.compile(nn.Linear(64, 8).double(), x, quantize=scheme, calibration=[x])


HALF = {
    "linear": (lambda: nn.Linear(64, 32), ROWS),
    "conv2d": (lambda: nn.Conv2d(16, 8, 3), IMAGE),
    "transposed": (lambda: nn.ConvTranspose2d(16, 8, 3), IMAGE),
}


@pytest.mark.parametrize("scheme", SCHEMES[:3])
@pytest.mark.parametrize("name", HALF)
def test_float16_is_quantized_in_one_delegate(name: str, scheme: str) -> None:
    build, shape = HALF[name]
    torch.manual_seed(0)
    model, x = build().half().eval(), torch.randn(shape).half()
    program = edgewise.compile(
        model, x, quantize=scheme, calibration=[x] if scheme == "int8" else None, verbose=False
    )
    report = program.delegation_report()
    assert len(report.delegates) == 1
    assert report.share() == 1
    assert len(program.buffer) < 0.85 * len(edgewise.compile(model, x, verbose=False).buffer)
    want = model(x).detach().float().numpy()
    got = np.asarray(edgewise.load(program.buffer)(x)).astype(np.float32)
    assert np.abs(got - want).max() <= 0.03 * np.abs(want).max()


@pytest.mark.parametrize(
    ("pooling", "because"),
    [
        (nn.AvgPool2d(2, ceil_mode=True, divisor_override=4), "got divisor_override=4"),
        (nn.AvgPool2d(2, divisor_override=3), "got divisor_override=3"),
    ],
)
def test_averages_without_a_kernel_stay_in_float_and_are_told(
    pooling: nn.Module, because: str
) -> None:
    model, x = nn.Sequential(nn.Conv2d(16, 8, 3), pooling).eval(), torch.randn(1, 16, 8, 8)
    program = edgewise.compile(model, x, quantize="int8", calibration=[x], verbose=False)
    (left,) = program.delegation_report().unquantized
    assert left.operator == "aten.avg_pool2d.default"
    assert because in left.reason


def test_a_conversion_that_changes_nothing_is_not_told() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x).type_as(x).to(x.dtype))

    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepare_pt2e(torch.export.export(Net(), (torch.randn(2, 4),)).module(), quantizer)
    assert quantizer.left == []


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(16, 8, 4, padding="same"), SEQUENCE),
        (nn.Conv2d(16, 8, (2, 3), padding="same"), IMAGE),
        (nn.Conv2d(16, 8, 2, padding="same", dilation=(1, 2)), IMAGE),
    ],
    ids=["of a sequence", "of an image", "with gaps"],
)
@pytest.mark.parametrize("backend", ["xnnpack", "neutron-imxrt700-reference", "ethos-u55-128"])
def test_uneven_padding_leaves_convolutions_in_integers(
    layer: nn.Module, shape: tuple[int, ...], backend: str
) -> None:
    pytest.importorskip("ai_edge_litert" if backend.startswith("neutron") else "ethosu")
    x = torch.randn(shape)
    program = edgewise.compile(
        layer.eval(), (x,), backend=backend, quantize="int8", calibration=[x], verbose=False
    )
    report = program.delegation_report()
    assert (len(report.delegates), report.share("macs")) == (1, 1)
    assert "become float32" not in str(report)
    found = torch.as_tensor(np.asarray(edgewise.load(program.buffer)(x.numpy())))
    with torch.no_grad():
        assert (found - layer(x)).abs().max() <= 0.04 * layer(x).abs().max()
