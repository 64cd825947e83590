"""Regions that an export keeps as graphs of their own."""

from __future__ import annotations

import pytest
import torch

import edgewise
from edgewise.errors import InvalidGraphError
from support import assert_close, eager64, lower, operators, partitioners, run_ours

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class NoGrad(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        return y + x


class AutocastOff(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x + 1).cos()


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                z = y.sin()
        return z + x, y


class AutocastOn(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return torch.mm(x, x.t())


@pytest.mark.parametrize(
    "module", [NoGrad(), AutocastOff(), Nested()], ids=lambda m: type(m).__name__
)
def test_become_part_of_the_graph(module: torch.nn.Module) -> None:
    exported = torch.export.export(module, (X,))  # with gradients on, as users export
    before = str(exported)
    program = edgewise.to_edge_transform_and_lower(exported, partitioner=partitioners("xnnpack"))
    pte = program.to_executorch().buffer
    assert operators(pte) == ["delegate"]
    assert_close(run_ours(pte, (X,))[0], eager64(module, (X,)))
    assert str(exported) == before


@pytest.mark.parametrize(
    ("dtype", "partitioner"), [(torch.bfloat16, None), (torch.float16, "xnnpack")]
)
def test_autocast_that_is_on_is_refused(dtype: torch.dtype, partitioner: str | None) -> None:
    """But to bfloat16, where that is computed in float32."""
    with pytest.raises(InvalidGraphError, match=rf"autocast must be off.*{dtype}.*model.to"):
        lower(AutocastOn(dtype), (X,), partitioner=partitioner)
