"""Operators in steps compute what the operators compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgewise.quantize.composites import (
    SLICES,
    broadcast_operands,
    expand_operands,
    multiply_as_linear,
)
from edgewise.quantize.constant_indices import gather_by_products, take_by_slices
from edgewise.quantize.decompose import decompose
from edgewise.quantize.fold import drop_notes
from edgewise.quantize.smooth_and_norms import SMOOTH, VARIANCES

Function = Callable[[torch.Tensor], torch.Tensor]
Rewrite = Callable[[torch.fx.GraphModule, Callable[[torch.fx.Node], bool]], bool]


class Fn(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.table = nn.Parameter(torch.randn(4, 5))
        self.square = nn.Parameter(torch.randn(5, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def program(model: nn.Module, x: torch.Tensor) -> torch.fx.GraphModule:
    return torch.export.export(model, (x,)).module()


STEPS: dict[str, Function] = {
    "elu": F.elu,
    "elu-alpha": lambda x: F.elu(x, 0.3),
    "elu-in-place": lambda x: F.elu_(x * 1, 2.0),
    "celu": lambda x: F.celu(x, 1.5),
    "selu": F.selu,
    "softplus": F.softplus,
    "softplus-beta": lambda x: F.softplus(x, 3, 10),
    "mish": F.mish,
    "root": lambda x: x.abs() ** 0.5,
    "expand": lambda x: x[:, :, None].expand(3, 4, 2, 5) * 2,
    "expand-in-front": lambda x: x.expand(2, -1, 4, 5) * 2,
    "expand-as": lambda x: x[:, :1].expand_as(x) * 2,
    "roll": lambda x: x.roll(2, 1),
    "roll-back": lambda x: x.roll((-7, 1), (2, 0)),
    "roll-all": lambda x: x.roll(-3),
    "roll-nowhere": lambda x: x.roll((4, 5), (1, 2)),
}


ORDER = torch.tensor([1, 2, 3, 0, 1, 4])
TAKEN: dict[str, Function] = {
    "index_select": lambda x: x.index_select(1, torch.arange(1, 3)),
    "index_select, last": lambda x: x.index_select(-1, ORDER),
    "one": lambda x: x[..., [-2], :],
    "several": lambda x: x[:, [3, 0, 1, 1]],
    "all": lambda x: x[:, [0, 1, 2, 3]],
    "a matrix of indices": lambda x: x[:, torch.tensor([[1, 2, -1], [0, 1, 2]])],
}
LEFT: dict[str, Function] = {
    "two indices": lambda x: x[[0, 1], [2, 3]],
    "booleans": lambda x: x[torch.tensor([True, False, True])],
    "indices that are computed": lambda x: x.index_select(1, x.flatten()[:2].long() * 0),
    "many slices": lambda x: x[:, :, [0, 2] * 40],
}


def _distances(rows: int, columns: int, shift: int, most: int) -> torch.Tensor:
    return (torch.arange(columns) - torch.arange(rows)[:, None] + shift).clamp(0, most)


RELATIVE: dict[str, Function] = {
    "by distance": lambda x: x.gather(-1, _distances(4, 4, 3, 6).expand(3, 4, 4)),
    "cut": lambda x: x.gather(2, _distances(4, 6, 2, 4).expand(3, 4, 6)),
    "back": lambda x: x.gather(-1, (6 - _distances(4, 3, 3, 6)).expand(3, 4, 3)),
    "each": lambda x: x.gather(-1, _distances(4, 4, 3, 6).repeat(3, 1, 1)),
    "a matrix": lambda x: x[0].gather(-1, _distances(4, 5, 3, 6)),
    "one row": lambda x: x[:, :1].gather(-1, _distances(1, 5, 1, 6).expand(3, 1, 5)),
}
OTHERWISE: dict[str, Function] = {
    "not by distance": lambda x: x.gather(-1, torch.tensor([[0, 1], [1, 1], [2, 0], [0, 0]])[None]),
    "others in each matrix": lambda x: x[:2].gather(
        -1, torch.stack([_distances(4, 4, 3, 6), _distances(4, 4, 2, 6)])
    ),
    "along rows": lambda x: x.gather(1, _distances(3, 7, 0, 3).expand(3, 3, 7)),
    "computed": lambda x: x.gather(-1, x.argmax(-1, keepdim=True)),
    "of some rows": lambda x: x.gather(-1, _distances(3, 4, 2, 6).expand(3, 3, 4)),
}


@pytest.mark.parametrize(
    ("rewrite", "function", "size"),
    [
        *(pytest.param(take_by_slices, TAKEN[name], 5, id=name) for name in TAKEN),
        *(pytest.param(gather_by_products, RELATIVE[name], 7, id=name) for name in RELATIVE),
    ],
)
def test_constant_indices_are_slices_and_products(
    rewrite: Rewrite, function: Function, size: int
) -> None:
    x = torch.randn(3, 4, size)
    module = program(Fn(function), x)
    drop_notes(module)
    assert rewrite(module, lambda node: True)
    targets = [str(node.target) for node in module.graph.nodes]
    assert not any("index" in target or "gather" in target for target in targets)
    assert torch.equal(module(x), function(x))


@pytest.mark.parametrize(
    ("rewrite", "function", "size"),
    [
        *(pytest.param(take_by_slices, LEFT[name], 5, id=name) for name in LEFT),
        *(pytest.param(gather_by_products, OTHERWISE[name], 7, id=name) for name in OTHERWISE),
    ],
)
def test_other_indices_stay(rewrite: Rewrite, function: Function, size: int) -> None:
    module = program(Fn(function), torch.randn(3, 4, size))
    drop_notes(module)
    assert not rewrite(module, lambda node: True)


@pytest.mark.parametrize(
    ("function", "copies"),
    [
        (lambda x: x / x.norm(dim=1, keepdim=True).expand_as(x), 0),
        (lambda x: x[0].expand(3, 4, 5) * x, 0),
        (lambda x: x * x[:, :1].expand(3, 4, 5), 0),
        (lambda x: x[:1].expand(3, 4, 5) + x[:, :1].expand(3, 4, 5), 1),  # neither is the size
        (lambda x: x[:1].expand(3, 4, 5).exp() + x, 1),
        (lambda x: x.half() * x[0, 0, 0].expand(3, 4, 5), 1),  # of which the result has the type
    ],
)
def test_operands_are_broadcast_without_copies(function: Function, copies: int) -> None:
    x = torch.randn(3, 4, 5)
    module = program(Fn(function), x)
    broadcast_operands(module)
    assert sum("expand" in str(node.target) for node in module.graph.nodes) == copies
    torch.testing.assert_close(module(x), function(x))


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_operator(name: str) -> None:
    x = 4 * torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    module = program(Fn(STEPS[name]), x)
    assert decompose(module, {**SMOOTH, **SLICES})
    torch.testing.assert_close(module(x), STEPS[name](x), rtol=1e-5, atol=1e-5)


PRODUCTS: dict[str, tuple[Callable[[Fn], Function], bool]] = {
    "part": (lambda m: lambda x: x @ m.table.T[:5, :3], True),
    "transpose": (lambda m: lambda x: x @ m.table.transpose(0, 1), True),
    "transpose-back": (lambda m: lambda x: x @ m.table.transpose(-1, -2), True),
    "permute": (lambda m: lambda x: x @ m.square.permute(1, 0), True),
    "permute-nothing": (lambda m: lambda x: x @ m.square.permute(0, 1), True),
    "of the input": (lambda m: lambda x: x @ (m.square + x[0]), False),
    "numpy": (lambda m: lambda x: x @ m.table.T, True),
    "mT": (lambda m: lambda x: x @ m.square.mT, True),
    "itself": (lambda m: lambda x: x @ m.square, True),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_transposed_parameters_are_layers(name: str) -> None:
    made, is_layer = PRODUCTS[name]
    model = Fn(lambda x: x)
    model.function = made(model)
    x = torch.randn(3, 5)
    module = program(model, x)
    assert multiply_as_linear(module, lambda node: True) == is_layer
    assert ("linear" in module.code) == is_layer
    torch.testing.assert_close(module(x), model(x))


OPERANDS: dict[str, tuple[Function, int]] = {
    "outer": (lambda x: x[:, :1] * x[:, :, :1], 1),
    "one is whole": (lambda x: x * x[:, :1], 0),
    "batches": (lambda x: x[:, None] @ x[None, :1].transpose(-1, -2), 1),
    "batches of both": (lambda x: x[:, None] @ x[None].transpose(-1, -2), 2),
    "one matrix": (lambda x: x @ x[0].T, 0),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_are_repeated(name: str) -> None:
    function, count = OPERANDS[name]
    x = torch.randn(3, 4, 5)
    module = program(Fn(function), x)
    assert expand_operands(module, lambda node: True) == bool(count)
    module.recompile()
    repeated = [n for n in module.graph.nodes if n.target is torch.ops.aten.expand.default]
    assert len(repeated) == count
    torch.testing.assert_close(module(x), function(x))


VARIANCE: dict[str, Function] = {
    "last": lambda x: x.var(-1),
    "rows": lambda x: x.var(1, keepdim=True),
    "apart": lambda x: torch.var(x, (0, 2), unbiased=False),
    "apart, kept": lambda x: torch.var(x, (2, 0), correction=0, keepdim=True),
    "all": lambda x: x.var(),
    "all, by name": lambda x: torch.var(x, correction=2),
}


@pytest.mark.parametrize("name", VARIANCE)
def test_variances_are_sums_of_squares(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5) + 2
    model = program(Fn(VARIANCE[name]), x)
    drop_notes(model)
    assert decompose(model, VARIANCES)
    assert "aten.var" not in model.code
    torch.testing.assert_close(model(x), VARIANCE[name](x))
