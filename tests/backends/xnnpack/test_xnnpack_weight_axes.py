"""Scales along each axis of a convolution's weight: integers where XNNPACK scales by output
channel, else floats between the two quantizations, and in both the result of eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import quantized
import torch
from quantized_cases import qd
from torch.nn.functional import conv2d, conv_transpose2d

from edgewise.backends.xnnpack import XnnpackPartitioner
from support import operators, run_ours

SIZES = {"dense": (4, 6, 1), "two groups": (6, 6, 2), "depthwise": (4, 4, 4)}


class ScaledAlong(torch.nn.Module):
    """int8 image [1, c, 7, 7] -> int8, the weight's scales all different."""

    def __init__(self, sizes: tuple[int, int, int], axis: int, transposed: bool) -> None:
        super().__init__()
        into, out, groups = sizes
        shape = (into, out // groups, 4, 4) if transposed else (out, into // groups, 4, 4)
        random = torch.Generator().manual_seed(axis)
        self.convolve = conv_transpose2d if transposed else conv2d
        self.groups, self.axis = groups, axis
        weight = torch.randint(-127, 128, shape, generator=random).to(torch.int8)
        self.register_buffer("weight", weight)
        scales = 0.001 + 0.01 * torch.rand(shape[axis], generator=random)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(shape[axis], dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = qd.dequantize_per_channel.default(
            self.weight, self.scales, self.zeros, self.axis, -127, 127, torch.int8
        )
        x = qd.dequantize_per_tensor.default(x, 0.02, 0, -128, 127, torch.int8)
        y = self.convolve(x, weight, groups=self.groups)
        return qd.quantize_per_tensor.default(y, 0.1, 3, -128, 127, torch.int8)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_scales_along_an_axis(transposed: bool, name: str, axis: int) -> None:
    module = ScaledAlong(SIZES[name], axis, transposed).eval()
    random = torch.Generator().manual_seed(7)
    x = (torch.randint(-128, 128, (1, SIZES[name][0], 7, 7), generator=random).to(torch.int8),)
    pte = quantized.lower(torch.export.export(module, x), XnnpackPartitioner()).buffer
    assert operators(pte) == ["delegate"]
    in_integers = not quantized.float_kinds(pte)
    along_outputs = {0, 1} if name == "depthwise" else {1}
    assert in_integers == (axis in (along_outputs if transposed else {0}))
    want = module(*x).numpy().astype(int)
    assert len(np.unique(want)) > 20  # neither constant nor clamped
    got = np.asarray(run_ours(pte, x)[0][0]).astype(int)
    assert np.abs(got - want).max() <= 1
