"""Models that workers import by their names."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Deep(nn.Module):
    """Three linear layers; one scale for all weights of a row does not suit the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(24, 24)
        self.outlier = nn.Linear(24, 24)
        self.last = nn.Linear(24, 8)
        with torch.no_grad():
            self.outlier.weight[:, 0] *= 1000

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(torch.tanh(self.outlier(torch.relu(self.first(x)))))
        return y
