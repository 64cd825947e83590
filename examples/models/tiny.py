"""Two models small enough to read whole: for documentation and quick tests."""

from torch import Tensor, nn


class TinyMlp(nn.Module):
    """[N, 16] to [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        y: Tensor = self.out(nn.functional.relu(self.hidden(x)))
        return y


class TinyCnn(nn.Module):
    """[N, 3, H, W] to [N, 10]; H and W at least 2."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2, 2)
        y: Tensor = self.fc(x.mean((2, 3)))
        return y
