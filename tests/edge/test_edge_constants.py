"""What is computed ahead of time, and what is left to the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from edge_support import assert_equals_eager, edge, spelling

from edgewise.edge.fold_constants import GROWTH_LIMIT
from support import Fn

X = (torch.randn(3, 4),)
ROW = torch.arange(4.0)
SIDE = int((GROWTH_LIMIT // 4) ** 0.5)

# Calls that are left.
FOLDED: dict[str, tuple[Any, dict[str, torch.Tensor], list[str]]] = {
    "a chain": (lambda x, c: x + (c * 2 + 1).view(1, 4), {"c": ROW}, ["add.Tensor"]),
    "a transposed weight": (lambda x, c: x @ c.t(), {"c": torch.randn(5, 4)}, ["mm.default"]),
    "positions": (lambda x: x + torch.arange(4), {}, ["add.Tensor"]),
    "a mask": (
        lambda x: x.masked_fill(torch.ones(3, 4, dtype=torch.bool).triu(1), 0.0),
        {},
        ["full.default", "where.self"],
    ),
    "an expanded token": (
        lambda x, c: torch.cat([c.expand(3, -1), x], 1),
        {"c": ROW[None]},
        ["cat.default"],
    ),
    "elements of a tuple": (lambda x, c: x + c.split(2)[1].repeat(2), {"c": ROW}, ["add.Tensor"]),
    "several outputs": (lambda x, c: x + c.topk(1).values, {"c": ROW}, ["add.Tensor"]),
    "within the limit": (
        lambda x: x.sum() + torch.zeros(SIDE - 1, SIDE),
        {},
        ["sum.dim_IntList", "add.Tensor"],
    ),
}

KEPT: dict[str, tuple[Any, dict[str, torch.Tensor], str]] = {
    "growth": (lambda x: x.sum() + torch.zeros(SIDE + 1, SIDE + 1), {}, "full.default"),
    "growth by expansion": (
        lambda x, c: x.sum() * c.expand(SIDE + 1, SIDE + 1),
        {"c": torch.ones(1)},
        "expand_copy.default",
    ),
    "random numbers": (lambda x: x + torch.rand(3, 4), {}, "rand.default"),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded(name: str) -> None:
    function, constants, left = FOLDED[name]
    module = Fn(function, **constants)
    program = edge(module, X)
    assert [op for op in spelling(program) if op != "full.default"] == [
        op for op in left if op != "full.default"
    ]
    assert_equals_eager(program, module, X)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    function, constants, kept = KEPT[name]
    assert kept in spelling(edge(Fn(function, **constants), X))


def test_a_written_buffer_is_not_constant() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + (self.count * 2 + 1)

    program = edge(Counter(), X)
    assert {"mul.Scalar", "add.Scalar"} <= set(spelling(program))


def test_unused_constants_are_dropped() -> None:
    program = edge(Fn(lambda x, used, unused: x + used * 2, used=ROW, unused=torch.ones(99)), X)
    names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    assert len(names) == 2, names
    assert len(program.graph_signature.input_specs) == 2


def test_operators_of_other_namespaces_are_not_folded() -> None:
    """A dequantized weight stays quantized in the file."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers the operators)

    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    weight = torch.randint(-128, 127, (4,), dtype=torch.int8)
    module = Fn(lambda x, w: x + dequantize(w, 0.1, 0, -128, 127, torch.int8), w=weight)
    program = edge(module, X)
    assert any("dequantize" in op for op in spelling(program))


def test_what_is_quantized_of_a_constant_is_folded() -> None:
    """Such a weight is in the file as integers."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers the operators)

    quantized = torch.ops.quantized_decomposed
    bounds = (0.01, 0, -128, 127, torch.int8)
    weight = torch.randn(4)
    module = Fn(
        lambda x, w: (
            x + quantized.dequantize_per_tensor(quantized.quantize_per_tensor(w, *bounds), *bounds)
        ),
        w=weight,
    )
    program = edge(module, X)
    name = "quantized_decomposed.quantize_per_tensor.default"
    assert name not in spelling(program)
    (stored,) = program.constants.values()
    assert stored.dtype == torch.int8
