"""Transposed convolutions by their polyphase components are transposed convolutions."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch import nn

from edgewise.quantize.decompose import decompose
from edgewise.quantize.transposed import Geometry, polyphase

PAIRS = ((1, 1), (2, 2), (3, 2), (1, 4))
_ALL = [
    Geometry(kernel, stride, padding, more, dilation, groups)
    for stride, kernel, dilation, groups in itertools.product(
        PAIRS, ((1, 1), (2, 3), (4, 5)), ((1, 1), (2, 3)), (1, 2, 6)
    )
    for padding in ((0, 0), (1, 2))
    for more in ((0, 0), (stride[0] - 1, stride[1] - 1))
    if all(d * (k - 1) + 1 >= p for k, d, p in zip(kernel, dilation, padding, strict=True))
]
GEOMETRIES = random.Random(0).sample(_ALL, 45)


def _layer(dimensions: int, g: Geometry) -> nn.Module:
    made: Any = nn.ConvTranspose1d if dimensions == 1 else nn.ConvTranspose2d
    every = (g.kernel, g.stride, g.padding, g.output_padding)
    kernel, stride, padding, more = (n[-dimensions:] for n in every)
    dilation = g.dilation[-dimensions:]
    layer: nn.Module = made(6, 12, kernel, stride, padding, more, g.groups, dilation=dilation)
    return layer.double().eval()


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_the_components_are_the_convolution(dimensions: int, groups: int) -> None:
    for geometry in (g for g in GEOMETRIES if g.groups == groups):
        layer = _layer(dimensions, geometry)
        x = torch.randn(2, 6, *(5, 4)[-dimensions:], dtype=torch.float64)
        expected = layer(x)
        if not expected.numel():
            continue
        module = torch.export.export(layer, (x,)).module()
        assert decompose(module, polyphase(lambda g: False)), geometry
        assert not any("transpose" in str(n.target) for n in module.graph.nodes), geometry
        torch.testing.assert_close(module(x), expected, rtol=1e-12, atol=1e-12, msg=str(geometry))


def test_what_is_native_stays() -> None:
    seen = []

    def native(geometry: Geometry) -> bool:
        seen.append(geometry)
        return True

    layer = nn.ConvTranspose2d(6, 4, (3, 5), (1, 2), (0, 1), (0, 1), 2, dilation=(2, 1))
    module = torch.export.export(layer, (torch.randn(1, 6, 5, 4),)).module()
    assert not decompose(module, polyphase(native))
    assert seen == [Geometry((3, 5), (1, 2), (0, 1), (0, 1), (2, 1), 2)]
