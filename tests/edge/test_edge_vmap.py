"""Parts of `torch.vmap` in a model: their batches become dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import edgewise
from support import RUNTIMES, Fn, assert_close, eager64, export

pytestmark = pytest.mark.matrix

X, Y = torch.randn(3, 5), torch.randn(3, 5)


def window(x: torch.Tensor) -> torch.Tensor:
    """A mask by indices of queries and keys, as transformers write it."""
    index = torch.arange(5)
    seen = torch.vmap(lambda i: torch.vmap(lambda j: (i >= j) & (i - j < 3))(index))(index)
    return torch.where(seen, x[:, None], -torch.inf).softmax(-1)


def written(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda a: F.layer_norm(a, (5,)).relu_())(x)


FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "products": lambda x, y: torch.vmap(lambda a, b: (a * b).sum() + 1)(x, y),
    "layers": lambda x, y: torch.vmap(lambda a, b: F.linear(a[None], b[None])[0])(x, y),
    "each with each": lambda x, y: torch.vmap(
        torch.vmap(lambda a, b: a * b > 0, (None, 0)), (0, None)
    )(x[:, 0], y[:, 1]).float(),
    "in chunks": lambda x, y: torch.vmap(lambda a: a.softmax(0), chunk_size=2)(x) + y,
    "new tensors": lambda x, y: torch.vmap(
        lambda a: a.new_ones((), dtype=torch.bool) & (a.sum() > 0)
    )(x).float(),
    "a mask": lambda x, y: window(x + y),
    "written in place": lambda x, y: written(x) + y,
}


FIXED = {"in chunks", "written in place"}
"""Of which torch.export fixes the batch."""


@pytest.mark.parametrize("runtime", [pytest.param("peer", marks=pytest.mark.peer), "ours"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_what_eager_computes(name: str, runtime: str) -> None:
    module = Fn(FUNCTIONS[name])
    pte = edgewise.compile(module, (X, Y), verbose=False).buffer
    assert_close(RUNTIMES[runtime](pte, (X, Y))[0], eager64(module, (X, Y)), floor=1e-5)


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - FIXED))
def test_of_an_open_batch(name: str) -> None:
    module = Fn(FUNCTIONS[name])
    batch = {0: Dim("n", min=2, max=7)}
    program = export(module, (X, Y), dynamic_shapes=((batch, batch),))
    pte = edgewise.compile(program, verbose=False).buffer
    calls: list[Any] = [(X, Y), (torch.cat([X, Y]), torch.cat([Y, X]))]
    for call, got in zip(calls, RUNTIMES["ours"](pte, *calls), strict=True):
        assert_close(got, eager64(module, call), floor=1e-5)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.behind = torch.nn.Linear(5, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.vmap(lambda row: row * torch.sigmoid(row.sum()))(self.before(x))
        return self.behind(y.relu())


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic"])
def test_quantized(scheme: str) -> None:
    model = Layers().eval()
    pte = edgewise.compile(model, (X,), quantize=scheme, calibration=[(X,), (Y,)], verbose=False)
    (got,) = RUNTIMES["ours"](pte.buffer, (X,))[0]
    wanted = model(X)
    assert (got - wanted).abs().max() < 0.05 * wanted.abs().max()
