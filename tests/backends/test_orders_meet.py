"""A value and its permutations, read by one program: each reader gets its order, on every backend
of integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from support import needs, quantized_for

TARGETS = [
    "xnnpack",
    "ethos-u55-128",
    "ethos-u85-256",
    pytest.param("neutron-imxrt700-reference", marks=pytest.mark.litert),
]
STEPS = 1
"""Of each result's scale."""


@dataclass(frozen=True)
class Case:
    forward: Callable[..., Any]
    shape: tuple[int, ...]
    convolves: bool = False


class Net(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        if case.convolves:
            self.convolution = nn.Conv2d(case.shape[1], 6, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.case.forward(self.convolution(x) if self.case.convolves else x + x)


def _squared(y: torch.Tensor) -> Any:
    square = y @ y.transpose(1, 2)
    return square + square, y.transpose(1, 2)


CASES = {
    "a square and its transpose": Case(lambda y: (y, y.transpose(1, 2)), (1, 6, 6)),
    "another size": Case(lambda y: (y, y.transpose(1, 2), y.transpose(0, 2)), (1, 6, 4)),
    "an image and its transpose": Case(lambda y: (y, y.transpose(2, 3)), (1, 4, 5, 5), True),
    "channels last twice": Case(
        lambda y: (y.permute(0, 2, 3, 1), y.permute(0, 3, 2, 1), y), (1, 4, 6, 6), True
    ),
    "read in two orders": Case(
        lambda y: y.flatten(1) + y.transpose(2, 3).flatten(1), (1, 4, 5, 5), True
    ),
    "multiplied by its transpose": Case(_squared, (1, 5, 5)),
    "back again": Case(
        lambda y: (y.transpose(1, 2).contiguous().transpose(1, 2), y.transpose(1, 2)), (1, 4, 4)
    ),
    "a constant without dimensions": Case(lambda y: y * torch.tensor(0.3), (1, 6, 4)),
    "and of an image": Case(lambda y: (y + torch.tensor(0.3)).transpose(2, 3), (1, 4, 5, 5), True),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_reader_gets_its_order(case: Case, target: str) -> None:
    needs(target)
    torch.manual_seed(0)
    batches = [(torch.randn(case.shape),) for _ in range(3)]
    program = quantized_for(target, Net(case).eval(), batches)
    compiled = edgewise.compile(program, backend=target, verbose=False)
    assert compiled.delegation_report().delegates
    with torch.no_grad():
        expected = program.module()(*batches[0])
    found = edgewise.load(compiled.buffer)(*batches[0])
    results = next(n for n in program.graph.nodes if n.op == "output").args[0]
    for result, got, want in zip(results, _all(found), _all(expected), strict=True):
        off = np.abs(np.asarray(got) - want.numpy()) / _scale(result)
        worst = np.unravel_index(int(off.argmax()), off.shape)
        assert off.max() <= STEPS + 1e-3, (result, worst, np.asarray(got)[worst], want[worst])


def _all(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _scale(result: torch.fx.Node) -> float:
    """Of the quantization that a result comes from, through what only moves it."""
    while "dequantize_per_tensor" not in str(result.target):
        result = result.args[0]  # type: ignore[assignment]
    return float(result.args[1])  # type: ignore[arg-type]
