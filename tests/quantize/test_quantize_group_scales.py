"""Scales of groups of 4-bit weights, of floats and of what was quantized before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgewise.quantize._torchao import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    PerGroup,
    quantize_,
)
from edgewise.quantize.flow import with_integer_weights
from edgewise.quantize.methods.group_scales import fit_groups
from edgewise.quantize.schemes import scheme_of

torch.manual_seed(0)
WEIGHT = torch.randn(48, 256) * 0.02
Rounding = Callable[[torch.Tensor], torch.Tensor]


def groups(weight: torch.Tensor, size: int = 32) -> torch.Tensor:
    return weight.view(len(weight), -1, size)


def symmetric(steps: float, size: int = 32) -> Rounding:
    """The largest of a group is so many steps."""

    def rounded(weight: torch.Tensor) -> torch.Tensor:
        rows = groups(weight, size)
        scale = (rows.abs().amax(-1, keepdim=True) / steps).half().float()
        return ((rows / scale).round().clamp(-8, 7) * scale).view_as(weight)

    return rounded


def q4_0(weight: torch.Tensor) -> torch.Tensor:
    """As in GGUF files: the largest is -8 steps, which may be negative ones."""
    rows = groups(weight)
    largest = rows.gather(-1, rows.abs().argmax(-1, keepdim=True))
    step = (largest / -8).half().float()
    return (((rows / step + 8.5).floor().clamp(0, 15) - 8) * step).view_as(weight)


def awq(weight: torch.Tensor) -> torch.Tensor:
    rows = groups(weight, 128)
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    step = ((high - low) / 15).half().float()
    zero = (-low / step).round()
    return (((rows / step).round() + zero).clamp(0, 15) - zero).mul(step).view_as(weight)


# What made the weight | how far the integers that are found are from it, to its size. Rounding it
# anew is 0.066 and more; a bfloat16 scale 0.002 at most.
MADE: dict[str, tuple[Rounding, float]] = {
    "torchao": (symmetric(7.5), 0.002),
    "the largest is 7": (symmetric(7), 0.002),
    "GPTQ, groups of 128": (symmetric(7.5, 128), 0.002),
    "a scale for each row": (symmetric(7.5, 256), 0.002),
    "stored in bfloat16": (lambda w: symmetric(7.5)(w).bfloat16().float(), 0.003),
    "Q4_0, half of whose groups have an 8": (q4_0, 0.05),
    "AWQ, with zero points": (awq, 0.04),
    "a few values": (lambda w: (w > 0.02) * 0.25 - (w < -0.02) * 0.25, 0.002),
}


def error(found: torch.Tensor, weight: torch.Tensor) -> float:
    return float((found.double() - weight.double()).norm() / weight.double().norm())


def with_weight(weight: torch.Tensor) -> torch.nn.Linear:
    module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    module.weight = torch.nn.Parameter(weight.clone())
    return module


@pytest.mark.parametrize("scheme", ["int4-dynamic", "int4-weight"])
@pytest.mark.parametrize("made", MADE)
def test_their_integers_are_kept(made: str, scheme: str) -> None:
    rounding, most = MADE[made]
    weight = rounding(WEIGHT)
    model = torch.nn.Sequential(with_weight(weight))
    found: Any = with_integer_weights(model, scheme_of(scheme, 32))[0].weight
    assert error(found.dequantize(), weight) <= most
    assert int(found.qdata.min()) >= -8
    assert int(found.qdata.max()) <= 7
    assert (found.scale > 0).all()


INT4: Any = getattr(torch, "int4")  # noqa: B009  (no stub has it)
CONFIGS = {
    "float32 scales": IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerGroup(32)),
    "bfloat16 scales": Int8DynamicActivationIntxWeightConfig(
        weight_dtype=INT4, weight_granularity=PerGroup(32), weight_scale_dtype=torch.bfloat16
    ),
}


def fitted(weight: torch.Tensor, config: Any) -> tuple[Any, Any]:
    """What torchao makes of it, and the same behind `fit_groups`."""
    made: list[Any] = []
    for _ in range(2):
        module = with_weight(weight)
        quantize_(module, config)
        made.append(module.weight)
    fit_groups(made[1], weight, 4)
    return made[0], made[1]


FLOATS = {
    "normal": WEIGHT,
    "Laplace": torch.distributions.Laplace(0.0, 1.0).sample((48, 256)),
    "8 bits": (WEIGHT / 0.0005).round() * 0.0005,
    "large": WEIGHT * 1e30,
    "small": WEIGHT * 1e-30,
    "one sign": WEIGHT.abs(),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("case", FLOATS)
def test_floats_are_nearer_than_torchaos(case: str, config: str) -> None:
    weight = FLOATS[case]
    before, after = fitted(weight, CONFIGS[config])
    assert after.dequantize().dtype == before.dequantize().dtype
    assert error(after.dequantize(), weight) < 0.99 * error(before.dequantize(), weight)
    counts = (weight.double() / weight.double().abs().max()).abs() ** 1.5
    by_group = [
        groups((one.dequantize() - weight).double() ** 2 * counts).sum(-1)
        for one in (before, after)
    ]
    assert (by_group[1] <= by_group[0] * 1.03).all()  # but for the scale's own rounding
    assert by_group[1].sum() < 0.94 * by_group[0].sum()


UNCHANGED = {"zeros": torch.zeros(4, 64), "not finite": torch.full((4, 64), float("nan"))}


@pytest.mark.parametrize("case", UNCHANGED)
def test_groups_without_a_scale_are_torchaos(case: str) -> None:
    for config in CONFIGS.values():
        before, after = fitted(UNCHANGED[case], config)
        for part in ("qdata", "scale"):
            found, wanted = getattr(after, part), getattr(before, part)
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_some_rows_of_a_weight_are_on_a_grid() -> None:
    weight = WEIGHT.clone()
    weight[::2] = symmetric(7.5)(weight[::2])
    _, after = fitted(weight, CONFIGS["float32 scales"])
    assert error(after.dequantize()[::2], weight[::2]) < 1e-6
    assert 0.05 < error(after.dequantize()[1::2], weight[1::2]) < 0.095
