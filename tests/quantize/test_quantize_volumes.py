"""Transposed convolutions of volumes are sums of those of images."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgewise.quantize.composites import VOLUMES
from edgewise.quantize.decompose import decompose

X = torch.randn(2, 4, 3, 4, 5, dtype=torch.double)

# Arguments of nn.ConvTranspose3d behind four input channels and 8 output channels.
SUMS: dict[str, tuple[int | tuple[int, ...], dict[str, object]]] = {
    "kernel is stride": (2, {"stride": 2}),
    "padding": (3, {"stride": 2, "padding": 1, "output_padding": 1}),
    "groups": (3, {"stride": 2, "padding": 1, "groups": 2}),
    "no bias": (4, {"stride": 2, "padding": 1, "bias": False}),
    "stride of one": (3, {}),
    "uneven": ((3, 4, 2), {"stride": (2, 3, 1), "padding": (1, 1, 0), "dilation": (1, 1, 2)}),
}
LEFT: dict[str, tuple[int | tuple[int, ...], dict[str, object]]] = {
    "gaps along the depth": (2, {"dilation": 2}),
    "layers that no element reaches": (1, {"stride": 2}),
    "more layers than padding": (3, {"stride": 2, "output_padding": 1}),
}


@pytest.mark.parametrize("name", [*SUMS, *LEFT])
def test_transposed(name: str) -> None:
    kernel, options = {**SUMS, **LEFT}[name]
    layer = nn.ConvTranspose3d(4, 8, kernel, **options).double().eval()  # type: ignore[arg-type]
    module = torch.export.export(layer, (X,)).module()
    assert decompose(module, VOLUMES) == (name in SUMS)
    called = {str(node.target) for node in module.graph.nodes}
    assert ("aten.conv_transpose2d.input" in called) == (name in SUMS)
    want = layer(X)
    torch.testing.assert_close(module(X), want, rtol=1e-12, atol=1e-12)
