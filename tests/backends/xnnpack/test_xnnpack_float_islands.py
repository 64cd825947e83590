"""The report says what a quantized program still computes in floating point, and why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import edgewise
from support import Fn

X = torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4)


def between_convolutions(middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), middle, nn.Conv2d(4, 2, 1))


# Model | operator in floating point | what is said of it; None and "" for nothing.
CASES: dict[str, tuple[nn.Module, str | None, str]] = {
    "softmax": (
        between_convolutions(nn.Softmax(-1)),
        "aten._softmax.default",
        "XNNPACK has no integer kernel for Softmax",
    ),
    "selu": (
        between_convolutions(nn.SELU()),
        "aten.selu.default",
        "a step of it, has no quantizations around it",
    ),
    "windows of several sizes": (
        between_convolutions(nn.AvgPool2d(3, 1, 1, count_include_pad=False)),
        None,
        "",
    ),
    "hardsigmoid": (between_convolutions(nn.Hardsigmoid()), None, ""),
    "hardsigmoid alone": (
        between_convolutions(nn.Sequential(nn.ReLU(), nn.Hardsigmoid())),
        None,
        "",
    ),
    "silu": (between_convolutions(nn.SiLU()), None, ""),
    "relu": (between_convolutions(nn.ReLU()), None, ""),
    "a table": (between_convolutions(nn.Hardswish()), None, ""),
    "a sum": (between_convolutions(Fn(lambda x: x + x)), None, ""),
}


def notes(model: nn.Module, **options: Any) -> dict[str, list[str]]:
    report = edgewise.compile(model, (X,), verbose=False, **options).delegation_report()
    return {node.operator: node.notes for node in report.nodes if node.notes}


@pytest.mark.parametrize("name", CASES)
def test_notes(name: str) -> None:
    model, operator, text = CASES[name]
    found = notes(model, quantize="int8", calibration=[X])
    assert list(found) == ([] if operator is None else [operator])
    assert all(text in note for texts in found.values() for note in texts)


def test_a_float_program_has_none() -> None:
    assert notes(CASES["softmax"][0]) == {}
