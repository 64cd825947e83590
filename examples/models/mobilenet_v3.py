"""MobileNetV3, small and large.

Source: "Searching for MobileNetV3", https://arxiv.org/abs/1905.02244.
Layer names and parameter shapes are those of torchvision.models.mobilenet_v3_small and _large.
"""

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from .layers import (
    HARDSWISH,
    RELU,
    ConvNormActivation,
    Norm,
    SqueezeExcitation,
    initialise_convolutions,
    round_channels,
)

_NORM: Norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)


class Block(NamedTuple):
    """One row of the paper's tables 1 and 2; the input is the output of the row before."""

    kernel: int
    hidden: int
    out: int
    squeeze: bool
    hardswish: bool
    stride: int


_SMALL = (
    Block(3, 16, 16, True, False, 2),
    Block(3, 72, 24, False, False, 2),
    Block(3, 88, 24, False, False, 1),
    Block(5, 96, 40, True, True, 2),
    Block(5, 240, 40, True, True, 1),
    Block(5, 240, 40, True, True, 1),
    Block(5, 120, 48, True, True, 1),
    Block(5, 144, 48, True, True, 1),
    Block(5, 288, 96, True, True, 2),
    Block(5, 576, 96, True, True, 1),
    Block(5, 576, 96, True, True, 1),
)
_LARGE = (
    Block(3, 16, 16, False, False, 1),
    Block(3, 64, 24, False, False, 2),
    Block(3, 72, 24, False, False, 1),
    Block(5, 72, 40, True, False, 2),
    Block(5, 120, 40, True, False, 1),
    Block(5, 120, 40, True, False, 1),
    Block(3, 240, 80, False, True, 2),
    Block(3, 200, 80, False, True, 1),
    Block(3, 184, 80, False, True, 1),
    Block(3, 184, 80, False, True, 1),
    Block(3, 480, 112, True, True, 1),
    Block(3, 672, 112, True, True, 1),
    Block(5, 672, 160, True, True, 2),
    Block(5, 960, 160, True, True, 1),
    Block(5, 960, 160, True, True, 1),
)


class InvertedResidual(nn.Module):
    """Expand, depthwise, squeeze-and-excite, project; added to the input where shapes agree."""

    def __init__(self, in_channels: int, row: Block) -> None:
        super().__init__()
        activation = HARDSWISH if row.hardswish else RELU
        block = partial(ConvNormActivation, norm=_NORM)
        parts: list[nn.Module] = []
        if row.hidden != in_channels:
            parts.append(block(in_channels, row.hidden, 1, activation=activation))
        parts.append(
            block(
                row.hidden,
                row.hidden,
                row.kernel,
                row.stride,
                groups=row.hidden,
                activation=activation,
            )
        )
        if row.squeeze:
            parts.append(SqueezeExcitation(row.hidden, round_channels(row.hidden // 4)))
        parts.append(block(row.hidden, row.out, 1, activation=None))
        self.block = nn.Sequential(*parts)
        self.residual = row.stride == 1 and in_channels == row.out

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, row.out, H / stride, W / stride]."""
        y: Tensor = self.block(x)
        if self.residual:
            y += x
        return y


class MobileNetV3(nn.Module):
    """Image classifier: [N, 3, H, W] to [N, classes]."""

    def __init__(
        self, rows: tuple[Block, ...], head: int, classes: int = 1000, dropout: float = 0.2
    ) -> None:
        super().__init__()
        channels = 16
        block = partial(ConvNormActivation, norm=_NORM, activation=HARDSWISH)
        features: list[nn.Module] = [block(3, channels, 3, 2)]
        for row in rows:
            features.append(InvertedResidual(channels, row))
            channels = row.out
        features.append(block(channels, 6 * channels, 1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, head),
            HARDSWISH(),
            nn.Dropout(dropout, inplace=True),
            nn.Linear(head, classes),
        )
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        y: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return y


def mobilenet_v3_small(classes: int = 1000) -> MobileNetV3:
    """MobileNetV3 small: 2,542,856 parameters for 1000 classes."""
    return MobileNetV3(_SMALL, 1024, classes)


def mobilenet_v3_large(classes: int = 1000) -> MobileNetV3:
    """MobileNetV3 large: 5,483,032 parameters for 1000 classes."""
    return MobileNetV3(_LARGE, 1280, classes)
