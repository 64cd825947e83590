"""MobileNetV2.

Source: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", https://arxiv.org/abs/1801.04381.
Layer names and parameter shapes are those of torchvision.models.mobilenet_v2.
"""

from torch import Tensor, nn

from .layers import RELU6, ConvNormActivation, initialise_convolutions, round_channels

# Expansion, output channels, repeats, stride of the first repeat.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise 3x3, project 1x1; added to the input where the shapes agree."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        parts: list[nn.Module] = []
        if expansion != 1:
            parts.append(ConvNormActivation(in_channels, hidden, 1, activation=RELU6))
        parts += [
            ConvNormActivation(hidden, hidden, 3, stride, groups=hidden, activation=RELU6),
            nn.Conv2d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        ]
        self.conv = nn.Sequential(*parts)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, out_channels, H / stride, W / stride]."""
        y: Tensor = self.conv(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Image classifier: [N, 3, H, W] to [N, classes]."""

    def __init__(self, classes: int = 1000, width: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        channels = round_channels(32 * width)
        features: list[nn.Module] = [ConvNormActivation(3, channels, 3, 2, activation=RELU6)]
        for expansion, out, repeats, first_stride in _STAGES:
            out = round_channels(out * width)
            for i in range(repeats):
                stride = first_stride if i == 0 else 1
                features.append(InvertedResidual(channels, out, stride, expansion))
                channels = out
        last = round_channels(1280 * max(1.0, width))
        features.append(ConvNormActivation(channels, last, 1, activation=RELU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes))
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
        y: Tensor = self.classifier(x)
        return y


def mobilenet_v2(classes: int = 1000) -> MobileNetV2:
    """MobileNetV2 of width 1: 3,504,872 parameters for 1000 classes."""
    return MobileNetV2(classes)
