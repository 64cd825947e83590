"""Models and data for plans of the tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Small(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.out = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(nn.functional.relu(self.conv(x)).mean((2, 3)))
        return y


def small(width: int = 8) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Small(width), (torch.zeros(1, 1, 6, 6),)


def closure() -> nn.Module:
    """Cannot be pickled: its class has no name that leads to it."""

    class Local(Small):
        pass

    return Local()


def inputs() -> Tensor:
    return torch.zeros(1, 1, 6, 6)


def broken() -> nn.Module:
    raise RuntimeError("no weights here")


def crashing() -> nn.Module:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def sleeping() -> nn.Module:
    time.sleep(60)
    raise AssertionError


def batches(count: int = 6) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randn(1, 1, 6, 6, generator=generator)


def pairs(count: int = 8) -> Iterator[tuple[Tensor, Tensor]]:
    for index, batch in enumerate(batches(count)):
        yield batch, torch.tensor([index % 4])


def spread(outputs: Any, target: Any) -> dict[str, float]:
    """A metric of the user's."""
    return {"spread": float(outputs.max() - outputs.min())}
