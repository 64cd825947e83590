"""Roots and divisions as reciprocal roots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx import GraphModule

from edgewise.quantize.roots import split_roots

aten = torch.ops.aten
Function = Callable[[torch.Tensor], torch.Tensor]


class Fn(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def program(function: Function) -> tuple[GraphModule, torch.Tensor]:
    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    return torch.export.export(Fn(function), (x,)).module(), x


def _response_norm(x: torch.Tensor) -> torch.Tensor:
    size = (x * x).sum(2, keepdim=True).sqrt()
    return x * (size / (size.mean(1, keepdim=True) + 1e-6))


SPLIT: dict[str, tuple[Function, int]] = {
    "division by a root": (lambda x: x / torch.sqrt(x * x + 1), 1),
    "root of a variance": (lambda x: x / torch.sqrt((x - 1).pow(2).mean(1, True) + 1e-6), 1),
    "root that others read": (lambda x: (y := (x * x + 1).sqrt()) + x / y, 2),
    "root alone": (lambda x: (x.abs() + 1).sqrt(), 1),
    "by what is not negative": (lambda x: x / (x.abs() + 1), 1),
    "response norm": (_response_norm, 2),
    "reciprocal": (lambda x: (x.relu().amax(1) + 0.5).reciprocal(), 1),
    "by clamped numbers": (lambda x: x / x.clamp(min=0.25), 1),
    "in place": (lambda x: (x * 2).div_(x.sigmoid()), 1),
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_reciprocal_root_stands_for_it(name: str) -> None:
    function, roots = SPLIT[name]
    module, x = program(function)
    assert split_roots(module)
    targets = [n.target for n in module.graph.nodes]
    assert targets.count(aten.rsqrt.default) == roots
    assert not {aten.sqrt.default, aten.div.Tensor, aten.div_.Tensor} & {*targets}
    torch.testing.assert_close(module(x), function(x), rtol=1e-5, atol=1e-6)


KEPT: dict[str, Function] = {
    "may be negative": lambda x: x / (x + 0.1),
    "by a number": lambda x: x / 3.0,
    "of negatives that are added": lambda x: x / (x.abs() - 1),
    "by far numbers": lambda x: x / (x.exp() + 1),
    "scaled by a negative": lambda x: x / (x.abs() * -2 - 1),
    "added with a negative factor": lambda x: x / torch.add(x.abs(), x.abs(), alpha=-2),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_divisions_stay(name: str) -> None:
    module, _ = program(KEPT[name])
    code = module.code
    assert not split_roots(module)
    assert module.code == code
