"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.head(torch.cumsum(x.mean((2, 3)), 1))


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(1, 3, 16, 16),)


def conv():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), (torch.randn(1, 3, 16, 16),)


def alone():
    return Net().eval()


def branch():
    return Branch(), (torch.randn(3),)


def pair():
    class Pair(nn.Module):
        def forward(self, image, *, scale):
            return image * scale

    return Net().eval(), (torch.randn(1, 3, 16, 16), torch.randn(2)), None, 5


def broken():
    return Net(3)


not_a_model = 5
"""


@dataclass
class Shown:
    """What a command printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Shown]
