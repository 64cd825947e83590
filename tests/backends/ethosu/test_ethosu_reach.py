"""What the quantizer and the rows together bring onto the NPU: whole functions, in one delegate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ethosu_reference import SPECS, compare, partitioned, parts, quantized
from torch import nn

from edgewise.backends.ethosu import vela
from edgewise.backends.ethosu.simulator import Simulator
from support import Fn

Shape = tuple[int, ...]
ROWS: tuple[Shape, ...] = ((4, 6),)
PAIR: tuple[Shape, ...] = ((4, 6), (4, 6))
IMAGE: tuple[Shape, ...] = ((1, 4, 6, 5),)
BORDERS = ("what goes to the NPU is quantized elsewhere", "what leaves the NPU is dequantized")


@dataclass(frozen=True)
class Reach:
    """A module that is quantized for inputs of the shapes, of numbers from `low` to `high`."""

    module: nn.Module | Callable[..., Any]
    shapes: tuple[Shape, ...]
    low: float = -2.0
    high: float = 2.0
    families: tuple[str, ...] = ("U55", "U85")
    steps: int = 1


class Addmm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


def divided(mode: str | None) -> Callable[..., torch.Tensor]:
    return lambda x, y: torch.div(x, y + 3, rounding_mode=mode)


U85 = ("U85",)
CASES = {
    "addmm": Reach(Addmm(), ROWS),
    "erfinv": Reach(torch.erfinv, ROWS, -0.6, 0.6),
    "exp2": Reach(torch.exp2, ROWS),
    "glu": Reach(lambda x: F.glu(x, 1), ROWS),
    "glu of images": Reach(nn.GLU(1), IMAGE),
    "rsub of a number": Reach(lambda x: 1 - x, ROWS),
    "rsub": Reach(torch.rsub, PAIR),
    "stack": Reach(lambda x, y: torch.stack([x, y], 1), PAIR),
    "stack, last": Reach(lambda x, y: torch.stack([x, y], -1), PAIR),
    "split": Reach(lambda x: [a + 1 for a in x.split(2, 1)], ROWS),
    "split of uneven sizes": Reach(lambda x: [a + 1 for a in x.split([1, 5], 1)], ROWS),
    "chunk": Reach(lambda x: torch.cat([a * 2 for a in x.chunk(3, 1)]), ROWS),
    "unbind": Reach(lambda x: x.unbind(1)[0] + x.unbind(1)[2], ROWS),
    "moveaxis": Reach(lambda x: torch.moveaxis(x, 0, 2) + 1, ((4, 6, 3),)),
    "division by a tensor": Reach(divided(None), PAIR),
    "division, floor": Reach(divided("floor"), PAIR),
    "division, trunc": Reach(divided("trunc"), PAIR),
    "division by a number, trunc": Reach(
        lambda x: torch.div(x, 0.3, rounding_mode="trunc"), ROWS
    ),
    "floor_divide": Reach(lambda x, y: x // (y + 3), PAIR),
    "remainder of a tensor": Reach(lambda x, y: torch.remainder(x, y + 3), PAIR),
    "remainder of a number": Reach(lambda x: torch.remainder(x, 0.7), ROWS),
    "clamp by tensors": Reach(lambda x, y, z: x.clamp(y, z), (*PAIR, (6,))),
    "clamp by one tensor": Reach(lambda x, y: x.clamp(min=y), PAIR),
    "var": Reach(lambda x: x.var(1), ROWS),
    "std": Reach(lambda x: x.std(1), ROWS),
    "std of all": Reach(lambda x: x.std(), ROWS),
    "reflection": Reach(nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "replication": Reach(nn.ReplicationPad2d((1, 2, 3, 0)), IMAGE),
    "circular": Reach(lambda x: F.pad(x, (1, 2, 3, 0), mode="circular"), IMAGE),
    "reflection of sequences": Reach(nn.ReflectionPad1d(2), ((1, 4, 6),)),
    "slice_scatter": Reach(lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), ((4, 6), (4, 2))),
    "select_scatter": Reach(lambda x, y: torch.select_scatter(x, y, 1, 1), ((4, 6), (4,))),
    "roll": Reach(lambda x: x.roll(1, 1), ROWS),
    "unfold": Reach(lambda x: x.unfold(1, 3, 1), ROWS),
    "gate": Reach(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardsigmoid()), IMAGE),
    # A function that is steeper than one enlarges the step of the convolution before it.
    "in place": Reach(
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardswish(inplace=True)), IMAGE, steps=2
    ),
    "masked_fill": Reach(lambda x: x.masked_fill(x > 0.1, 0.0), ROWS, families=U85),
    "threshold": Reach(nn.Threshold(0.1, 0.2), ROWS, families=U85),
    "corners": Reach(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        IMAGE, families=U85,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_all_of_it_is_one_delegate(name: str) -> None:
    """And within steps of the PT2E program in the TOSA reference model, which the compiled
    program equals."""
    case = CASES[name]
    torch.manual_seed(0)
    module = case.module if isinstance(case.module, nn.Module) else Fn(case.module)
    inputs = tuple(torch.empty(s).uniform_(case.low, case.high) for s in case.shapes)
    program = quantized(module, inputs)
    for family in case.families:
        result = partitioned(program, family)
        against = [str(r) for found in result.refusals.values() for r in found]
        assert not [text for text in against if not text.startswith(BORDERS)]
        (part,) = parts(result)
        found = compare(part, seeds=1)
        assert found.steps <= case.steps, found
        simulator = Simulator(vela.compile_tosa(found.tosa, SPECS[family]).program)
        for got, want in zip(simulator.run(found.inputs), found.outputs, strict=True):
            np.testing.assert_array_equal(got.reshape(want.shape), want, family)
