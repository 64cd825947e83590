"""Conversions that convert nothing do not end what is quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from annotations import sqnr_db
from torch import nn

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUQuantizer
from edgewise.backends.neutron import NeutronQuantizer
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize.copies import drop_conversions, view_by_reshape
from edgewise.quantize.flow import quantize
from edgewise.quantize.fold import drop_notes
from support import Fn

X = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
aten = torch.ops.aten
LAST = torch.channels_last


def _written(x: torch.Tensor, **options: Any) -> torch.Tensor:
    y = x.to(torch.float32, **options)
    y.mul_(2)
    return x + y


# By name: the function, and which operators stand for the conversions.
CASES: dict[str, tuple[Callable[[torch.Tensor], Any], list[Any]]] = {
    "same type": (lambda x: x.to(torch.float32) + 1, []),
    "float": (lambda x: x.float() + 1, []),
    "same place": (lambda x: x.to("cpu") + 1, []),
    "type of another": (lambda x: x.type_as(x.abs()) + 1, []),
    "like another": (lambda x: x.to(x.abs()) + 1, []),
    "memory format": (lambda x: x.to(memory_format=LAST) + 1, [aten.contiguous.default]),
    "memory format that there is": (
        lambda x: x.contiguous(memory_format=LAST).to(memory_format=LAST) + 1,
        [aten.contiguous.default],
    ),
    "copy": (lambda x: x.to(torch.float32, copy=True) + 1, []),
    "another type": (lambda x: x.to(torch.float64) + 1, [aten.to.dtype]),
    "written": (lambda x: _written(x.abs()), [aten.to.dtype]),
    "copy, written": (lambda x: _written(x, copy=True), [aten.to.dtype]),
}
STANDS = {
    aten.contiguous.default,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.device,
    aten.to.other,
}


@pytest.mark.parametrize("name", CASES)
def test_what_stands_for_a_conversion(name: str) -> None:
    function, left = CASES[name]
    model = torch.export.export(Fn(function).eval(), (X,)).module()
    drop_notes(model)
    want = model(X.clone())
    drop_conversions(model)
    assert [n.target for n in model.graph.nodes if n.target in STANDS] == left
    found = model(X.clone())
    assert torch.equal(found, want)
    assert found.stride() == want.stride()


class Converting(nn.Module):
    """With conversions that convert nothing, or without them."""

    def __init__(self, converts: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.converts = converts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.converts:
            return self.second(self.first(x).relu()).relu().flatten(1)
        y = self.second(self.first(x).float().relu().to(torch.float32))
        return y.to(x).relu().flatten(1)


QUANTIZERS = {
    "xnnpack": XNNPACKQuantizer,
    "ethos-u": lambda: EthosUQuantizer(EthosUCompileSpec("ethos-u55-128")),
    "neutron": NeutronQuantizer,
}


@pytest.mark.parametrize("name", QUANTIZERS)
def test_nothing_is_quantized_around_them(name: str) -> None:
    """An activation behind a conversion belongs to the convolution before it, as without."""
    made = []
    for converts in (True, False):
        torch.manual_seed(0)
        model = Converting(converts).eval()
        program = quantize(
            model, (X,), "int8", QUANTIZERS[name], calibration=[(X,)], progress=False
        )
        made.append([n for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)])
    assert len(made[0]) == len(made[1])


def _written_behind(x: torch.Tensor) -> torch.Tensor:
    y = x.abs()
    view = y.view(-1)
    y.mul_(2)
    return view + 1


VIEWS = {
    "alone": (lambda x: x.view(2, -1) + 1, 0),
    "written": (lambda x: _written(x.abs().view(-1)), 1),
    "of what is written": (_written_behind, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_become_reshapes_unless_they_are_written(name: str) -> None:
    function, left = VIEWS[name]
    model = torch.export.export(Fn(function).eval(), (X,)).module()
    want = model(X.clone())
    view_by_reshape(model)
    assert [n.target for n in model.graph.nodes].count(aten.view.default) == left
    assert torch.equal(model(X.clone()), want)


class Patches(nn.Module):
    """A norm of transposed patches, whose result is viewed as an image again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv2d(3, 8, 2, stride=2), nn.LayerNorm(8)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.embed(x).flatten(2).transpose(1, 2))
        return self.head(y.view(1, 4, 2, 16))


@pytest.mark.parametrize("quantizer", [NeutronQuantizer, XNNPACKQuantizer])
def test_a_view_behind_a_norm_that_is_written_out(quantizer: Any) -> None:
    model, x = Patches().eval(), torch.randn(1, 3, 8, 8)
    program = quantize(model, (x,), "int8", quantizer, calibration=[(x,)], progress=False)
    with torch.no_grad():
        assert sqnr_db(model(x), program.module()(x)) > 15
