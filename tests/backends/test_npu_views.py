"""Slices, reshaped and repeated results around operators that compilers take apart: all of it on
the NPU, and every element within a step of PT2E."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import edgewise
from support import quantized_for

TARGETS = ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256", "neutron-imxrt700-reference"]


@dataclass(frozen=True)
class Case:
    forward: Callable[[torch.Tensor], Any]
    shape: tuple[int, ...]
    on_cpu: tuple[str, ...] = ()
    """Targets on which something of it stays with the CPU."""
    steps: int = 1


class Net(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, x: torch.Tensor) -> Any:
        return self.case.forward(x)


def _times_own(y: torch.Tensor) -> torch.Tensor:
    return y @ y.transpose(-1, -2)


def _outer_behind(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x.transpose(0, 1) * x], 0)


def _chosen_behind(x: torch.Tensor) -> torch.Tensor:
    y = x.transpose(-1, -2)
    return torch.cat([torch.where(y > 0, y, y * 0.5).flatten(1), x.flatten(1)], 1)


def _again(x: torch.Tensor) -> Any:
    y = torch.sigmoid(x).flatten(1)
    return y, y.clone().permute(1, 0)


def _grown(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    return torch.cat([torch.cat([y, x], 1)[:, :6], y], 1)


def _grown_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    return torch.cat([torch.cat([y, x], 1).clone(), y], 1)


_WEIGHT = torch.randn(1, 4, 6, 3, generator=torch.Generator().manual_seed(1))

_TAPS = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(2))
_TAPS_2D = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(3))
_BIAS = torch.tensor([0.3, -1.0])

U55 = ("ethos-u55-128", "ethos-u65-256")
NEUTRON = ("neutron-imxrt700-reference",)
CASES = {
    "matmul of halves": Case(lambda x: x[..., :3] @ x[..., 3:].transpose(-1, -2), (2, 5, 6)),
    "matmul of rows": Case(lambda x: _times_own(x[..., 1:, :]), (1, 5, 6)),
    "matmul of one": Case(lambda x: _times_own(x.select(1, 1)), (2, 5, 6), NEUTRON),
    "amax of columns": Case(lambda x: x[..., 3:5].amax(1, keepdim=True), (1, 4, 6, 6)),
    "amax of a transposed slice": Case(
        lambda x: x[..., 1:-1].transpose(-1, -2).amax(1), (1, 4, 6, 6)
    ),
    "softmax of columns": Case(lambda x: x[..., 3:5].softmax(1), (1, 4, 6, 6)),
    "sum of one": Case(lambda x: x.select(1, 1).sum(1, keepdim=True), (1, 4, 6, 6)),
    "amin, reshaped": Case(lambda x: x.amin(1, keepdim=True).reshape(36, 1), (1, 4, 6, 6)),
    "amin, transposed": Case(
        lambda x: x.amin(1, keepdim=True).transpose(1, 2), (1, 4, 6, 6), NEUTRON
    ),
    "amin of nothing, padded": Case(lambda x: F.pad(x.amin(0, keepdim=True), (0, 1)), (1, 4, 6, 6)),
    "an outer product behind its operand": Case(_outer_behind, (1, 5)),
    "chosen behind what it is of": Case(_chosen_behind, (1, 4, 5)),
    "a result twice": Case(_again, (1, 3, 6), NEUTRON),
    "a concatenation that is read again": Case(_grown, (1, 6, 6)),
    "copies that are read again": Case(_grown_twice, (1, 6, 6)),
    "a constant in another shape": Case(lambda x: (x * 2) @ _WEIGHT, (1, 4, 5, 6)),
    "amax of a column": Case(lambda x: x.select(1, 1).amax(0), (4, 6)),
    "softmax of a column": Case(lambda x: x.select(1, 1).softmax(0), (4, 6)),
    "amax of a column that is computed": Case(lambda x: (x + x).reshape(4).amax(0), (4, 1)),
    "amin of rows that are computed": Case(lambda x: (x + x).reshape(2, 1, 2).amin(2), (2, 2)),
    "amin in batches": Case(lambda x: x.amin(3), (3, 1, 2, 2)),
    "amax, then a table, in batches": Case(
        lambda x: x.amax(1, keepdim=True).sigmoid(), (2, 3, 20, 17)
    ),
    "amax, then a clamp, in batches": Case(
        lambda x: x.amax(2, keepdim=True).clamp(-0.3, 0.4), (3, 2, 2, 2)
    ),
    "amax, then a sum, in batches": Case(lambda x: x.amax(3, keepdim=True) + 0.5, (3, 1, 5, 6)),
    "amax and amin, in batches": Case(
        lambda x: x.amax(3, keepdim=True) + x.amin(3, keepdim=True), (3, 2, 5, 6), steps=2
    ),
    "a mean, then a table, in batches": Case(
        lambda x: x.mean(1, keepdim=True).sigmoid(), (3, 2, 2, 2)
    ),
    "amax of five dimensions": Case(lambda x: -x.amax(2, keepdim=True), (2, 2, 2, 2, 2)),
    "amax of heads, in another order": Case(
        lambda x: x.amax(1, keepdim=True).transpose(0, 1).tanh(), (3, 2, 4, 5)
    ),
    "amax of amax, reshaped": Case(
        lambda x: x.amax(3, keepdim=True).reshape(3, 1, 2, 5).amax(2, keepdim=True).relu(),
        (3, 2, 5, 4),
    ),
    "chosen by amax, reshaped": Case(
        lambda x: torch.where(x.amax(3, keepdim=True) > 1, x.amin(3, keepdim=True), 0.5 * x),
        (3, 2, 5, 4),
        (*U55, *NEUTRON),
    ),
    "a slice with a fifth dimension": Case(
        lambda x: x[:, :, 1:3].unsqueeze(0).sigmoid(), (2, 3, 4, 5)
    ),
    "a slice with a fifth dimension, repeated": Case(
        lambda x: x[:, :, 1:3].unsqueeze(0).repeat(2, 1, 1, 1, 1), (2, 3, 4, 5), NEUTRON
    ),
    "slices with a fifth dimension, joined": Case(
        lambda x: torch.cat([x[:, 1:3].unsqueeze(0), x[:, :2].unsqueeze(0)], 0), (1, 3, 4, 5)
    ),
    "a flip between two tables": Case(lambda x: x.sigmoid().flip(0).tanh(), (3, 5)),
    "a flip between two clamps": Case(
        lambda x: x.clamp(-0.5, 2.0).flip(1).clamp(-1.0, 0.4), (2, 3, 5)
    ),
    "flips of two dimensions behind a table": Case(
        lambda x: x.tanh().flip(2, 3).sigmoid(), (1, 3, 4, 5)
    ),
    "a transposed convolution by 4": Case(
        lambda x: F.conv_transpose1d(x, _TAPS, None, 4, 2).tanh(), (2, 4, 9)
    ),
    "a transposed convolution by 3 in two dimensions": Case(
        lambda x: F.conv_transpose2d(x, _TAPS_2D, _BIAS, 3, 1, 1), (1, 3, 5, 4)
    ),
    "a transposed convolution by 3 and 1, dilated, in groups": Case(
        lambda x: F.conv_transpose2d(
            x, _TAPS_2D.reshape(6, 1, 5, 5), None, (1, 3), (2, 0), (0, 1), 2, (1, 2)
        ),
        (1, 6, 5, 4),
    ),
    **{
        f"resized, {name}": Case(lambda x, how=how: F.interpolate(x.tanh(), **how), shape, steps=2)
        for name, (shape, how) in {
            "bilinear": ((1, 3, 5, 4), {"scale_factor": 2, "mode": "bilinear"}),
            "by a factor": ((1, 3, 5, 4), {"scale_factor": 1.7, "mode": "bilinear"}),
            "corners": ((1, 3, 5, 4), {"size": (7, 9), "mode": "bilinear", "align_corners": True}),
            "bicubic": ((1, 3, 5, 4), {"size": (7, 9), "mode": "bicubic"}),
            "nearest": ((1, 3, 5, 4), {"scale_factor": (2.3, 3)}),
            "nearest, a line": ((1, 3, 70), {"scale_factor": 4}),
            "a line": ((1, 3, 7), {"size": 16, "mode": "linear"}),
            "a volume": ((1, 2, 3, 4, 5), {"scale_factor": 2, "mode": "trilinear"}),
        }.items()
    },
    "hardtanh": Case(lambda x: F.hardtanh(x * 2), (1, 4, 6, 6)),
    "hardtanh alone": Case(lambda x: F.hardtanh(x), (1, 4, 6, 6)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_is_on_the_npu_and_right(case: Case, target: str) -> None:
    pytest.importorskip("ethosu.vela" if target.startswith("ethos") else "ai_edge_litert")
    torch.manual_seed(0)
    x = torch.randn(case.shape)
    program = quantized_for(target, Net(case), [(x,)])
    compiled = edgewise.compile(program, backend=target, verbose=False)
    left = {
        n.operator
        for n in compiled.delegation_report().refused
        if "quantize_per_tensor" not in n.operator
    }
    assert bool(left) == (target in case.on_cpu), left
    found = edgewise.load(compiled.buffer)(x)
    with torch.no_grad():
        expected = program.module()(x)
    results = next(n for n in program.graph.nodes if n.op == "output").args[0]
    for result, got, want in zip(results, _all(found), _all(expected), strict=True):
        assert tuple(got.shape) == tuple(want.shape)
        off = np.abs(np.asarray(got) - want.numpy()) / _scale(result)
        at = np.unravel_index(int(off.argmax()), off.shape)
        assert off.max() <= case.steps + 1e-3, (at, np.asarray(got)[at], want[at])


def _all(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _scale(result: torch.fx.Node) -> float:
    """Of the quantization that a result comes from, through what only moves it."""
    while "dequantize_per_tensor" not in str(result.target):
        result = result.args[0]  # type: ignore[assignment]
    return float(result.args[1])  # type: ignore[arg-type]
