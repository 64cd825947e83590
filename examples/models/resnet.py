"""ResNet-18 and ResNet-50.

Source: "Deep Residual Learning for Image Recognition", https://arxiv.org/abs/1512.03385; the
stride of a bottleneck sits in its 3x3 convolution ("v1.5").
Layer names and parameter shapes are those of torchvision.models.resnet18 and resnet50.
"""

from torch import Tensor, nn

from .layers import ConvNormActivation, initialise_convolutions


def _downsample(in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
    """The shortcut's 1x1 convolution, where the shape changes; None where it is the identity."""
    if stride == 1 and in_channels == out_channels:
        return None
    return ConvNormActivation(in_channels, out_channels, 1, stride, activation=None)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, width, H / stride, W / stride]."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        y = self.relu(y)
        return y


class Bottleneck(nn.Module):
    """1x1 to `width`, 3x3, 1x1 to four times `width`."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(in_channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, 4 * width, H / stride, W / stride]."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        y = self.relu(y)
        return y


class ResNet(nn.Module):
    """Image classifier: [N, 3, H, W] to [N, classes]. `depths`: the blocks in each stage."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...], classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            blocks: list[nn.Module] = []
            for i in range(depth):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(block(channels, width, stride))
                channels = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        y: Tensor = self.fc(self.avgpool(x).flatten(1))
        return y


def resnet18(classes: int = 1000) -> ResNet:
    """ResNet-18: 11,689,512 parameters for 1000 classes."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> ResNet:
    """ResNet-50: 25,557,032 parameters for 1000 classes."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)
