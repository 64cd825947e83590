"""What is computed from nothing is a constant before observers are put in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from edgewise.quantize.fold import drop_notes, fold_constants
from support import needs

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    function: Callable[..., torch.Tensor]
    left: set[str]
    """Calls that stay."""
    size: tuple[int, ...] = (4, 6)


def _positions(x: torch.Tensor) -> torch.Tensor:
    index = torch.arange(x.shape[1])
    far = (torch.log(index.float()) * 2).clamp(0, 7)  # of 0 minus infinity, which nobody reads
    return x + torch.where(index < 1, torch.zeros(()), far)


def _written(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(6)
    total.add_(x[0])
    return total + torch.ones(6)


def _written_out(x: torch.Tensor) -> torch.Tensor:
    total = torch.tensor([1.0, 2, 3, 4, 5, 6])
    total.add_(x[0])
    return total + torch.ones(6)


def _written_view(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4, 6)
    total.view(24)[:6].add_(x[0])
    return total + x


CASES = {
    "positions": Case(_positions, {"aten.add.Tensor"}),
    "a filter of ones": Case(
        lambda x: F.conv2d(x, torch.ones(3, 1, 3, 3) / 9, groups=3),
        {"aten.conv2d.default"},
        (1, 3, 5, 5),
    ),
    "a mask": Case(
        lambda x: x.masked_fill(torch.ones(4, 6).tril() == 0, 0.0), {"aten.masked_fill.Scalar"}
    ),
    "written": Case(
        _written, {"aten.zeros.default", "aten.select.int", "aten.add_.Tensor", "aten.add.Tensor"}
    ),
    "written, of numbers that are written out": Case(
        _written_out,
        {
            "aten.lift_fresh_copy.default",
            "aten.select.int",
            "aten.add_.Tensor",
            "aten.add.Tensor",
        },
    ),
    "random": Case(
        lambda x: x + torch.rand(6) * 0, {"aten.rand.default", "aten.mul.Tensor", "aten.add.Tensor"}
    ),
    "of another's size": Case(
        lambda x: x * (x.new_ones(4, 6).tril() + torch.full_like(x, 2.0) * torch.zeros_like(x)),
        {"aten.mul.Tensor"},
    ),
    "of another's type": Case(
        lambda x: x + torch.arange(6).type_as(x) * x.new_full((), 0.5), {"aten.add.Tensor"}
    ),
    "numbers that are written out": Case(
        lambda x: x * (torch.tensor([1.0, 2, 3, 4, 5, 6]) + 1), {"aten.mul.Tensor"}
    ),
    "large": Case(
        lambda x: x + torch.ones(600, 600).sum(),
        {"aten.ones.default", "aten.sum.default", "aten.add.Tensor"},
    ),
}


class Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _exported(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.fx.GraphModule:
    model = torch.export.export(Function(function), (x,)).module()
    drop_notes(model)
    return model


def _calls(model: torch.fx.GraphModule) -> set[str]:
    return {str(n.target) for n in model.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_computed_from_nothing_is_a_constant(case: Case) -> None:
    x = torch.randn(case.size, generator=torch.Generator().manual_seed(0))
    model = _exported(case.function, x)
    fold_constants(model)
    assert _calls(model) == case.left
    for _ in range(2):  # nothing that was folded is written
        torch.testing.assert_close(model(x), case.function(x), equal_nan=True)


def test_views_of_what_is_written_stay() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    model = _exported(_written_view, x)
    fold_constants(model)
    for _ in range(2):
        torch.testing.assert_close(model(x), _written_view(x))


def test_parameters_are_left_alone() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (self.weight * torch.full((6,), 2.0))

    model = torch.export.export(Scaled(), (torch.randn(4, 6),)).module()
    fold_constants(model)
    assert _calls(model) == {"aten.mul.Tensor"}
    assert [name for name, _ in model.named_parameters()] == ["weight"]
    model(torch.randn(4, 6)).sum().backward()
    assert model.weight.grad is not None


class Standardized(nn.Conv2d):
    """Its filters are normalized when it is called, as normalizer-free networks do it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = self.weight.reshape(1, len(self.weight), -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0)
        return self._conv_forward(x, weight.reshape_as(self.weight), self.bias)


@pytest.mark.parametrize("backend", ["xnnpack", "ethos-u85-256", "neutron-imxrt700-reference"])
def test_filters_that_are_computed_are_constants(backend: str) -> None:
    needs(backend)
    torch.manual_seed(0)
    model, x = nn.Sequential(Standardized(3, 8, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    program = edgewise.compile(
        model, (x,), backend=backend, quantize="int8", calibration=[(x,)], verbose=False
    )
    assert program.delegation_report().share("macs") == 1
    expected = model(x).detach().numpy()
    off = edgewise.load(program.buffer)(x.numpy()) - expected
    assert abs(off).max() < 0.03 * abs(expected).max()
