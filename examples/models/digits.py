"""Two classifiers of scikit-learn's 8x8 digits, trained in seconds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 10
SIZE = 8


class DigitsCnn(nn.Module):
    """Three convolutions with batch normalisation, one of them depthwise."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(2 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8], ink from 0 to 1, to logits [N, 10]."""
        y: Tensor = self.classifier(self.features(x).flatten(1))
        return y


class Block(nn.Module):
    """Attention and a feed-forward part, each on the normalised residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, tokens, width] to the same shape."""
        n, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(n, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class DigitsTransformer(nn.Module):
    """The rows of an image are its tokens."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(SIZE, width)
        self.position = nn.Parameter(torch.zeros(1, SIZE, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 8, 8], ink from 0 to 1, to logits [N, 10]."""
        x = self.blocks(self.embed(x.flatten(1, 2)) + self.position)
        y: Tensor = self.classifier(self.norm(x).mean(1))
        return y


def load_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, test images and labels; every fifth image is for the test."""
    from sklearn.datasets import load_digits as load

    data = load()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target)
    is_test = torch.arange(len(labels)) % 5 == 0
    return images[~is_test], labels[~is_test], images[is_test], labels[is_test]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int = 30) -> nn.Module:
    """Adam with a falling rate, shifted copies of the images, seeded; returns the model."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)
    batches = -(-len(images) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * batches)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).chunk(batches):
            shift = tuple(torch.randint(-1, 2, (2,)).tolist())
            x = images[chosen].roll(shift, (2, 3))
            loss = nn.functional.cross_entropy(model(x), labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()
