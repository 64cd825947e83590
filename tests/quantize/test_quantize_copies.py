"""Conversions that convert nothing do not end what is quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUQuantizer
from edgewise.backends.neutron import NeutronQuantizer
from edgewise.backends.xnnpack import XNNPACKQuantizer
from edgewise.quantize.copies import drop_conversions
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
