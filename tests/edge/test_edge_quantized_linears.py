"""Layers of int8 weights that somebody wrote by hand keep their weights as integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import edgewise
from edgewise.backends.xnnpack import XnnpackPartitioner
from edgewise.runtime import Runtime

INPUTS, OUTPUTS = 96, 64


class Layer(torch.nn.Module):
    def __init__(self, call: Callable[[Any, torch.Tensor], torch.Tensor], dtype: torch.dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(OUTPUTS, INPUTS, generator=generator)
        scales = weight.abs().amax(1) / 127
        integers = (weight / scales.unsqueeze(1)).round().to(torch.int8)
        self.register_buffer("weight", integers)
        self.register_buffer("scales", scales.to(dtype))
        self.register_buffer("one", scales[:1].to(dtype).clone())
        self.register_buffer("bias", torch.randn(OUTPUTS, generator=generator).to(dtype))
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x)


def cast(layer: Any, x: torch.Tensor) -> Any:
    return layer.weight.to(dtype=x.dtype)


# The layer | whether its weights stay integers.
CASES: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], bool]] = {
    "scales": (lambda m, x: F.linear(x, cast(m, x)) * m.scales, True),
    "scales, bias": (lambda m, x: F.linear(x, cast(m, x)) * m.scales + m.bias, True),
    "one scale": (lambda m, x: F.linear(x, cast(m, x)) * m.one, True),
    "scales before the bias": (lambda m, x: F.linear(x, cast(m, x), m.bias) * m.scales, False),
    "no scales": (lambda m, x: F.linear(x, cast(m, x)) / 100, False),
    "scales by the token": (lambda m, x: F.linear(x, cast(m, x)) * x[..., :1], False),
}


@pytest.mark.parametrize("delegated", [True, False], ids=["xnnpack", "portable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_weights_stay_integers(name: str, dtype: torch.dtype, delegated: bool) -> None:
    call, stay = CASES[name]
    module = Layer(call, dtype).eval()
    x = torch.randn(2, 3, INPUTS, generator=torch.Generator().manual_seed(1)).to(dtype)
    program = edgewise.to_edge_transform_and_lower(
        torch.export.export(module, (x,)),
        partitioner=[XnnpackPartitioner()] if delegated else None,
    ).to_executorch()
    sizes = OUTPUTS * INPUTS
    assert (len(program.buffer) < sizes * (dtype.itemsize - 0.5) + 4000) == stay
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    (got,) = method.execute([x])
    want = module.double()(x.double())
    error = np.abs(np.asarray(got, dtype=np.float64) - want.numpy()).max() / want.abs().max()
    assert error < (1e-6 if dtype == torch.float32 else 4e-3)
