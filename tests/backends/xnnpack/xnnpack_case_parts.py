"""What cases of the operator table are made of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from support import Fn

Accepted = tuple[nn.Module, tuple[torch.Tensor, ...]]
Refused = tuple[nn.Module, tuple[torch.Tensor, ...], str, str]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(kind: Any, *args: Any, **options: Any) -> nn.Module:
    """A module with parameters that are the same in every run, and norms with statistics."""
    torch.manual_seed(1)
    module = kind(*args, **options)
    if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d)):
        for value in [*module.parameters(), *module.buffers()]:
            if value.is_floating_point():
                value.data.uniform_(0.5, 1.5)
    return module


class Outputs(nn.Module):
    """Some of a module's outputs."""

    def __init__(self, module: nn.Module, *places: int) -> None:
        super().__init__()
        self.module, self.places = module, places

    def forward(self, *inputs: torch.Tensor) -> Any:
        found = torch.utils._pytree.tree_leaves(self.module(*inputs))
        return [found[i] for i in self.places]


MATRIX = t(3, 5)
IMAGE = t(2, 4, 7, 5)
VOLUME = t(2, 3, 4, 5, 2)
EVEN = t(1, 4, 8, 6)
SEQUENCE = t(2, 4, 9)
WIDE = torch.tensor([[-100.0, -20.0, -1.0, -0.1, 0.0, 0.1, 1.0, 20.0, 100.0]])
INFINITE = torch.tensor([[1.0, math.inf, -math.inf], [-math.inf, 2.0, 0.0]])
HIDDEN = torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf, -math.inf, 3.0]])
MASK = torch.tensor([[True, False, True], [False, True, True]])


def fn(function: Any, *inputs: torch.Tensor, **constants: torch.Tensor) -> Accepted:
    return Fn(function, **constants), inputs or (MATRIX,)


def channels_last(module: nn.Module) -> nn.Module:
    """Between two convolutions, where the image lies with its channels last."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(4, 4, 1), module, nn.Conv2d(4, 4, 1))


Asked = tuple[nn.Module, tuple[torch.Tensor, ...], str]

AVERAGE = "aten.avg_pool2d.default"
WINDOWS = "aten.max_pool2d_with_indices.default"
STEP_PADDED = nn.AvgPool2d(2, padding=1, count_include_pad=False, divisor_override=4)


def torch_lstm(x: torch.Tensor, *weights: torch.Tensor, **options: Any) -> torch.Tensor:
    state = torch.zeros(1, x.shape[1], weights[1].shape[1]).to(x.dtype)
    settings = {"dropout": 0.0, "train": False, **options}
    return torch.lstm(x, (state, state), weights, False, 1, *settings.values(), False, False)[0]


def torch_gru(x: torch.Tensor, *weights: torch.Tensor, **options: Any) -> torch.Tensor:
    state = torch.zeros(1, x.shape[1], weights[1].shape[1]).to(x.dtype)
    settings = {"dropout": 0.0, "train": False, **options}
    return torch.gru(x, state, weights, False, 1, *settings.values(), False, False)[0]
