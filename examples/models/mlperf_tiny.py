"""The four architectures of MLPerf Tiny: images, keywords, persons, anomalies.

Source: "MLPerf Tiny Benchmark", https://arxiv.org/abs/2106.07597, and its reference models.
"""

from collections import OrderedDict
from itertools import pairwise

from torch import Tensor, nn


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch normalisation and ReLU; the size divided by the stride."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class _Block(nn.Module):
    """Two convolutions, added to the input or to its projection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _conv(inputs, outputs, 3, stride)
        self.second = nn.Sequential(
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.second(self.first(x)) + self.shortcut(x))


class ResNet8(nn.Module):
    """Images of 32 x 32 (CIFAR-10) -> 10 classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = _conv(3, 16, 3)
        self.blocks = nn.Sequential(_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))


class DsCnn(nn.Module):
    """49 windows of 10 cepstral coefficients -> 12 keywords."""

    def __init__(self, classes: int = 12, channels: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, (10, 4), 2, (5, 1), bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    _conv(channels, channels, 3, groups=channels), _conv(channels, channels, 1)
                )
                for _ in range(blocks)
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))


class MobileNetV1(nn.Module):
    """Images of 96 x 96 -> person or none; a quarter of the channels of the original."""

    def __init__(self, classes: int = 2, width: float = 0.25) -> None:
        super().__init__()
        stages = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
        channels = int(32 * width)
        parts = [_conv(3, channels, 3, 2)]
        for outputs, stride in [*stages, (1024, 2), (1024, 1)]:
            parts += [
                _conv(channels, channels, 3, stride, groups=channels),
                _conv(channels, int(outputs * width), 1),
            ]
            channels = int(outputs * width)
        self.features = nn.Sequential(*parts)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.features(x)).flatten(1))


class AutoEncoder(nn.Module):
    """Five windows of 128 mel bands -> the same; the error tells anomalies."""

    def __init__(self, size: int = 640, hidden: int = 128, code: int = 8) -> None:
        super().__init__()
        widths = [size, *[hidden] * 4, code, *[hidden] * 4]
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (inputs, outputs) in enumerate(pairwise(widths)):
            parts[f"linear{number}"] = nn.Linear(inputs, outputs)
            parts[f"norm{number}"] = nn.BatchNorm1d(outputs)
            parts[f"relu{number}"] = nn.ReLU()
        parts["output"] = nn.Linear(hidden, size)
        self.layers = nn.Sequential(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
