"""Images in another size, by products with weights, are what `interpolate` makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgewise.quantize.composites import MOST_WEIGHTS
from edgewise.quantize.resampling import Resampling, multiply_by_weights

aten = torch.ops.aten
SIZES: dict[int, list[dict[str, Any]]] = {
    1: [{"size": 20}, {"size": 4}, {"scale_factor": 3}, {"scale_factor": 1.7}, {"size": 7}],
    2: [
        {"size": (20, 14)},
        {"size": (4, 3)},
        {"size": (9, 14)},
        {"size": (1, 1)},
        {"scale_factor": 2},
        {"scale_factor": (1.7, 0.6)},
        {"scale_factor": (1.05, 1.0)},
        {"scale_factor": 1.7, "recompute_scale_factor": True},
    ],
    3: [{"size": (5, 12, 9)}, {"scale_factor": 2}],
}
MODES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "nearest": ((1, 2, 3), {"mode": "nearest"}),
    "nearest-exact": ((1, 2, 3), {"mode": "nearest-exact"}),
    "linear": ((1,), {"mode": "linear"}),
    "linear, corners": ((1,), {"mode": "linear", "align_corners": True}),
    "bilinear": ((2,), {"mode": "bilinear"}),
    "bilinear, corners": ((2,), {"mode": "bilinear", "align_corners": True}),
    "bilinear, antialias": ((2,), {"mode": "bilinear", "antialias": True}),
    "bicubic": ((2,), {"mode": "bicubic"}),
    "bicubic, corners": ((2,), {"mode": "bicubic", "align_corners": True}),
    "bicubic, antialias": ((2,), {"mode": "bicubic", "antialias": True}),
    "trilinear": ((3,), {"mode": "trilinear"}),
    "trilinear, corners": ((3,), {"mode": "trilinear", "align_corners": True}),
}


class Resized(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **self.how)


def without(resized: nn.Module, x: torch.Tensor) -> torch.fx.GraphModule:
    """The program, without resampling."""
    module = torch.export.export(resized, (x,)).module()
    multiply_by_weights(module, lambda call: False, lambda node: True)
    assert not any("upsample" in str(node.target) for node in module.graph.nodes)
    return module


@pytest.mark.parametrize("mode", MODES)
def test_products_are_what_interpolate_gives(mode: str) -> None:
    ranks, how = MODES[mode]
    for rank in ranks:
        for size in SIZES[rank]:
            x = torch.randn(2, 3, *(5, 9, 7)[3 - rank :], dtype=torch.float64)
            resized = Resized(**how, **size)
            torch.testing.assert_close(
                without(resized, x)(x), resized(x), rtol=1e-5, atol=3e-6, msg=f"{mode} {size}"
            )


def test_nearest_by_whole_numbers_are_copies() -> None:
    module = without(Resized(scale_factor=(3, 2)), torch.randn(1, 2, 5, 4))
    assert not any(n.target is aten.linear.default for n in module.graph.nodes)
    long = torch.randn(1, 1, 4000)
    assert torch.equal(without(Resized(scale_factor=4), long)(long), long.repeat_interleave(4, 2))


def test_what_needs_too_many_weights_stays() -> None:
    size = int(MOST_WEIGHTS**0.5)
    x = torch.randn(1, 1, size)
    module = torch.export.export(Resized(size=size + 1, mode="linear"), (x,)).module()
    assert not multiply_by_weights(module, lambda call: False, lambda node: True)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"size": (18, 14)}, True),
        ({"scale_factor": 2}, True),
        ({"scale_factor": 1.7}, False),
        ({"scale_factor": (2.1, 2)}, False),  # 18 rows, at steps of 1 / 2.1
        ({"scale_factor": 1.7, "align_corners": True}, True),
        ({"scale_factor": 1.7, "recompute_scale_factor": True}, True),
    ],
)
def test_what_is_native_is_asked_of_the_call(how: dict[str, Any], expected: bool) -> None:
    seen: list[Resampling] = []
    x = torch.randn(1, 2, 9, 7)
    module = torch.export.export(Resized(mode="bilinear", **how), (x,)).module()

    def native(call: Resampling) -> bool:
        seen.append(call)
        return True

    assert not multiply_by_weights(module, native, lambda node: True)
    (call,) = seen
    assert (call.before, call.target) == ((9, 7), aten.upsample_bilinear2d.vec)
    assert call.is_by_sizes is expected
