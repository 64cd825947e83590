"""Modules that become one Neutron delegate, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shape = tuple[int, ...]


class Fn(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def conv(i: int, o: int, k: Any, **options: Any) -> nn.Module:
    return nn.Conv2d(i, o, k, **options)


def act(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules)


class Product(nn.Module):
    """Of two linear layers' results, one of which another operator reads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        return torch.matmul(q, self.k(x).transpose(1, 2)) + q[..., :8]


class Parameters(nn.Module):
    """A function of the input and parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: Shape) -> None:
        super().__init__()
        self.function = function
        self.parameters_ = nn.ParameterList(torch.rand(shape) + 0.5 for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parameters_)


class First(nn.Module):
    """The first result of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)[0]
        return result


class Tied(nn.Module):
    """A product with the transpose of a parameter, as that of a table of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.table.T


class Attention(nn.Module):
    """Several heads, as torch computes them, or spelt out."""

    def __init__(self, width: int = 32, heads: int = 4, spelt: bool = False) -> None:
        super().__init__()
        self.heads, self.spelt = heads, spelt
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        size = width // self.heads
        parts = self.qkv(x).view(n, tokens, 3, self.heads, size)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.spelt:
            y = torch.softmax(q @ k.transpose(-1, -2) / size**0.5, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, tokens, width))


IMAGE: Shape = (1, 8, 9, 7)
SQUARE: Shape = (1, 8, 8, 8)
TALL: Shape = (1, 16, 9, 7)

ACCEPTED: dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...]]] = {
    # convolutions
    "conv": (lambda: conv(8, 16, 3), (IMAGE,)),
    "conv-1x1": (lambda: conv(8, 3, 1), (IMAGE,)),
    "conv-same": (lambda: conv(8, 8, 3, padding=1), (IMAGE,)),
    "conv-stride": (lambda: conv(8, 8, 3, padding=1, stride=2), (SQUARE,)),
    "conv-stride-odd": (lambda: conv(8, 8, 3, padding=1, stride=2), (IMAGE,)),
    "conv-padding-2": (lambda: conv(8, 8, 3, padding=2), (IMAGE,)),
    "conv-rectangle": (lambda: conv(8, 8, (1, 5), padding=(0, 2), stride=(2, 1)), (IMAGE,)),
    "conv-dilated": (lambda: conv(8, 8, 3, dilation=2, padding=2), (IMAGE,)),
    "conv-same-word": (lambda: conv(8, 8, 3, padding="same"), (IMAGE,)),
    "conv-no-bias": (lambda: conv(8, 8, 3, bias=False), (IMAGE,)),
    "conv-batch": (lambda: conv(8, 8, 3), ((3, 8, 6, 6),)),
    "conv-relu": (lambda: act(conv(8, 8, 3), nn.ReLU()), (IMAGE,)),
    "conv-relu6": (lambda: act(conv(8, 8, 3), nn.ReLU6()), (IMAGE,)),
    "relu6-alone": (lambda: Fn(lambda x: F.relu6(x.flatten(1))), (IMAGE,)),
    "hardtanh-alone": (lambda: Fn(lambda x: F.hardtanh(x.flatten(1))), (IMAGE,)),
    "conv-hardtanh": (lambda: act(conv(8, 8, 3), nn.Hardtanh()), (IMAGE,)),
    "conv-hardtanh-01": (lambda: act(conv(8, 8, 3), nn.Hardtanh(0.0, 1.0)), (IMAGE,)),
    "conv-clamp": (lambda: act(conv(8, 8, 3), nn.Hardtanh(-0.3, 0.7)), (IMAGE,)),
    "conv-bn-relu": (lambda: act(conv(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (IMAGE,)),
    "conv-sigmoid": (lambda: act(conv(8, 8, 3), nn.Sigmoid()), (IMAGE,)),
    "depthwise": (lambda: conv(8, 8, 3, groups=8, padding=1), (IMAGE,)),
    "depthwise-multiplier": (lambda: conv(8, 16, 3, groups=8), (IMAGE,)),
    "depthwise-stride-relu6": (
        lambda: act(conv(8, 8, 3, groups=8, padding=1, stride=2), nn.ReLU6()),
        (SQUARE,),
    ),
    "conv1d": (lambda: nn.Conv1d(8, 16, 3, padding=1), ((1, 8, 20),)),
    "conv1d-stride": (lambda: nn.Conv1d(8, 16, 4, stride=3, padding=2), ((2, 8, 21),)),
    "conv1d-relu": (lambda: act(nn.Conv1d(8, 16, 3), nn.ReLU()), ((1, 8, 20),)),
    "groups": (lambda: conv(16, 24, 3, groups=2, padding=1), (TALL,)),
    "groups-relu": (lambda: act(conv(16, 8, 3, groups=4, stride=2), nn.ReLU()), (TALL,)),
    "groups-of-two": (lambda: conv(24, 24, 3, groups=12, padding=1), ((1, 24, 9, 7),)),
    "groups-of-three": (lambda: conv(48, 32, 3, groups=16), ((1, 48, 9, 7),)),
    "groups-many": (lambda: conv(256, 128, 1, groups=128), ((1, 256, 3, 2),)),
    "groups-joined": (lambda: conv(6, 8, 3, groups=2), ((1, 6, 9, 7),)),
    "groups-1d": (lambda: nn.Conv1d(16, 8, 3, groups=2), ((1, 16, 9),)),
    "clone": (
        lambda: act(conv(8, 8, 3), Fn(lambda x: x.contiguous(memory_format=torch.channels_last))),
        (IMAGE,),
    ),
    "to-channels-last": (
        lambda: act(conv(8, 8, 3), Fn(lambda x: x.to(memory_format=torch.channels_last))),
        (IMAGE,),
    ),
    "transposed": (lambda: nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), ((1, 8, 5, 6),)),
    "transposed-stride-1": (lambda: nn.ConvTranspose2d(8, 4, 3), ((1, 8, 5, 6),)),
    "transposed-groups": (
        lambda: nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1, groups=2),
        ((1, 8, 5, 6),),
    ),
    "transposed-depthwise": (
        lambda: nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1, groups=8),
        ((1, 8, 5, 6),),
    ),
    "transposed-uneven": (
        lambda: nn.ConvTranspose2d(8, 4, 3, stride=(3, 2), dilation=(1, 2)),
        ((1, 8, 5, 6),),
    ),
    "transposed-1d": (lambda: nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1), ((1, 8, 9),)),
    # products
    "linear": (lambda: nn.Linear(16, 10), ((3, 16),)),
    "linear-no-bias": (lambda: nn.Linear(16, 10, bias=False), ((3, 16),)),
    "linear-3d": (lambda: nn.Linear(16, 10), ((2, 5, 16),)),
    "linear-relu": (lambda: act(nn.Linear(16, 10), nn.ReLU()), ((3, 16),)),
    "linear-tanh": (lambda: act(nn.Linear(16, 10), nn.Tanh()), ((3, 16),)),
    "flatten-linear": (lambda: act(conv(8, 8, 3), nn.Flatten(), nn.Linear(280, 5)), (IMAGE,)),
    "bmm": (lambda: Fn(torch.bmm), ((2, 3, 8), (2, 8, 4))),
    "bmm-transposed": (lambda: Fn(lambda a, b: a @ b.transpose(1, 2)), ((2, 3, 8), (2, 4, 8))),
    "bmm-4d": (lambda: Fn(torch.matmul), ((1, 2, 3, 8), (1, 2, 8, 4))),
    "bmm-linear": (lambda: Product(), ((2, 8, 16),)),
    "mm": (lambda: Parameters(torch.mm, (16, 10)), ((3, 16),)),
    "addmm": (
        lambda: Parameters(lambda x, w, b: torch.addmm(b, x, w), (16, 10), (10,)),
        ((3, 16),),
    ),
    "softmax-bmm": (
        lambda: Fn(lambda a, b: torch.softmax(a, -1) @ b),
        ((2, 8, 8), (2, 8, 4)),
    ),
    "attention": (lambda: Attention(), ((1, 8, 32),)),
    "attention-spelt": (lambda: Attention(spelt=True), ((2, 8, 32),)),
    # two operands
    "bmm-of-two-views": (
        lambda: Fn(lambda a: torch.einsum("bij,bik->bkj", *[F.unfold(a, 2)] * 2)),
        ((1, 4, 6, 4),),
    ),
    "add": (lambda: Fn(lambda a, b: a + b), (IMAGE, IMAGE)),
    "add-channels": (lambda: Fn(lambda a, b: a + b), (IMAGE, (1, 8, 1, 1))),
    "add-rank": (lambda: Fn(lambda a, b: a + b), ((1, 5, 8), (8,))),
    "add-relu": (lambda: Fn(lambda a, b: torch.relu(a + b)), (IMAGE, IMAGE)),
    "add-itself": (lambda: Fn(lambda a: a + a), (IMAGE,)),
    "sub": (lambda: Fn(lambda a, b: a - b), (IMAGE, IMAGE)),
    "mul": (lambda: Fn(lambda a, b: a * b), (IMAGE, IMAGE)),
    "mul-gate": (lambda: Fn(lambda a, b: a * b), (IMAGE, (1, 8, 1, 1))),
    "add-number": (lambda: Fn(lambda x: x + 1.5), (IMAGE,)),
    "sub-number": (lambda: Fn(lambda x: torch.relu(x - 0.25)), (IMAGE,)),
    "number-sub": (lambda: Fn(lambda x: 1 - x), (IMAGE,)),
    "mul-number": (lambda: Fn(lambda x: -2.5 * x), (IMAGE,)),
    "mul-zero": (lambda: Fn(lambda x: torch.relu(x * 0.0 + x)), (IMAGE,)),
    "div-number": (lambda: Fn(lambda x: x / 3), (IMAGE,)),
    "div-parameter": (lambda: Parameters(lambda x, p: x / p, (8, 1, 1)), (IMAGE,)),
    "add-parameter": (lambda: Parameters(lambda x, p: x + p, IMAGE), (IMAGE,)),
    "maximum": (lambda: Fn(torch.maximum), (IMAGE, IMAGE)),
    "minimum": (lambda: Fn(torch.minimum), (IMAGE, IMAGE)),
    # one operand
    "abs": (lambda: Fn(torch.abs), (IMAGE,)),
    "exp": (lambda: Fn(torch.exp), (IMAGE,)),
    "log": (lambda: Fn(lambda x: torch.log(torch.abs(x) + torch.abs(x))), (IMAGE,)),
    "leaky_relu": (lambda: nn.LeakyReLU(0.1), (IMAGE,)),
    "prelu": (lambda: nn.PReLU(8), (IMAGE,)),
    "prelu-one": (nn.PReLU, ((3, 8),)),
    "neg": (lambda: Fn(torch.neg), (IMAGE,)),
    "neg-relu": (lambda: Fn(lambda x: torch.relu(torch.neg(x))), (SQUARE,)),
    "clamp": (lambda: Fn(lambda x: x.clamp(-0.5, 0.7)), (IMAGE,)),
    "sigmoid": (nn.Sigmoid, (IMAGE,)),
    "tanh": (nn.Tanh, (IMAGE,)),
    "tanh_": (lambda: Fn(lambda x: (x + x).tanh_()), (IMAGE,)),
    "sigmoid_": (lambda: act(conv(8, 8, 1), Fn(torch.sigmoid_)), (IMAGE,)),
    "abs_": (lambda: act(conv(8, 8, 1), Fn(torch.abs_)), (IMAGE,)),
    "neg_": (lambda: act(conv(8, 8, 1), Fn(torch.neg_)), (IMAGE,)),
    "exp_": (lambda: Fn(lambda x: torch.tanh(x).exp_()), (IMAGE,)),
    "log_": (lambda: Fn(lambda x: torch.exp(x).log_()), (IMAGE,)),
    "relu": (nn.ReLU, (IMAGE,)),
    "relu_": (lambda: act(conv(8, 8, 1), nn.ReLU(inplace=True)), (IMAGE,)),
    "clamp-to-a-number": (lambda: Fn(lambda x: x.sigmoid().clamp(2.25, 3)), (IMAGE,)),
    "leaky_relu-one": (lambda: nn.LeakyReLU(1.0), (IMAGE,)),
    "leaky_relu_": (lambda: act(conv(8, 8, 1), nn.LeakyReLU(0.2, inplace=True)), (IMAGE,)),
    "hardswish": (nn.Hardswish, (IMAGE,)),
    "hardswish_": (lambda: act(conv(8, 8, 1), nn.Hardswish(inplace=True)), (IMAGE,)),
    "conv-hardswish": (lambda: act(conv(8, 8, 3), nn.Hardswish()), (IMAGE,)),
    "hardsigmoid": (nn.Hardsigmoid, (IMAGE,)),
    "hardsigmoid_": (lambda: act(conv(8, 8, 1), nn.Hardsigmoid(inplace=True)), (IMAGE,)),
    "rsqrt": (lambda: Fn(lambda x: torch.rsqrt(x.abs() + 0.5)), (IMAGE,)),
    "rsqrt_": (lambda: Fn(lambda x: (x.abs() + 0.5).rsqrt_()), (IMAGE,)),
    "softmax": (lambda: nn.Softmax(-1), ((4, 16),)),
    "softmax-1d": (lambda: nn.Softmax(0), ((16,),)),
    "softmax-channels": (lambda: nn.Softmax(1), (SQUARE,)),
    "softmax-channels-many": (lambda: nn.Softmax(1), ((1, 8, 100, 100),)),
    "softmax-rows-of-an-image": (lambda: nn.Softmax(2), ((1, 4, 8, 36),)),
    "softmax-of-columns": (lambda: nn.Softmax(0), ((16, 6),)),
    "softmax-rows-many": (lambda: nn.Softmax(-1), ((5000, 8),)),
    # pooling, reductions
    "max_pool": (lambda: nn.MaxPool2d(2), (SQUARE,)),
    "max_pool-one": (lambda: nn.MaxPool2d(1), (IMAGE,)),
    "max_pool-padded": (lambda: nn.MaxPool2d(3, 2, 1), (SQUARE,)),
    "max_pool-padded-odd": (lambda: nn.MaxPool2d(3, 2, 1), (IMAGE,)),
    "max_pool-ceil": (lambda: nn.MaxPool2d(2, ceil_mode=True), (IMAGE,)),
    "max_pool-ceil-padded": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), ((1, 8, 8, 6),)),
    "avg_pool-ceil": (lambda: nn.AvgPool2d(2, ceil_mode=True), ((1, 8, 8, 6),)),
    "max_pool-indices": (
        lambda: Fn(lambda x: F.max_pool2d(x, 2, return_indices=True)[0]),
        (SQUARE,),
    ),
    "max_pool-indices-aten": (
        lambda: Fn(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[0]),
        (SQUARE,),
    ),
    "avg_pool": (lambda: nn.AvgPool2d(2), (SQUARE,)),
    "avg_pool-counted": (lambda: nn.AvgPool2d(3, 2, 1), (IMAGE,)),
    "avg_pool-same": (lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), (IMAGE,)),
    "max_pool-1d": (lambda: nn.MaxPool1d(3, 2, 1), ((1, 8, 9),)),
    "avg_pool-1d": (lambda: nn.AvgPool1d(2), ((1, 8, 8),)),
    "adaptive-1d": (lambda: nn.AdaptiveAvgPool1d(4), ((1, 8, 8),)),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d(4), (SQUARE,)),
    "max_pool-no-batch": (lambda: nn.MaxPool2d(3, 2, 1), ((8, 8, 8),)),
    "avg_pool-no-batch": (lambda: nn.AvgPool2d(2), ((8, 8, 8),)),
    "adaptive-no-batch": (lambda: act(conv(8, 8, 1), nn.AdaptiveAvgPool2d(4)), ((8, 8, 8),)),
    "adaptive-1": (lambda: nn.AdaptiveAvgPool2d(1), (IMAGE,)),
    "mean": (lambda: Fn(lambda x: x.mean((-1, -2))), (IMAGE,)),
    "mean-kept": (lambda: Fn(lambda x: x.mean((2, 3), keepdim=True)), (IMAGE,)),
    "mean-all": (lambda: Fn(lambda x: x.mean()), (IMAGE,)),
    "sum": (lambda: Fn(lambda x: x.sum(1)), ((1, 4, 3, 3),)),
    "sum-rows": (lambda: Fn(lambda x: x.sum(-1)), ((2, 4),)),
    "sum-columns": (lambda: Fn(lambda x: x.sum(0)), ((5, 3),)),
    "sum-kept": (lambda: Fn(lambda x: x.sum(-1, keepdim=True)), ((3, 7),)),
    "sum-dims": (lambda: Fn(lambda x: x.sum((1, 3))), (IMAGE,)),
    "sum-dims-kept": (lambda: Fn(lambda x: x.sum((-1, -2), keepdim=True)), (IMAGE,)),
    "sum-3d": (lambda: Fn(lambda x: x.sum(1)), ((2, 30, 4),)),
    "sum-all": (lambda: Fn(lambda x: x.sum()), ((3, 5),)),
    "conv-sum": (lambda: act(conv(8, 8, 3), Fn(lambda x: x.sum((2, 3)))), (IMAGE,)),
    "amax": (lambda: Fn(lambda x: torch.amax(x, 1)), (IMAGE,)),
    "amin": (lambda: Fn(lambda x: torch.amin(x, (1, 2))), (IMAGE,)),
    "amin-of-one": (lambda: Fn(lambda x: x.amin(1)), ((1, 1, 9, 7),)),
    # moves (beside something that computes)
    "cat": (lambda: Fn(lambda a, b: torch.cat([a, b], 1)), (IMAGE, IMAGE)),
    "cat-rows": (lambda: Fn(lambda a, b: torch.cat([a, b], 2)), (IMAGE, (1, 8, 2, 7))),
    "pad": (lambda: Fn(lambda x: F.pad(x, (1, 2, 0, 1))), (IMAGE,)),
    "pad-value": (lambda: Fn(lambda x: F.pad(x, (1, 2, 0, 1), value=0.5)), (IMAGE,)),
    "var-last": (lambda: Fn(lambda x: torch.var(x * 1.5, -1)), ((4, 16),)),
    "var-channels": (lambda: Fn(lambda x: torch.var(x * 1.5, 1, keepdim=True)), (IMAGE,)),
    "var-image": (
        lambda: Fn(lambda x: torch.var(x * 1.5, (2, 3), unbiased=False)),
        (IMAGE,),
    ),
    "var-all": (lambda: Fn(lambda x: torch.var(x * 1.5, correction=0)), (IMAGE,)),
    "std": (lambda: Fn(lambda x: torch.std(x * 1.5, 1)), (IMAGE,)),
    "pad-six-dimensions": (
        lambda: Fn(lambda x: F.pad(x, (1, 0, 0, 0, 0, 2, 0, 0, 1, 1))),
        ((2, 3, 2, 2, 3, 4),),
    ),
    "pad-six-dimensions-value": (
        lambda: Fn(lambda x: F.pad(x.transpose(1, 4), (0, 0, 1, 0), value=0.5)),
        ((2, 3, 2, 2, 3, 4),),
    ),
    "pad-reflect": (
        lambda: Fn(lambda x: torch.tanh(F.pad(x, (1, 2, 0, 1), mode="reflect"))),
        (IMAGE,),
    ),
    "pad-reflect-1d": (lambda: act(nn.ReflectionPad1d(2), nn.Tanh()), ((2, 8, 9),)),
    "conv-reflect": (lambda: conv(8, 8, 3, padding=1, padding_mode="reflect"), (IMAGE,)),
    "slice": (lambda: Fn(lambda x: x[:, 2:6, :, 1:]), (IMAGE,)),
    "slice-back": (lambda: Fn(lambda x: x[..., -3:-1]), (IMAGE,)),
    "step": (lambda: Fn(lambda x: torch.tanh(x[..., ::2])), (IMAGE,)),
    "step-rows": (lambda: Fn(lambda x: torch.tanh(x[:, :, 1:8:3])), (IMAGE,)),
    "step-channels": (lambda: act(conv(8, 8, 3), Fn(lambda x: torch.tanh(x[:, 1::2]))), (IMAGE,)),
    "step-merged": (
        lambda: Fn(lambda x: torch.tanh(torch.cat([x[:, ::2, 1::2], x[:, 1::2, ::2]], -1))),
        ((1, 4, 6, 8),),
    ),
    "select": (lambda: Fn(lambda x: torch.tanh(x[:, 3])), (IMAGE,)),
    "select-back": (lambda: act(conv(8, 8, 3), Fn(lambda x: torch.tanh(x[..., -2]))), (IMAGE,)),
    "chunk": (lambda: Fn(lambda x: torch.mul(*x.chunk(2, 1))), (IMAGE,)),
    "split": (lambda: Fn(lambda x: torch.cat(x.split([5, 3], 1)[::-1], 1)), (IMAGE,)),
    "unbind": (lambda: Fn(lambda x: torch.add(*x.unbind(0))), ((2, 8, 5),)),
    "squeeze": (lambda: Fn(lambda x: torch.tanh(x.squeeze())), (IMAGE,)),
    "permute": (lambda: Fn(lambda x: torch.sigmoid(x.permute(0, 2, 3, 1))), (IMAGE,)),
    "transpose": (lambda: Fn(lambda x: torch.tanh(x.transpose(1, 2))), ((2, 3, 8),)),
    "view": (lambda: Fn(lambda x: torch.tanh(x.reshape(1, 8, 63))), (IMAGE,)),
    "nearest": (lambda: nn.Upsample(scale_factor=2.0, mode="nearest"), (IMAGE,)),
    "bilinear": (lambda: nn.Upsample(scale_factor=2.0, mode="bilinear"), (IMAGE,)),
    # of smaller operators
    "silu": (nn.SiLU, (IMAGE,)),
    "silu_": (lambda: act(conv(8, 8, 1), nn.SiLU(inplace=True)), (IMAGE,)),
    "gelu": (nn.GELU, (IMAGE,)),
    "gelu-tanh": (lambda: nn.GELU(approximate="tanh"), (IMAGE,)),
    "sqrt": (lambda: Fn(lambda x: (x * x + 1).sqrt()), (IMAGE,)),
    "div-root": (lambda: Fn(lambda x: x / (x * x + 1).sqrt()), (IMAGE,)),
    "div-positive": (nn.Softsign, (IMAGE,)),
    "softmax-odd": (lambda: nn.Softmax(-1), ((4, 10),)),
    "softmax-odd-fixed": (lambda: act(nn.Tanh(), nn.Softmax(-1)), ((4, 10),)),
    "softmax-odd-shared": (
        lambda: Fn(lambda x: torch.softmax(x * 1.5, -1) * (x * 1.5).relu()),
        ((4, 10),),
    ),
    "softmax-odd-part": (
        lambda: Fn(lambda x: (y := x * 1.5)[:, :9].softmax(1) * y[:, 9:]),
        ((4, 10),),
    ),
    "softmax-odd-channels": (lambda: act(conv(8, 3, 1), nn.Softmax(1)), (IMAGE,)),
    "softmax-odd-scores": (
        lambda: Fn(lambda a, b: (a @ b.transpose(1, 2)).softmax(-1) @ b),
        ((2, 3, 8), (2, 7, 8)),
    ),
    "elu": (nn.ELU, (IMAGE,)),
    "elu-alpha": (lambda: act(conv(8, 8, 1), nn.ELU(0.5, inplace=True)), (IMAGE,)),
    "celu": (lambda: nn.CELU(2.0), (IMAGE,)),
    "selu": (nn.SELU, (IMAGE,)),
    "mish": (nn.Mish, (IMAGE,)),
    "softplus": (nn.Softplus, (IMAGE,)),
    "softplus-beta": (lambda: nn.Softplus(beta=2.0), (IMAGE,)),
    "square": (lambda: Fn(torch.square), (IMAGE,)),
    "cube": (lambda: Fn(lambda x: x**3), (IMAGE,)),
    "layer_norm": (lambda: act(nn.LayerNorm(8), nn.Linear(8, 8)), ((3, 5, 8),)),
    "layer_norm-2d": (lambda: act(nn.LayerNorm((5, 8)), nn.Linear(8, 8)), ((3, 5, 8),)),
    "rms_norm": (lambda: act(nn.RMSNorm(8), nn.Linear(8, 8)), ((3, 5, 8),)),
    "group_norm": (lambda: act(nn.GroupNorm(2, 8), conv(8, 8, 1)), (IMAGE,)),
    "instance_norm": (lambda: act(nn.InstanceNorm2d(8), conv(8, 8, 1)), (IMAGE,)),
    "glu": (lambda: nn.GLU(1), (IMAGE,)),
    "stack": (lambda: Fn(lambda a, b: torch.stack([a, b], 1)), (IMAGE, IMAGE)),
    "einsum": (lambda: Fn(lambda a, b: torch.einsum("bij,bkj->bik", a, b)), ((2, 3, 8), (2, 4, 8))),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3), ((1, 2, 5, 6, 6),)),
    "conv3d-transposed": (lambda: nn.ConvTranspose3d(2, 4, 2, 2), ((1, 2, 3, 4, 4),)),
    "adaptive-odd": (lambda: nn.AdaptiveAvgPool2d(5), (SQUARE,)),
    "narrow": (lambda: Fn(lambda x: torch.tanh(x.narrow(1, 2, 4))), (IMAGE,)),
    "movedim": (lambda: Fn(lambda x: torch.tanh(x.movedim(1, -1))), (IMAGE,)),
    "pixel_shuffle": (lambda: act(conv(8, 8, 1), nn.PixelShuffle(2)), (IMAGE,)),
    "channel_shuffle": (lambda: act(nn.ChannelShuffle(2), conv(8, 8, 1)), (IMAGE,)),
    "flip": (lambda: Fn(lambda x: torch.tanh(x.flip(1, 2))), ((2, 4, 8),)),
    "roll": (lambda: Fn(lambda x: torch.tanh(x.roll((-1, 2), (1, 2)))), ((2, 4, 8),)),
    "roll-all": (lambda: Fn(lambda x: torch.tanh(x.roll(5))), ((2, 4, 8),)),
    "expand": (
        lambda: Fn(lambda x: torch.tanh(x[:, :, None].expand(2, 2, 3, 4, 8).reshape(2, 6, 4, 8))),
        ((2, 2, 4, 8),),
    ),
    "outer": (lambda: Fn(lambda a, b: torch.tanh(a * b)), ((1, 8, 1, 4), (1, 1, 4, 1))),
    "outer-sum": (lambda: Fn(lambda a, b: torch.tanh(a - b)), ((3, 1, 8), (2, 1))),
    "matmul-batches": (
        lambda: Fn(lambda a, b: torch.tanh(a @ b)),
        ((2, 1, 3, 8), (1, 2, 8, 4)),
    ),
    "tied": (lambda: Tied(), ((2, 3, 8),)),
    "nearly-zero": (lambda: Fn(lambda x: (x - x.mean(-1, True)).mean(-1, True) + x), ((5, 8),)),
    "norm-of-a-norm": (
        lambda: nn.Sequential(nn.LayerNorm(8), nn.LayerNorm(8), nn.Tanh()),
        ((2, 3, 8),),
    ),
    "lstm": (lambda: First(nn.LSTM(6, 8)), ((4, 2, 6),)),
    "lstm-both-ways": (lambda: First(nn.LSTM(4, 4, bidirectional=True)), ((2, 1, 4),)),
    "gru": (lambda: First(nn.GRU(6, 8)), ((3, 2, 6),)),
    "rnn": (lambda: First(nn.RNN(6, 8)), ((3, 2, 6),)),
    "bilinear-corners": (
        lambda: nn.Upsample(size=(17, 13), mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
}

REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...], str]] = {
    "positions": (
        lambda: Fn(lambda x: torch.tanh(x / 3 + torch.arange(x.shape[-1]))),
        (IMAGE,),
        "quantized to int8; got .*: int64",
    ),
    "a bias that is computed": (
        lambda: Fn(lambda x, mean, b: F.batch_norm(x, mean, mean.abs() + 1, mean, b)),
        (IMAGE, IMAGE[1:2], IMAGE[1:2]),
        "constant weight and bias",
    ),
    "dropout of all": (
        lambda: Fn(lambda x: F.dropout(torch.tanh(x), 1.0, True)),
        (IMAGE,),
        "constants that are quantized; got .* in floating point",
    ),
    "3d": (
        lambda: nn.Conv3d(2, 4, 3),
        ((1, 2, 70, 5, 5),),  # more slices than a call is made of
        "int8|one or two dimensions",
    ),
    "large-window": (lambda: conv(8, 4, 100), ((1, 8, 100, 100),), "at most 65535; got 80000"),
    "ceil": (lambda: nn.AvgPool2d(2, ceil_mode=True), (IMAGE,), "got ceil_mode=True"),
    "divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), (IMAGE,), "divisor_override=None"),
    "not-counted": (
        lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        (SQUARE,),
        "padding that is counted",
    ),
    "max-dilated": (lambda: nn.MaxPool2d(2, dilation=2), (SQUARE,), "dilation=1"),
    "softmax-odd": (lambda: nn.Softmax(-1), ((4, 2047),), "2047 channels, no multiple of 8"),
    "softmax-long": (lambda: nn.Softmax(-1), ((4, 2050),), "2050 channels, not below 2048"),
    "add-alpha": (lambda: Fn(lambda a, b: torch.add(a, b, alpha=2)), (IMAGE, IMAGE), "alpha=2"),
    "broadcast-both": (
        lambda: Fn(lambda a, b: a + b),
        ((1, 1, 1, 70), (1, 1, 70, 1)),  # more copies than a call is made of
        "one operand has the result's size",
    ),
    "infinite": (
        lambda: Fn(lambda x: torch.relu(x + float("-inf"))),
        (IMAGE,),
        "floating point at inputs",
    ),
    "div-computed": (lambda: Fn(lambda x: x / (x.exp() + 2)), (IMAGE,), "aten.div.Tensor"),
    "power": (lambda: Fn(lambda x: x**4), (IMAGE,), "got aten.pow.Tensor_Scalar"),
    "no-row": (lambda: Fn(torch.erf), (IMAGE,), "aten.erf.default"),
    "idle-clamp": (lambda: Fn(lambda x: x.clamp(-99, 99)), (IMAGE,), "must compute something"),
    "no-op": (lambda: Fn(lambda x: x.reshape(1, -1)), (IMAGE,), "must compute something|int8"),
}

REFUSED_UNLESS_DECOMPOSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "softmax-dim": (lambda: nn.Softmax(2), "dim is the last"),
    "stride": (
        lambda: nn.ConvTranspose2d(8, 4, 3, stride=(3, 2)),
        "stride at most 2.*got stride 3 with a kernel of 3",
    ),
    "output-padding": (
        lambda: nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
        r"output_padding=\[1, 1\]",
    ),
    "groups": (lambda: nn.ConvTranspose2d(8, 4, 3, groups=2), "groups=1; got groups=2"),
    "size": (lambda: nn.Upsample(scale_factor=3.0), "scales of 1, 2, 4 or 8"),
    "factor": (lambda: nn.Upsample(scale_factor=2.1), "scale_factors are the quotients"),
}
"""Of an `IMAGE`, in programs of others' quantizers. Ours makes other convolutions and products of
them."""

ONES: Shape = (1, 1, 9, 7)
CONV = "convolution"


def behind(function: Callable[..., Tensor], channels: int = 8) -> nn.Module:
    """Of a convolution's result."""
    return act(conv(8, channels, 1), Fn(function))


def before(function: Callable[..., Tensor]) -> nn.Module:
    return act(Fn(function), conv(8, 8, 1))


IDLE: dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...], list[str]]] = {
    # alone
    "add-zero": (lambda: Fn(lambda x: x + 0), (IMAGE,), []),
    "zero-add": (lambda: Fn(lambda x: 0 + x), (IMAGE,), []),
    "add-zeros": (lambda: Fn(lambda x: x + torch.zeros(8, 1, 1)), (IMAGE,), []),
    "sub-zero": (lambda: Fn(lambda x: x - 0.0), (IMAGE,), []),
    "sub-zeros": (lambda: Fn(lambda x: x - torch.zeros(IMAGE)), (IMAGE,), []),
    "mul-one": (lambda: Fn(lambda x: x * 1), (IMAGE,), []),
    "mul-ones": (lambda: Fn(lambda x: torch.ones(1) * x), (IMAGE,), []),
    "div-one": (lambda: Fn(lambda x: x / 1), (IMAGE,), []),
    "mean": (lambda: Fn(lambda x: x.mean(1, keepdim=True)), (ONES,), []),
    "mean-dims": (lambda: Fn(lambda x: x.mean((0, 1), keepdim=True)), (ONES,), []),
    "sum": (lambda: Fn(lambda x: x.sum(1, keepdim=True)), (ONES,), []),
    "amax": (lambda: Fn(lambda x: x.amax(1, keepdim=True)), (ONES,), []),
    "amin": (lambda: Fn(lambda x: x.amin(1, keepdim=True)), (ONES,), []),
    "nearest": (lambda: nn.Upsample(scale_factor=1.0), (IMAGE,), []),
    "bilinear": (lambda: nn.Upsample(size=(9, 7), mode="bilinear"), (IMAGE,), []),
    "avg_pool": (lambda: nn.AvgPool2d(1), (IMAGE,), []),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d((9, 7)), (IMAGE,), []),
    "max-itself": (lambda: Fn(lambda x: torch.maximum(x, x)), (IMAGE,), []),
    "min-itself": (lambda: Fn(lambda x: torch.minimum(x, x)), (IMAGE,), []),
    "two": (lambda: Fn(lambda x: (x + 0) * 1), (IMAGE,), []),
    # at the end of a partition: the rest is delegated; at its beginning they go with it
    "behind-add": (lambda: behind(lambda x: x + 0), (IMAGE,), [CONV]),
    "before-add": (lambda: before(lambda x: 0 + x), (IMAGE,), ["add", CONV]),
    "behind-two": (lambda: behind(lambda x: (x - 0) / 1), (IMAGE,), [CONV]),
    "before-mul": (lambda: before(lambda x: x * 1), (IMAGE,), [CONV, "mul"]),
    "before-avg_pool": (
        lambda: act(nn.AvgPool2d(1), conv(8, 8, 1)),
        (IMAGE,),
        ["avg_pool2d", CONV],
    ),
    "behind-mean": (lambda: behind(lambda x: x.mean(1, keepdim=True), 1), (IMAGE,), [CONV]),
    "before-amax": (
        lambda: act(Fn(lambda x: x.amax(1, keepdim=True)), conv(1, 8, 1)),
        (ONES,),
        ["amax", CONV],
    ),
    "behind-max-itself": (lambda: behind(lambda x: torch.maximum(x, x)), (IMAGE,), [CONV]),
    "both": (
        lambda: act(Fn(lambda x: x + 0), conv(8, 8, 1), Fn(lambda x: x * 1)),
        (IMAGE,),
        ["add", CONV],
    ),
    # inside of one they go with it
    "inside": (
        lambda: act(conv(8, 8, 1), Fn(lambda x: x + 0), conv(8, 8, 1)),
        (IMAGE,),
        ["add", CONV, CONV],
    ),
}
"""Operators whose result is their operand, and what is delegated of the model."""
