"""Nets of the matrix after the architectures that people ship: vision, speech, text, graphs, with
state and sizes of their own. Imports torch only."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from nets import IDS, IMAGE, ROWS, SERIES, Fn, M, Net, _dim, _random
from torch import nn

PIXELS = torch.arange(48, dtype=torch.uint8).reshape(1, 3, 4, 4)


class ConvNext(nn.Module):
    """Depthwise 7 x 7, LayerNorm over channels that are last, a scale of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 7, padding=3, groups=4)
        self.norm = nn.LayerNorm(4, eps=1e-6)
        self.wide, self.narrow = nn.Linear(4, 16), nn.Linear(16, 4)
        self.gamma = nn.Parameter(torch.linspace(0.1, 0.9, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class DeepUNet(nn.Module):
    """Two levels, resized bilinearly, joined with what came down."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((4, 8), (8, 12), (20, 8))
        self.a, self.b, self.c = (
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            for i, o in widths
        )
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = F.interpolate(self.b(F.max_pool2d(a, 2)), scale_factor=2, mode="bilinear")
        return self.out(self.c(torch.cat([a, b], 1))).sigmoid()


class Inverted(nn.Module):
    """MobileNet: wide, depthwise, narrow, with ReLU6."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6(),
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), nn.ReLU6(),
            nn.Conv2d(12, 4, 1, bias=False), nn.BatchNorm2d(4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Shuffled(nn.Module):
    """ShuffleNet: halves, and channels of the two in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.branch(b)], 1)
        n, c, h, w = y.shape
        return y.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Pyramid(nn.Module):
    """Dilated convolutions beside the mean of the image (ASPP)."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=r, dilation=r) for r in (1, 2, 3))
        self.mean, self.out = nn.Conv2d(4, 4, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = F.interpolate(self.mean(F.adaptive_avg_pool2d(x, 1)), x.shape[2:], mode="bilinear")
        return self.out(torch.cat([*(F.relu(c(x)) for c in self.rates), whole], 1))


class Detector(nn.Module):
    """Boxes from a grid, the best of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 7, 3, stride=2, padding=1)
        y, x = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
        self.register_buffer("grid", torch.stack([x, y], 0)[None])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        centre = (y[:, :2].sigmoid() * 2 - 0.5 + self.grid) * 2
        size = (y[:, 2:4].sigmoid() * 2) ** 2 * 3
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1).flatten(2).transpose(1, 2)
        scores = y[:, 4:].flatten(2).softmax(1).amax(1)
        best, where = scores.topk(5)
        return best, boxes.gather(1, where[..., None].expand(-1, -1, 4))


class WindowAttention(nn.Module):
    """Swin: windows of a rolled image, a table of biases by relative position."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.table = nn.Parameter(_random(9, 2, seed=21))
        at = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None] + 1
        self.register_buffer("index", apart[0] * 3 + apart[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rolled = torch.roll(x, (-1, -1), (1, 2))
        windows = rolled.reshape(1, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 8)
        q, k, v = self.qkv(windows).reshape(4, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.flatten()].reshape(4, 4, 2).permute(2, 0, 1)
        y = (q * 0.5 @ k.transpose(-2, -1) + bias).softmax(-1) @ v
        y = self.out(y.transpose(1, 2).reshape(4, 4, 8))
        y = y.reshape(1, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(1, 4, 4, 8)
        return x + torch.roll(y, (1, 1), (1, 2))


class VisionTransformer(nn.Module):
    """Patches, a learned token before them, its class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 16, 4, stride=4)
        self.token = nn.Parameter(_random(1, 1, 16, seed=22))
        self.place = nn.Parameter(_random(1, 10, 16, seed=23))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.layer(y)[:, 0])


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=d) for d in (1, 2, 4))
        self.out = nn.Conv1d(4, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return self.out(x)


class Vocoder(nn.Module):
    """HiFi-GAN: transposed convolutions, residual ones with weight normalization."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.up = norm(nn.ConvTranspose1d(4, 4, 4, stride=2, padding=1))
        self.residual = nn.ModuleList(
            norm(nn.Conv1d(4, 4, 3, dilation=d, padding=d)) for d in (1, 3)
        )
        self.out = norm(nn.Conv1d(4, 1, 7, padding=3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(F.leaky_relu(x, 0.1))
        for layer in self.residual:
            x = x + layer(F.leaky_relu(x, 0.1))
        return self.out(x).tanh()


class Speech(nn.Module):
    """Frames by convolution, a recurrent layer in both directions, letters."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(4, 8, 5, stride=2, padding=2), nn.ReLU())
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.letters = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(self.frames(x).transpose(1, 2))
        return self.letters(y).log_softmax(-1)


class Spectrum(nn.Module):
    """Logarithms of mel energies by matrices."""

    def __init__(self) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(9.0), torch.arange(16.0)) * (2 * torch.pi / 16)
        self.register_buffer("window", torch.hann_window(16))
        self.register_buffer("real", angle.cos().t().contiguous())
        self.register_buffer("imaginary", angle.sin().t().contiguous())
        self.register_buffer("mel", _random(9, 4, seed=24).abs())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = x.unfold(-1, 16, 8) * self.window
        power = (frames @ self.real) ** 2 + (frames @ self.imaginary) ** 2
        return (power @ self.mel).clamp(min=1e-5).log10()


class Gpt(nn.Module):
    """Positions counted, causal blocks, the output's weights those of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(11, 16), nn.Embedding(8, 16)
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 32, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.table(ids) + self.places(torch.arange(length))
        return F.linear(self.norm(self.layer(x, src_mask=mask)), self.table.weight)


class PaddedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> Any:
        return self.inner(x, x, x, key_padding_mask=padding)


class Experts(nn.Module):
    """Each token's two best of four, weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, which = self.gate(x).topk(2, -1)
        weights = torch.zeros(2, 5, 4).scatter(-1, which, best.softmax(-1))
        every = torch.stack([e(x) for e in self.experts], -2)
        return (every * weights[..., None]).sum(-2)


class StateSpace(nn.Module):
    """A diagonal recurrence, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(-1, 0, 4))
        self.step, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step, b, c = F.softplus(self.step(x)), self.b(x), self.c(x)
        kept = torch.exp(step[..., None] * -torch.exp(self.rate))
        added = step[..., None] * b[:, :, None] * x[..., None]
        state, rows = torch.zeros(2, 16, 4), []
        for t in range(x.shape[1]):
            state = kept[:, t] * state + added[:, t]
            rows.append((state * c[:, t, None]).sum(-1))
        return torch.stack(rows, 1)


class Recommender(nn.Module):
    """Sums of embeddings, products of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(8, 16, mode="sum")
        self.dense, self.top = nn.Linear(8, 16), nn.Linear(19, 1)
        self.register_buffer("pairs", torch.tensor([[1, 2, 2], [0, 0, 1]]))

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        dense = self.dense(x)
        rows = torch.stack([dense, self.bag(ids[:, :2]), self.bag(ids[:, 1:])], 1)
        products = rows @ rows.transpose(1, 2)
        flat = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, flat], 1)).sigmoid()


class Graph(nn.Module):
    """Messages along edges, added up where they end."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(16, 8), nn.Linear(16, 8)
        self.register_buffer("edges", torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.cat([x[self.edges[0]], x[self.edges[1]]], -1)
        sums = torch.zeros(3, 8, dtype=x.dtype).index_add(
            0, self.edges[1], self.message(pairs).relu()
        )
        return self.update(torch.cat([x, sums], -1))


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.chunk(2, -1)
        s, t = self.net(a).chunk(2, -1)
        return torch.cat([a, b * s.tanh().exp() + t], -1), s.tanh().sum(-1)


class Transformed(nn.Module):
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.where(x.mean((2, 3))).reshape(-1, 2, 3)
        grid = F.affine_grid(theta, [1, 4, 6, 6], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class Streaming(nn.Module):
    """A convolution over what came last, in the model's memory; and a recurrent cell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.cell = nn.Conv1d(4, 8, 3), nn.GRUCell(8, 8)
        self.register_buffer("past", torch.zeros(1, 4, 3))
        self.register_buffer("state", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.past.copy_(torch.cat([self.past[:, :, 1:], x], 2))
        self.state.copy_(self.cell(self.conv(self.past)[:, :, 0], self.state))
        return self.state * 2


class WindowCache(nn.Module):
    """The last four keys and values, by the position's remainder."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(16, 8), nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(1, 4, 8))
        self.register_buffer("values", torch.zeros(1, 4, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        k, v = self.kv(x).chunk(2, -1)
        slot = at % 4
        self.keys[:, slot], self.values[:, slot] = k, v
        mask = torch.where(torch.arange(4) <= at, 0.0, -1e4)
        scores = self.q(x) @ self.keys.transpose(1, 2) * 8**-0.5 + mask
        return scores.softmax(-1) @ self.values


class Branches(nn.Module):
    """A branch in a branch, with convolutions and constants, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.register_buffer("shift", torch.linspace(-1, 1, 20))

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> Any:
        def deep(x: torch.Tensor) -> Any:
            return torch.cond(
                x.mean() > 0,
                lambda x: (self.conv(x) + self.shift, x * 2),
                lambda x: (x - self.shift, x.sigmoid()),
                (x,),
            )

        return torch.cond(flag, deep, lambda x: (F.gelu(x), x + 1), (x,))


class WhilePair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, x: torch.Tensor, sums: torch.Tensor) -> Any:
            y = F.layer_norm(self.a(x), (8,))
            return i + 1, y, sums + y * 0.5

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, x, sums: i < 4, body, (start, x, torch.zeros_like(x)))[1:]


def _normalized(x: torch.Tensor) -> torch.Tensor:
    mean = torch.tensor([0.4, 0.5, 0.6]).reshape(1, 3, 1, 1)
    return (x.float() / 255 - mean) / 0.25


MODELS: dict[str, Net] = {
    # Vision.
    "convnext": Net(ConvNext, (IMAGE,), half=True, quantize=("int8", "int8-dynamic")),
    "unet_deep": Net(DeepUNet, (IMAGE,), half=True, quantize=("int8",)),
    "inverted": Net(Inverted, (IMAGE,), half=True, quantize=("int8", "int8-dynamic")),
    "shuffled": Net(Shuffled, (IMAGE,), half=True, quantize=("int8",)),
    "pyramid": Net(Pyramid, (IMAGE,), half=True, quantize=("int8",)),
    "detector": Net(Detector, (IMAGE,), half=True, quantize=("int8",)),
    "super_resolution": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.PReLU(8), nn.Conv2d(8, 16, 1),
                              nn.PixelShuffle(2)),
        (IMAGE,), half=True, quantize=("int8",),
    ),
    "window_attention": Net(WindowAttention, (_random(1, 4, 4, 8, seed=25),), half=True),
    "vision_transformer": Net(VisionTransformer, (IMAGE,), half=True, quantize=("int8-dynamic",)),
    "transformed": Net(Transformed, (IMAGE,)),
    "pixels": Net(lambda: nn.Sequential(Fn(_normalized), nn.Conv2d(3, 4, 3)), (PIXELS,)),
    # Speech.
    "wavenet": Net(WaveNet, (SERIES,), half=True, quantize=("int8",)),
    "vocoder": Net(Vocoder, (SERIES,), half=True, quantize=("int8",)),
    "speech": Net(Speech, (SERIES,), half=True),
    "spectrum": Net(Spectrum, (_random(1, 64, seed=26),)),
    # Text.
    "gpt": Net(Gpt, (IDS,), half=True, quantize=("int8-dynamic",)),
    "padded_attention": Net(
        PaddedAttention, (ROWS, torch.tensor([[False] * 5, [False] * 3 + [True] * 2]))
    ),
    "experts": Net(Experts, (ROWS,)),
    "state_space": Net(StateSpace, (ROWS,), quantize=("int8-dynamic",)),
    # Tables, graphs, distributions.
    "recommender": Net(Recommender, (torch.tensor([[1, 5, 2], [0, 3, 3], [7, 7, 1]]), M)),
    "graph": Net(Graph, (M,), half=True),
    "flow": Net(Flow, (M,), half=True),
    # State and control flow.
    "streaming": Net(Streaming, calls=tuple((_random(1, 4, 1, seed=i),) for i in range(5))),
    "window_cache": Net(
        WindowCache,
        calls=tuple((_random(1, 1, 16, seed=i), torch.tensor([i])) for i in range(6)),
    ),
    "branches": Net(
        Branches,
        calls=tuple((SERIES + d, torch.tensor([f])) for d in (-1, 1) for f in (False, True)),
    ),
    "while_pair": Net(WhilePair, (M,), peer=False),
    # Sizes.
    "dynamic_both": Net(
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        calls=((ROWS,), (_random(3, 9, 16),), (_random(4, 2, 16),)),
        dynamic=({0: _dim("b", 2, 4), 1: _dim("s", 2, 12)},),
    ),
    "dynamic_text": Net(
        lambda: nn.Sequential(nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 4)),
        calls=((IDS,), (torch.tensor([[3, 9, 10, 0, 1]]).repeat(2, 1),)),
        dynamic=({1: _dim("s", 2, 12)},),
        half=True, quantize=("int8-dynamic",),
    ),
    "dynamic_speech": Net(
        lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.GELU(), nn.Conv1d(4, 2, 1)),
        calls=((SERIES,), (_random(1, 4, 33),)),
        dynamic=({2: _dim("t", 8, 40)},),
        half=True,
    ),
    "dynamic_resized": Net(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Upsample(scale_factor=2)),
        calls=((IMAGE,), (_random(1, 4, 8, 12),)),
        dynamic=({2: _dim("h", 4, 16)},),
    ),
    "external_image": Net(
        lambda: nn.Sequential(Inverted(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
        (IMAGE,), config="external",
    ),
}  # fmt: skip
