"""MTCNN: three small networks that find faces, from windows of 12, 24 and 48 pixels.

Source: "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks",
https://arxiv.org/abs/1604.02878. Layers are named as in the PyPI package facenet-pytorch, whose
weights fit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _pool(size: int) -> nn.MaxPool2d:
    return nn.MaxPool2d(size, 2, ceil_mode=True)


class ProposalNet(nn.Module):
    """[N, 3, H, W] of -1 to 1 to box offsets [N, 4, h, w] and [N, 2, h, w]: no face, face."""

    size = 12

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 10, 3), nn.PReLU(10), _pool(2)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return self.conv4_2(x), torch.softmax(self.conv4_1(x), 1)


class RefineNet(nn.Module):
    """[N, 3, 24, 24] of -1 to 1 to box offsets [N, 4] and [N, 2]: no face, face."""

    size = 24

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 28, 3), nn.PReLU(28), _pool(3)
        self.conv2, self.prelu2, self.pool2 = nn.Conv2d(28, 48, 3), nn.PReLU(48), _pool(3)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu3(self.conv3(x)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return self.dense5_2(x), torch.softmax(self.dense5_1(x), 1)


class OutputNet(nn.Module):
    """[N, 3, 48, 48] of -1 to 1 to box offsets [N, 4], landmarks [N, 10] and [N, 2]."""

    size = 48

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1, self.pool1 = nn.Conv2d(3, 32, 3), nn.PReLU(32), _pool(3)
        self.conv2, self.prelu2, self.pool2 = nn.Conv2d(32, 64, 3), nn.PReLU(64), _pool(3)
        self.conv3, self.prelu3, self.pool3 = nn.Conv2d(64, 64, 3), nn.PReLU(64), _pool(2)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2 = nn.Linear(256, 2), nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See the class."""
        x = self.pool1(self.prelu1(self.conv1(x)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.pool3(self.prelu3(self.conv3(x)))
        x = self.prelu4(self.conv4(x)).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return self.dense6_2(x), self.dense6_3(x), torch.softmax(self.dense6_1(x), 1)
