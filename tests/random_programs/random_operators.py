"""What random programs are made of: operators with random settings of values that fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from random_drawing import Draw, Function, Operator
from torch import nn

Found = tuple[Function, list[int]] | None

OPERATORS: list[tuple[str, Operator]] = []
"""By name; as many times as it should be drawn for each other one."""


def operator(times: int = 1) -> Callable[[Callable[[Draw], Found]], Callable[[Draw], Found]]:
    def add(made: Callable[[Draw], Found]) -> Callable[[Draw], Found]:
        OPERATORS.extend([(made.__name__.removesuffix("_"), made)] * times)
        return made

    return add


def _of(function: Callable[..., Any]) -> Function:
    """A function of operands alone."""
    return lambda program, *operands: function(*operands)


def _dim(draw: Draw, index: int) -> int:
    """A dimension, counted from the end at times."""
    rank = draw[index].dim()
    return draw.random.randrange(rank) - (rank if draw.chance(0.3) else 0)


def _has_dims(*ranks: int) -> Callable[[torch.Tensor], bool]:
    return lambda t: t.dim() in ranks


def _goes_with(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(a.shape, b.shape).numel() < 5000
    except RuntimeError:
        return False


# --- elementwise -----------------------------------------------------------------------------

_UNARY = (
    *(torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.abs, torch.neg, torch.floor),
    *(torch.ceil, torch.round, torch.sin, torch.cos, torch.square, torch.erf, torch.sign),
    *(torch.trunc, torch.atan, torch.frac, torch.reciprocal, torch.expm1),
    *(F.gelu, F.silu, F.hardswish, F.hardsigmoid, F.elu, F.leaky_relu, F.softplus, F.mish),
    *(F.relu6, F.selu, F.celu, F.logsigmoid, F.softsign, F.tanhshrink, F.hardtanh),
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: torch.sqrt(x.abs() + 0.1),
    lambda x: torch.rsqrt(x * x + 0.1),
    lambda x: torch.log(x.abs() + 0.5),
    lambda x: torch.log1p(x.abs()),
    lambda x: (x.abs() + 0.1) ** 0.7,
    lambda x: x**3,
    lambda x: x.masked_fill(x > 0.2, 1.5),
)
_BINARY = (
    *(torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum),
    lambda x, y: x / (y.abs() + 0.5),
    lambda x, y: torch.add(x, y, alpha=0.5),
    lambda x, y: torch.lerp(x, y, 0.3),
    lambda x, y: torch.atan2(x, y.abs() + 0.3),
    lambda x, y: torch.addcmul(x, y, y, value=0.1),
    lambda x, y: torch.fmod(x, y.abs() + 0.7),
    lambda x, y: torch.remainder(x, y.abs() + 0.7),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: torch.where(x <= y, x, torch.zeros_like(x) - 1.0),
)


@operator(5)
def unary(draw: Draw) -> Found:
    return _of(draw.one_of(*_UNARY)), [draw.real()]


@operator(6)
def binary(draw: Draw) -> Found:
    a = draw.real()
    b = draw.real(lambda t: _goes_with(t, draw[a]))
    return _of(draw.one_of(*_BINARY)), [a, b]


@operator(2)
def with_number(draw: Draw) -> Found:
    c = draw.one_of(0.5, 2, -1.25, 3, 0.1)
    function = draw.one_of(
        lambda x: x + c,
        lambda x: x * c,
        lambda x: c - x,
        lambda x: x / c,
        lambda x: x.clamp(-abs(c), abs(c)),
        lambda x: x.clamp(min=c),
        lambda x: torch.div(x, c, rounding_mode="floor"),
        lambda x: torch.div(x, c, rounding_mode="trunc"),
    )
    return _of(function), [draw.real()]


@operator(2)
def with_constant(draw: Draw) -> Found:
    x = draw.real()
    shape = draw[x].shape[-1:] if draw.chance(0.5) else draw[x].shape
    constant = draw.constant(torch.randn(shape))
    if draw.chance(0.5):
        return lambda program, x: x + constant(program), [x]
    return lambda program, x: x * constant(program), [x]


@operator()
def with_sizes(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    return _of(lambda x: x / (x.shape[0] + 1) + torch.arange(x.shape[-1])), [x]


@operator()
def to_integers(draw: Draw) -> Found:
    dtype = draw.one_of(torch.int64, torch.int32)
    return _of(lambda x: (x.clamp(-50, 50) * 3).to(dtype)), [draw.real()]


@operator(2)
def of_integers(draw: Draw) -> Found:
    x = draw.value(lambda t: not t.is_floating_point() and t.dim() < 5)
    embedding = draw.layer(nn.Embedding(7, draw.one_of(3, 4, 8)))
    function = draw.one_of(
        lambda x: x.float(),
        lambda x: x + 3,
        lambda x: x * 2,
        lambda x: x % 5,
        lambda x: (x > 2).float(),
        lambda x: x // 3,
        lambda x: x.clamp(0, 4),
    )
    if draw.chance(0.3):
        return lambda program, x: embedding(program, x.remainder(7)), [x]
    return _of(function), [x]


@operator()
def with_booleans(draw: Draw) -> Found:
    function = draw.one_of(
        lambda x: (x > 0.5).any(-1).float(),
        lambda x: (x > -0.5).all().float(),
        lambda x: (x > 0).sum(),
        lambda x: torch.logical_not(x > 0).float(),
        lambda x: ((x > 0) & (x < 1)).float(),
    )
    return _of(function), [draw.real(lambda t: t.dim() > 0)]


# --- reductions and norms --------------------------------------------------------------------


@operator(2)
def reduction(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    rank = draw[x].dim()
    dims = sorted(draw.random.sample(range(rank), draw.random.randint(1, rank)))
    if math.prod(draw[x].shape[d] for d in dims) < 2:
        return None
    if draw.chance(0.3):
        dims = [d - rank for d in dims]
    keep = draw.chance(0.6)
    function = draw.one_of(
        lambda x: x.sum(dims, keepdim=keep),
        lambda x: x.mean(dims, keepdim=keep),
        lambda x: x.amax(dims, keepdim=keep),
        lambda x: x.amin(dims, keepdim=keep),
        lambda x: x.var(dims, keepdim=keep),
        lambda x: x.std(dims, keepdim=keep),
        lambda x: x.var(dims, unbiased=False, keepdim=keep),
        lambda x: torch.logsumexp(x, dims, keepdim=keep),
        lambda x: torch.linalg.vector_norm(x, dim=dims, keepdim=keep),
        lambda x: x.tanh().prod(dims[0], keepdim=keep),
    )
    return _of(function), [x]


@operator()
def softmax(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    dim, function = _dim(draw, x), draw.one_of(F.softmax, F.log_softmax)
    return _of(lambda x: function(x, dim=dim)), [x]


@operator()
def glu(draw: Draw) -> Found:
    x = draw.real(lambda t: any(size % 2 == 0 for size in t.shape))
    dim = draw.random.choice([d for d, size in enumerate(draw[x].shape) if size % 2 == 0])
    return _of(lambda x: F.glu(x, dim)), [x]


@operator()
def norm_of_last(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() >= 2 and t.shape[-1] > 1)
    return draw.layer(draw.one_of(nn.LayerNorm, nn.RMSNorm)(draw[x].shape[-1])), [x]


@operator(2)
def norm_of_channels(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() in (3, 4) and t.shape[1] > 1 and t[0, 0].numel() > 1)
    channels = draw[x].shape[1]
    batch = (nn.BatchNorm1d if draw[x].dim() == 3 else nn.BatchNorm2d)(channels)
    batch.running_mean.uniform_(-0.5, 0.5)
    batch.running_var.uniform_(0.5, 2)
    made = draw.one_of(batch, nn.GroupNorm(1, channels), nn.GroupNorm(channels, channels))
    with torch.no_grad():
        made.weight.uniform_(0.5, 1.5)
        made.bias.uniform_(-0.5, 0.5)
    return draw.layer(made), [x]


@operator()
def scan(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    count = draw.random.randint(1, draw[x].shape[dim])
    function = draw.one_of(
        lambda x: x.cumsum(dim),
        lambda x: x.tanh().cumprod(dim),
        lambda x: x.sort(dim, stable=True)[0],
        lambda x: x.topk(count, dim)[0],
        lambda x: x.argmax(dim),
        lambda x: x.argsort(dim, stable=True),
        lambda x: x.cummax(dim)[0],
        lambda x: x.max(dim)[0],
    )
    return _of(function), [x]


# --- products --------------------------------------------------------------------------------


@operator(3)
def linear(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    outputs = draw.one_of(1, 3, 4, 8, 12)
    return draw.layer(nn.Linear(draw[x].shape[-1], outputs, bias=draw.chance(0.7))), [x]


@operator(2)
def matmul(draw: Draw) -> Found:
    a = draw.real(lambda t: t.dim() >= 2)
    b = draw.real(
        lambda t: (
            t.dim() >= 2
            and t.shape[-1] == draw[a].shape[-1]
            and _goes_with(t[..., 0, 0], draw[a][..., 0, 0])
        )
    )
    return _of(lambda x, y: x @ y.transpose(-1, -2)), [a, b]


@operator()
def einsum(draw: Draw) -> Found:
    a = draw.real(_has_dims(3))
    b = draw.real(lambda t: t.dim() == 3 and t.shape[:2] == draw[a].shape[:2])
    equation = draw.one_of("bij,bik->bjk", "bij,bik->bkj", "bij,bik->ijk")
    return _of(lambda x, y: torch.einsum(equation, x, y)), [a, b]


@operator()
def attention(draw: Draw) -> Found:
    a = draw.real(_has_dims(3, 4))
    of_a = draw[a].shape
    b = draw.real(lambda t: (*t.shape[:-2], t.shape[-1]) == (*of_a[:-2], of_a[-1]))
    causal = of_a == draw[b].shape and draw.chance(0.3)
    attend = F.scaled_dot_product_attention
    return _of(lambda x, y: attend(x, y, y, is_causal=causal)), [a, b]


@operator()
def multihead_attention(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() == 3 and t.shape[2] % 2 == 0)
    made = draw.layer(nn.MultiheadAttention(draw[x].shape[2], 2, batch_first=True))
    return lambda program, x: made(program, x, x, x)[0], [x]


@operator()
def recurrent(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() == 3 and t.shape[1] <= 9)
    kind, both = draw.one_of(nn.LSTM, nn.GRU, nn.RNN), draw.chance(0.3)
    made = draw.layer(kind(draw[x].shape[2], 4, batch_first=True, bidirectional=both))
    return lambda program, x: made(program, x)[0], [x]


# --- convolutions and pools ------------------------------------------------------------------


def _image(t: torch.Tensor) -> bool:
    return t.dim() in (3, 4) and t.shape[1] <= 24


@operator(5)
def convolution(draw: Draw) -> Found:
    x = draw.real(_image)
    rank, channels = draw[x].dim() - 2, draw[x].shape[1]
    groups = draw.random.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    outputs = groups * draw.one_of(1, 2, 3) if groups > 1 else draw.one_of(2, 4, 6, 8)
    size = tuple(draw.one_of(1, 2, 3, 3, 5) for _ in range(rank))
    made = (nn.Conv1d, nn.Conv2d)[rank - 1](
        channels,
        outputs,
        size,
        stride=tuple(draw.one_of(1, 1, 2) for _ in range(rank)),
        padding=tuple(draw.one_of(0, k // 2, 1) for k in size),
        dilation=draw.one_of(1, 1, 1, 2),
        groups=groups,
        bias=draw.chance(0.6),
        padding_mode=draw.one_of(*["zeros"] * 6, "reflect", "replicate", "circular"),
    )
    convolve, activation = draw.layer(made), draw.one_of(None, F.relu, F.relu6, F.hardswish)
    if activation is None:
        return convolve, [x]
    return lambda program, x: activation(convolve(program, x)), [x]


@operator()
def transposed_convolution(draw: Draw) -> Found:
    x = draw.real(lambda t: _image(t) and max(t.shape[2:]) < 12)
    rank, channels = draw[x].dim() - 2, draw[x].shape[1]
    groups = draw.random.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    stride = draw.one_of(1, 2, 3)
    made = (nn.ConvTranspose1d, nn.ConvTranspose2d)[rank - 1](
        channels,
        groups * draw.one_of(1, 2),
        draw.one_of(2, 3, 4),
        stride=stride,
        padding=draw.one_of(0, 1),
        output_padding=draw.random.randrange(stride),
        groups=groups,
    )
    return draw.layer(made), [x]


@operator(2)
def pool(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() in (3, 4) and min(t.shape[2:]) >= 3)
    of_lines = draw[x].dim() == 3
    size, stride, padding = draw.one_of(2, 3), draw.one_of(1, 2, 3), draw.one_of(0, 1)
    ceil, counts, target = draw.chance(0.3), draw.chance(0.5), draw.one_of(1, 2, 3)
    maximum = F.max_pool1d if of_lines else F.max_pool2d
    average = F.avg_pool1d if of_lines else F.avg_pool2d
    adaptive = (
        (F.adaptive_avg_pool1d, F.adaptive_max_pool1d)
        if of_lines
        else (F.adaptive_avg_pool2d, F.adaptive_max_pool2d)
    )
    function = draw.one_of(
        lambda x: maximum(x, size, stride, padding, ceil_mode=ceil),
        lambda x: maximum(x, 2, 1, dilation=2),
        lambda x: average(x, size, stride, padding, ceil, counts),
        *(lambda x, f=f: f(x, target) for f in adaptive),
    )
    return _of(function), [x]


@operator()
def resize(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() == 4 and t.numel() < 800)
    mode = draw.one_of("nearest", "nearest-exact", "bilinear", "bicubic")
    corners = draw.chance(0.5) if mode[0] == "b" else None
    if draw.chance(0.5):
        to: dict[str, Any] = {"scale_factor": draw.one_of(2, 1.5, 0.5, (2, 1))}
    else:
        to = {"size": (draw.random.randint(1, 9), draw.random.randint(1, 9))}
    return _of(lambda x: F.interpolate(x, mode=mode, align_corners=corners, **to)), [x]


@operator()
def shuffle(draw: Draw) -> Found:
    x = draw.real(_has_dims(4))
    function = draw.one_of(
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.pixel_unshuffle(x, 2),
        lambda x: F.channel_shuffle(x, 2),
    )
    return _of(function), [x]


@operator()
def windows(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() == 4 and t.numel() < 600)
    return _of(draw.one_of(lambda x: F.unfold(x, 2), lambda x: x.unfold(2, 3, 2))), [x]


# --- shapes ----------------------------------------------------------------------------------


@operator()
def permute(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 1)
    order = draw.random.sample(range(draw[x].dim()), draw[x].dim())
    return _of(lambda x: x.permute(order)), [x]


@operator()
def transpose(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 1)
    a, b = draw.random.sample(range(draw[x].dim()), 2)
    return _of(lambda x: x.transpose(a, b)), [x]


@operator()
def flatten(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 1)
    first, last = sorted(draw.random.sample(range(draw[x].dim()), 2))
    return _of(lambda x: x.flatten(first, last)), [x]


@operator()
def unflatten(draw: Draw) -> Found:
    x = draw.value(lambda t: 0 < t.dim() < 6)
    dim = draw.random.randrange(draw[x].dim())
    parts = draw.one_of((-1, 2), (2, -1), (-1, 3), (4, -1))
    return _of(lambda x: x.unflatten(dim, parts)), [x]


@operator()
def squeeze(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() < 6)
    ones = [d for d, size in enumerate(draw[x].shape) if size == 1]
    if ones and draw.chance(0.5):
        gone = draw.random.choice(ones)
        return _of(lambda x: x.squeeze(gone)), [x]
    new = draw.random.randint(-draw[x].dim() - 1, draw[x].dim())
    return _of(lambda x: x.unsqueeze(new)), [x]


@operator()
def slice_(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    size = draw[x].shape[dim]
    part = slice(
        draw.one_of(None, 0, 1, -2, -1),
        draw.one_of(None, size - 1, size, -1, 100),
        draw.one_of(1, 2),
    )
    return _of(lambda x: x[(*(slice(None),) * dim, part)]), [x]


@operator()
def select(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    size = draw[x].shape[dim]
    index = draw.random.randint(-size, size - 1)
    return _of(lambda x: x.select(dim, index)), [x]


@operator(2)
def concatenate(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    like = draw[x].select(dim, 0)
    others = [
        draw.value(
            lambda t: (
                t.dtype == like.dtype
                and t.dim() == like.dim() + 1
                and t.select(dim, 0).shape == like.shape
            )
        )
        for _ in range(draw.random.randint(1, 3))
    ]
    return _of(lambda *parts: torch.cat(parts, dim)), [x, *others]


@operator()
def stack(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() < 5)
    y = draw.value(lambda t: t.dtype == draw[x].dtype and t.shape == draw[x].shape)
    dim = draw.random.randint(-draw[x].dim() - 1, draw[x].dim())
    return _of(lambda *parts: torch.stack(parts, dim)), [x, y]


@operator()
def split(draw: Draw) -> Found:
    x = draw.value(lambda t: any(1 < size <= 8 for size in t.shape))
    dim = draw.random.choice([d for d, size in enumerate(draw[x].shape) if 1 < size <= 8])
    size = draw[x].shape[dim]
    first = draw.random.randint(1, size - 1)
    function = draw.one_of(
        lambda x: x.chunk(2, dim),
        lambda x: x.split((size + 1) // 2, dim),
        lambda x: x.split([first, size - first], dim),
        lambda x: x.unbind(dim),
    )
    return _of(function), [x]


@operator(2)
def repeat(draw: Draw) -> Found:
    x = draw.value(lambda t: 0 < t.dim() < 6 and t.numel() < 800)
    shape = draw[x].shape
    times = [draw.one_of(1, 1, 2) for _ in shape]
    wide = [3 if size == 1 and draw.chance(0.7) else -1 for size in shape]
    dim = draw.random.randrange(len(shape))
    function = draw.one_of(
        lambda x: x.expand(wide),
        lambda x: x.expand(2, *wide),
        lambda x: x.repeat(times),
        lambda x: x.repeat_interleave(2, dim),
    )
    return _of(function), [x]


@operator()
def roll(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim, by = draw.random.randrange(draw[x].dim()), draw.one_of(1, -1, 2)
    return _of(draw.one_of(lambda x: x.flip(dim), lambda x: x.roll(by, dim))), [x]


@operator(2)
def pad(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 0)
    mode = draw.one_of(*["constant"] * 3, "reflect", "replicate", "circular")
    dims = draw.random.randint(1, draw[x].dim()) if mode == "constant" else draw[x].dim() - 2
    amounts = [draw.one_of(0, 0, 1, 2) for _ in range(2 * dims)]
    number = draw.one_of(0.0, 1.5) if mode == "constant" else None
    return _of(lambda x: F.pad(x, amounts, mode, number)), [x]


@operator()
def index(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    size = draw[x].shape[dim]
    count = draw.random.randint(1, 5)
    inside = draw.constant(torch.randint(0, size, (count,)))
    signed = draw.constant(torch.randint(-size, size, (count,)))
    each = draw.constant(
        torch.randint(0, size, (*draw[x].shape[:dim], 2, *draw[x].shape[dim + 1 :]))
    )
    before = (slice(None),) * dim
    function = draw.one_of(
        lambda program, x: x.index_select(dim, inside(program)),
        lambda program, x: x[(*before, signed(program))],
        lambda program, x: x.gather(dim, each(program)),
    )
    return function, [x]


@operator()
def triangle(draw: Draw) -> Found:
    x = draw.real(lambda t: t.dim() > 1)
    function, diagonal = draw.one_of(torch.tril, torch.triu), draw.one_of(-1, 0, 1)
    return _of(lambda x: function(x, diagonal)), [x]


@operator()
def rows(draw: Draw) -> Found:
    x = draw.real(_has_dims(3))
    function = draw.one_of(
        lambda x: torch.cdist(x, x + 1),
        lambda x: F.cosine_similarity(x, x.flip(1), dim=-1),
        lambda x: F.normalize(x, dim=-1),
        lambda x: F.one_hot(x.argmax(-1), x.shape[-1]).float(),
    )
    return _of(function), [x]


# --- writes ----------------------------------------------------------------------------------


@operator()
def write_part(draw: Draw) -> Found:
    x = draw.value(lambda t: t.dim() > 0)
    dim = draw.random.randrange(draw[x].dim())
    at = draw.random.randrange(draw[x].shape[dim])
    write = draw.one_of(
        lambda y: y.select(dim, at).fill_(2),
        lambda y: y.select(dim, at).add_(1),
        lambda y: y.select(dim, at).copy_(y.select(dim, 0) * 2),
        lambda y: y.narrow(dim, 0, at + 1).neg_(),
    )

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y

    return _of(written), [x]


@operator()
def write_all(draw: Draw) -> Found:
    write = draw.one_of(
        lambda y: y.relu_(),
        lambda y: y.tanh_(),
        lambda y: y.add_(y.mean()),
        lambda y: y.view(-1)[:1].zero_(),
    )

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        write(y)
        return y

    return _of(written), [draw.real()]
