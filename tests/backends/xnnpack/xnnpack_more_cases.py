"""More cases of the operator table: operators that XNNPACK has no single node for."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from support import Fn

Accepted = tuple[nn.Module, tuple[torch.Tensor, ...]]
Refused = tuple[nn.Module, tuple[torch.Tensor, ...], str, str]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def made(kind: Any, *args: Any, **options: Any) -> nn.Module:
    """A module with parameters that are the same in every run, and norms with statistics."""
    torch.manual_seed(1)
    module = kind(*args, **options)
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d)):
            if value.is_floating_point():
                value.data.uniform_(0.5, 1.5)
            assert name
    return module


class Outputs(nn.Module):
    """Some of a module's outputs."""

    def __init__(self, module: nn.Module, *places: int) -> None:
        super().__init__()
        self.module, self.places = module, places

    def forward(self, *inputs: torch.Tensor) -> Any:
        found = torch.utils._pytree.tree_leaves(self.module(*inputs))
        return [found[i] for i in self.places]


MATRIX = t(3, 5)
IMAGE = t(2, 4, 7, 5)
VOLUME = t(2, 3, 4, 5, 2)
EVEN = t(1, 4, 8, 6)
SEQUENCE = t(2, 4, 9)
WIDE = torch.tensor([[-100.0, -20.0, -1.0, -0.1, 0.0, 0.1, 1.0, 20.0, 100.0]])
INFINITE = torch.tensor([[1.0, math.inf, -math.inf], [-math.inf, 2.0, 0.0]])
HIDDEN = torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf, -math.inf, 3.0]])
MASK = torch.tensor([[True, False, True], [False, True, True]])


def fn(function: Any, *inputs: torch.Tensor, **constants: torch.Tensor) -> Accepted:
    return Fn(function, **constants), inputs or (MATRIX,)


def channels_last(module: nn.Module) -> nn.Module:
    """Between two convolutions, where the image lies with its channels last."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(4, 4, 1), module, nn.Conv2d(4, 4, 1))


ACCEPTED: dict[str, dict[str, Accepted]] = {
    "conv2d": {
        "1-D": (made(nn.Conv1d, 4, 6, 3), (SEQUENCE,)),
        "1-D, stride, padding, dilation, groups": (
            made(nn.Conv1d, 4, 6, 3, 2, 5, 2, groups=2),
            (SEQUENCE,),
        ),
        "1-D, depthwise": (made(nn.Conv1d, 4, 4, 3, groups=4), (SEQUENCE,)),
        "1-D, without batch": (made(nn.Conv1d, 4, 6, 3), (SEQUENCE[0],)),
        "1-D, even and the same size": (made(nn.Conv1d, 4, 6, 4, padding="same"), (SEQUENCE,)),
        "1-D, one place": (made(nn.Conv1d, 4, 6, 1), (t(1, 4, 1),)),
        "1-D, twice": (
            nn.Sequential(made(nn.Conv1d, 4, 6, 3), nn.ReLU(), made(nn.Conv1d, 6, 3, 3)),
            (SEQUENCE,),
        ),
        "1-D, transposed": (
            made(nn.ConvTranspose1d, 4, 6, 3, stride=2, padding=1, output_padding=1),
            (SEQUENCE,),
        ),
        "1-D, transposed, groups": (made(nn.ConvTranspose1d, 4, 6, 3, groups=2), (SEQUENCE,)),
        "large padding": (made(nn.Conv2d, 4, 6, 3, padding=7), (IMAGE,)),
        "reflected padding": (
            made(nn.Conv2d, 4, 6, 3, padding=2, padding_mode="reflect"),
            (IMAGE,),
        ),
    },
    "avg_pool2d": {
        "": (nn.AvgPool2d(2), (IMAGE,)),
        "one row of windows": (nn.AvgPool2d((7, 2), (1, 3)), (IMAGE,)),
        "padding that does not count": (
            nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            (IMAGE,),
        ),
        "padding that counts": (nn.AvgPool2d((3, 5), 2, (1, 2)), (IMAGE,)),
        "divisor_override": (nn.AvgPool2d((2, 3), divisor_override=6), (IMAGE,)),
        "divisor_override, padding that counts": (
            nn.AvgPool2d(2, padding=1, divisor_override=4),
            (IMAGE,),
        ),
        "a window of one": (nn.AvgPool2d(1, 2), (IMAGE,)),
        "stride above the window": (nn.AvgPool2d(2, 3), (t(1, 4, 9, 9),)),
        "three dimensions": (nn.AvgPool2d(2), (IMAGE[0],)),
        "1-D": (nn.AvgPool1d(3, 2, 1), (SEQUENCE,)),
        "1-D, without batch": (nn.AvgPool1d(2), (SEQUENCE[0],)),
        "adaptive": (nn.AdaptiveAvgPool2d((4, 2)), (EVEN,)),
        "adaptive, 1-D": (nn.AdaptiveAvgPool1d(3), (SEQUENCE,)),
    },
    "max_pool2d": {
        "ceil_mode": (nn.MaxPool2d(3, 2, ceil_mode=True), (t(1, 4, 8, 6),)),
        "ceil_mode, padding": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (IMAGE,)),
        "ceil_mode, dilation": (nn.MaxPool2d(2, 2, 0, 2, ceil_mode=True), (IMAGE,)),
        "ceil_mode that changes nothing": (nn.MaxPool2d(2, ceil_mode=True), (EVEN,)),
        "three dimensions": (nn.MaxPool2d(2), (IMAGE[0],)),
        "infinities": (nn.MaxPool2d(2), (torch.full((1, 1, 2, 2), -math.inf),)),
    },
    "max_pool2d_with_indices": {
        "1-D": (nn.MaxPool1d(3, 2, 1), (SEQUENCE,)),
        "1-D, ceil_mode": (nn.MaxPool1d(2, ceil_mode=True), (SEQUENCE,)),
        "adaptive": (nn.AdaptiveMaxPool2d((2, 3)), (EVEN,)),
    },
    "upsample_bilinear2d": {
        "factor": (nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGE,)),
        "corners": (nn.Upsample(scale_factor=3, mode="bilinear", align_corners=True), (IMAGE,)),
        "size": (nn.Upsample(size=(9, 11), mode="bilinear"), (IMAGE,)),
        "size, corners": (nn.Upsample(size=(9, 11), mode="bilinear", align_corners=True), (IMAGE,)),
        "smaller": (nn.Upsample(size=(3, 2), mode="bilinear"), (IMAGE,)),
        "one row": (nn.Upsample(size=(1, 8), mode="bilinear"), (IMAGE,)),
        "of one place": (nn.Upsample(size=(3, 4), mode="bilinear"), (t(1, 4, 1, 1),)),
        "same size": (nn.Upsample(size=(7, 5), mode="bilinear"), (IMAGE,)),
        "between convolutions": (
            channels_last(nn.Upsample(scale_factor=2, mode="bilinear")),
            (IMAGE,),
        ),
    },
    "upsample_nearest": {
        "1-D": (nn.Upsample(scale_factor=3), (SEQUENCE,)),
        "2-D": (nn.Upsample(scale_factor=2), (IMAGE,)),
        "2-D, by size": (nn.Upsample(size=(14, 15)), (IMAGE,)),
        "2-D, one direction": (nn.Upsample(size=(7, 10)), (IMAGE,)),
        "3-D": (nn.Upsample(scale_factor=2), (VOLUME,)),
        "between convolutions": (channels_last(nn.Upsample(scale_factor=2)), (IMAGE,)),
    },
    "scaled_dot_product_attention": {
        "two dimensions": fn(F.scaled_dot_product_attention, t(6, 8), t(5, 8), t(5, 8)),
        "groups of heads": fn(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            t(2, 6, 6, 8),
            t(2, 2, 5, 8, seed=1),
            t(2, 2, 5, 8, seed=2),
        ),
        "groups of heads, causal": fn(
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ),
            t(1, 4, 5, 8),
            t(1, 1, 5, 8, seed=1),
            t(1, 1, 5, 8, seed=2),
        ),
        "groups of heads, a mask for each head": fn(
            lambda q, k, v, m: F.scaled_dot_product_attention(
                q, k, v, attn_mask=m, enable_gqa=True
            ),
            t(2, 6, 6, 8),
            t(2, 2, 5, 8, seed=1),
            t(2, 2, 5, 8, seed=2),
            t(2, 6, 6, 5),
        ),
        "groups of heads, a mask for all": fn(
            lambda q, k, v, m: F.scaled_dot_product_attention(
                q, k, v, attn_mask=m, enable_gqa=True
            ),
            t(2, 6, 6, 8),
            t(2, 2, 5, 8, seed=1),
            t(2, 2, 5, 8, seed=2),
            m=t(2, 1, 6, 5),
        ),
        "groups that are heads": fn(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            *(t(1, 2, 5, 8, seed=s) for s in range(3)),
        ),
        "one query for several keys": fn(
            F.scaled_dot_product_attention, t(1, 3, 6, 8), t(2, 3, 5, 8), t(2, 3, 5, 8)
        ),
        "one key for several queries": fn(
            F.scaled_dot_product_attention, t(2, 3, 6, 8), t(1, 5, 8), t(1, 1, 5, 8)
        ),
        "five dimensions": fn(
            F.scaled_dot_product_attention, *(t(2, 1, 3, 5, 4, seed=s) for s in range(3))
        ),
        "one token": fn(
            F.scaled_dot_product_attention, t(1, 2, 1, 4), t(1, 2, 1, 4), t(1, 2, 1, 4)
        ),
    },
    "addmm": {
        "computed bias": fn(lambda x, b, w: torch.addmm(b, x, w), MATRIX, t(4), w=t(5, 4)),
        "computed matrix": fn(
            lambda x, w, b: torch.addmm(b, x, w), MATRIX, t(5, 4, seed=1), b=t(4)
        ),
        "all computed": fn(torch.addmm, t(4), MATRIX, t(5, 4, seed=1)),
        "factors": fn(
            lambda x, w, b: torch.addmm(b, x, w, alpha=2, beta=3), MATRIX, w=t(5, 4), b=t(4)
        ),
        "factors, computed": fn(
            lambda b, x, w: torch.addmm(b, x, w, alpha=2, beta=3), t(4), MATRIX, t(5, 4)
        ),
        "bias of rows": fn(lambda x, w, b: torch.addmm(b, x, w), w=t(5, 4), b=t(3, 4)),
        "bias of one number": fn(lambda x, w, b: torch.addmm(b, x, w), w=t(5, 1), b=t()),
        "computed weight of a linear layer": fn(F.linear, MATRIX, t(4, 5), t(4)),
    },
    "softmax": {
        "first dimension": fn(lambda x: x.softmax(0)),
        "channels": fn(lambda x: x.softmax(1), IMAGE),
        "between convolutions": (channels_last(nn.Softmax2d()), (IMAGE,)),
        "one dimension": fn(lambda x: x.softmax(0), t(5)),
        "one element": fn(lambda x: x.softmax(-1), t(3, 1)),
        "hidden elements": fn(lambda x: x.softmax(-1), HIDDEN),
        "large": fn(lambda x: x.softmax(-1), MATRIX * 1e4),
    },
    "log_softmax": {
        "": fn(lambda x: x.log_softmax(-1)),
        "first dimension": fn(lambda x: x.log_softmax(0)),
        "channels": fn(lambda x: x.log_softmax(1), IMAGE),
        "hidden elements": fn(lambda x: x.log_softmax(-1), HIDDEN),
        "large": fn(lambda x: x.log_softmax(-1), MATRIX * 100),
        "one element": fn(lambda x: x.log_softmax(-1), t(3, 1)),
    },
    "logsumexp": {
        "": fn(lambda x: x.logsumexp(-1)),
        "two dimensions, kept": fn(lambda x: x.logsumexp((0, 2), keepdim=True), t(2, 3, 5)),
        "infinities": fn(lambda x: x.logsumexp(-1), torch.tensor([[math.inf, 1], [-math.inf] * 2])),
        "large": fn(lambda x: x.logsumexp(-1), MATRIX * 1000),
    },
    "mean": {
        "first": fn(lambda x: x.mean(0)),
        "middle": fn(lambda x: x.mean(1), t(2, 3, 5)),
        "first and last": fn(lambda x: x.mean((0, 2), keepdim=True), t(2, 3, 5)),
        "two of three": fn(lambda x: x.mean((1, 2)), t(2, 3, 5)),
        "all": fn(torch.mean),
        "channels": fn(lambda x: x.mean(1, keepdim=True), IMAGE),
        "channels, between convolutions": (
            channels_last(Fn(lambda x: x - x.mean(1, keepdim=True))),
            (IMAGE,),
        ),
        "five dimensions": fn(lambda x: x.mean((2, 3, 4)), VOLUME),
        "every other of five": fn(lambda x: x.mean((0, 2, 4)), VOLUME),
        "six dimensions": fn(lambda x: x.mean((1, 4)), t(2, 3, 1, 2, 3, 2)),
        "one element": fn(lambda x: x.mean(1), t(3, 1)),
        "of a transposed tensor": fn(lambda x: x.transpose(1, 2).mean(1), t(2, 3, 5)),
        "adaptive, 1-D": (nn.AdaptiveAvgPool1d(1), (SEQUENCE,)),
        "many": fn(lambda x: x.mean(-1), t(2, 5000)),
        "infinities": fn(lambda x: x.mean(-1), torch.tensor([[math.inf, 1.0], [0.0, -math.inf]])),
    },
    "sum": {
        "all": fn(torch.sum),
        "last": fn(lambda x: x.sum(-1)),
        "first, kept": fn(lambda x: x.sum(0, keepdim=True)),
        "first and last": fn(lambda x: x.sum((0, 2)), t(2, 3, 5)),
        "spatial": fn(lambda x: x.sum((2, 3)), IMAGE),
        "product of matrix and vector": fn(torch.matmul, MATRIX, t(5)),
        "product of vectors": fn(torch.dot, t(5), t(5, seed=1)),
        "one element": fn(lambda x: x.sum(-1), t(3, 1)),
    },
    "amax": {
        "last": fn(lambda x: x.amax(-1)),
        "first, kept": fn(lambda x: x.amax(0, keepdim=True)),
        "middle": fn(lambda x: x.amax(1), t(2, 3, 5)),
        "first and last": fn(lambda x: x.amax((0, 2)), t(2, 3, 5)),
        "all": fn(lambda x: x.max()),
        "channels, between convolutions": (
            channels_last(Fn(lambda x: x - x.amax(1, keepdim=True))),
            (IMAGE,),
        ),
        "adaptive pooling": (nn.AdaptiveMaxPool2d(1), (IMAGE,)),
        "negative": fn(lambda x: x.amax(-1), -MATRIX.abs() - 5),
        "infinities": fn(lambda x: x.amax(-1), INFINITE),
        "one element": fn(lambda x: x.amax(-1), t(3, 1)),
        "many": fn(lambda x: x.amax(-1), -t(2, 9001).abs()),
    },
    "amin": {
        "last": fn(lambda x: x.amin(-1)),
        "all": fn(lambda x: x.min()),
        "five dimensions": fn(lambda x: x.amin((1, 3)), VOLUME),
        "infinities": fn(lambda x: x.amin(-1), INFINITE),
    },
    "max_dim": {"": fn(lambda x: x.max(1)[0]), "kept": fn(lambda x: x.max(0, keepdim=True)[0])},
    "min_dim": {"": fn(lambda x: x.min(1).values)},
    "var": {
        "": fn(lambda x: x.var(-1)),
        "biased": fn(lambda x: x.var((0, 2), unbiased=False), t(2, 3, 5)),
        "all": fn(torch.var),
        "correction": fn(lambda x: x.var(0, correction=2, keepdim=True)),
        "far from zero": fn(lambda x: x.var(-1), MATRIX + 100),
    },
    "std": {
        "": fn(lambda x: x.std(-1)),
        "spatial": fn(lambda x: x.std((2, 3), correction=0, keepdim=True), IMAGE),
    },
    "var_mean": {"": fn(lambda x: torch.var_mean(x, -1))},
    "std_mean": {"": fn(lambda x: torch.std_mean(x, (0, 1)))},
    "linalg_vector_norm": {
        "": fn(lambda x: x.norm(dim=-1)),
        "normalised": fn(lambda x: F.normalize(x, dim=-1)),
        "absolute": fn(lambda x: torch.linalg.vector_norm(x, 1, 0)),
        "largest": fn(lambda x: torch.linalg.vector_norm(x, math.inf, -1, keepdim=True)),
        "all": fn(torch.linalg.vector_norm),
        "zeros": fn(lambda x: F.normalize(x, dim=-1), torch.zeros(2, 3)),
    },
    "rms_norm": {
        "": (made(nn.RMSNorm, 5), (MATRIX,)),
        "eps": (made(nn.RMSNorm, 5, eps=0.1), (MATRIX,)),
        "two dimensions": (made(nn.RMSNorm, (3, 5)), (t(2, 3, 5),)),
        "without weight": (nn.RMSNorm(5, elementwise_affine=False), (MATRIX,)),
        "spelt out": fn(
            lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), w=t(5)
        ),
    },
    "group_norm": {
        "": (made(nn.GroupNorm, 2, 4), (IMAGE,)),
        "one group": (made(nn.GroupNorm, 1, 4), (IMAGE,)),
        "each channel": (made(nn.GroupNorm, 4, 4), (IMAGE,)),
        "between convolutions": (channels_last(made(nn.GroupNorm, 2, 4)), (IMAGE,)),
        "one group, between convolutions": (channels_last(made(nn.GroupNorm, 1, 4)), (IMAGE,)),
        "not affine": (nn.GroupNorm(2, 4, affine=False), (IMAGE,)),
        "a sequence": (made(nn.GroupNorm, 2, 4), (SEQUENCE,)),
        "a vector": (made(nn.GroupNorm, 2, 4), (t(3, 4),)),
        "a volume": (made(nn.GroupNorm, 2, 4), (t(1, 4, 2, 3, 2),)),
    },
    "native_group_norm": {
        "": fn(
            lambda x, w, b: torch.native_group_norm(x, w, b, 2, 4, 35, 2, 1e-5)[0],
            IMAGE,
            w=t(4),
            b=t(4, seed=1),
        )
    },
    "instance_norm": {
        "": (nn.InstanceNorm2d(4), (IMAGE,)),
        "affine": (made(nn.InstanceNorm2d, 4, affine=True), (IMAGE,)),
        "running statistics": (
            made(nn.InstanceNorm2d, 4, affine=True, track_running_stats=True),
            (IMAGE,),
        ),
        "a sequence": (nn.InstanceNorm1d(4), (SEQUENCE,)),
        "between convolutions": (channels_last(made(nn.InstanceNorm2d, 4)), (IMAGE,)),
    },
    "batch_norm": {
        "2-D": (made(nn.BatchNorm2d, 4), (IMAGE,)),
        "1-D": (made(nn.BatchNorm1d, 5), (MATRIX,)),
        "of a sequence": (made(nn.BatchNorm1d, 4), (SEQUENCE,)),
        "not affine": (made(nn.BatchNorm2d, 4, affine=False), (IMAGE,)),
        "before a convolution": (
            nn.Sequential(made(nn.BatchNorm2d, 4), nn.ReLU(), made(nn.Conv2d, 4, 3, 1)),
            (IMAGE,),
        ),
    },
    "softplus": {
        "": (nn.Softplus(), (WIDE,)),
        "beta": (nn.Softplus(2.5, 15), (WIDE / 10,)),
    },
    "log_sigmoid": {"": (nn.LogSigmoid(), (WIDE,))},
    "mish": {"": (nn.Mish(), (WIDE,))},
    "elu": {
        "": (nn.ELU(0.7), (MATRIX,)),
        "scales": fn(lambda x: torch.ops.aten.elu(x, 1.5, 1.2, 2.0)),
        "wide": (nn.ELU(), (WIDE,)),
    },
    "celu": {"": (nn.CELU(0.7), (WIDE,))},
    "selu": {"": (nn.SELU(), (WIDE,))},
    "prelu": {
        "one slope": (nn.PReLU(), (MATRIX,)),
        "a slope for each channel": (Fn(lambda x, w: F.prelu(x, w), w=t(4)), (IMAGE,)),
        "between convolutions": (channels_last(Fn(lambda x, w: F.prelu(x, w), w=t(4))), (IMAGE,)),
        "a vector": (Fn(lambda x, w: F.prelu(x, w), w=t(5)), (MATRIX,)),
    },
    "softshrink": {"": (nn.Softshrink(0.3), (MATRIX,))},
    "pow": {
        "3": fn(lambda x: x**3),
        "4": fn(lambda x: x**4),
        "1": fn(lambda x: (x**1.0) * 2),
        "1/2": fn(lambda x: x**0.5, MATRIX.abs()),
        "-1/2": fn(lambda x: x**-0.5, MATRIX.abs() + 0.1),
        "-1": fn(lambda x: x**-1.0),
        "-2": fn(lambda x: x**-2.0),
        "square": fn(torch.square),
        "infinities": fn(lambda x: x**3, INFINITE),
    },
    "reciprocal": {
        "": fn(torch.reciprocal),
        "of zeros and infinities": fn(torch.reciprocal, torch.tensor([0.0, -0.0, math.inf])),
    },
    "log2": {"": fn(torch.log2, MATRIX.abs() + 0.1)},
    "log10": {"": fn(torch.log10, MATRIX.abs() + 0.1)},
    "clamp_tensor": {
        "": fn(torch.clamp, MATRIX, t(5) - 1, t(3, 1) + 1),
        "constant bound": fn(lambda x, c: x.clamp(min=c), c=t(5)),
        "high": fn(lambda x, y: x.clamp(max=y), MATRIX, t(5)),
    },
    "exp": {"infinities": fn(torch.exp, INFINITE), "of base 2": fn(torch.exp2, MATRIX * 5)},
    "log": {"zero, infinity, negative": fn(torch.log, torch.tensor([0.0, math.inf, -1.0]))},
    "sqrt": {"zero, negative": fn(torch.sqrt, torch.tensor([0.0, -1.0, -math.inf]))},
    "rsqrt": {"negative": fn(torch.rsqrt, torch.tensor([-1.0, -math.inf, 4.0]))},
    "sigmoid": {"infinities": fn(torch.sigmoid, INFINITE), "wide": fn(torch.sigmoid, WIDE)},
    "tanh": {"infinities": fn(torch.tanh, INFINITE), "wide": fn(torch.tanh, WIDE)},
    "maximum": {"infinities": fn(torch.maximum, INFINITE, t(2, 3))},
    "minimum": {"infinities": fn(torch.minimum, INFINITE, t(2, 3))},
    "clamp": {"infinities": fn(lambda x: x.clamp(-1, 1), INFINITE)},
    "relu": {"infinities": fn(torch.relu, INFINITE)},
    "where": {
        "or a number": fn(lambda x, m: torch.where(m, x, 0.5), t(2, 3), m=MASK),
        "a number or": fn(lambda x, m: torch.where(m, 0.5, x), t(2, 3), m=MASK),
        "two computed": fn(lambda x, y, m: torch.where(m, x, y), t(2, 3), t(2, 3, seed=1), m=MASK),
        "or a constant": fn(lambda x, m, c: torch.where(m, x, c), t(2, 3), m=MASK, c=t(2, 1)),
        "a mask that widens": fn(lambda x, m: torch.where(m, x, 0.5), t(3), m=MASK),
        "a mask that widens, two computed": fn(
            lambda x, y, m: torch.where(m, x, y), t(3), t(2, 1), m=MASK
        ),
        "a constant that widens": fn(
            lambda x, m, c: torch.where(m, x, c), t(1, 3), m=MASK[:1], c=t(2, 1)
        ),
        "all true": fn(lambda x, m: torch.where(m, x, 0.5) * 1, t(3), m=torch.ones(2, 3) > 0),
        "infinities that are not chosen": fn(
            lambda x, m: torch.where(m, x, 0.5), INFINITE, m=~INFINITE.isinf()
        ),
        "infinities that are not chosen, two computed": fn(
            lambda x, y, m: torch.where(m, x, y), INFINITE, t(2, 3), m=~INFINITE.isinf()
        ),
        "infinities that are chosen": fn(
            lambda x, y, m: torch.where(m, x, y), INFINITE, t(2, 3), m=INFINITE.isinf()
        ),
        "masked_fill": fn(lambda x, m: x.masked_fill(m, -1e9), t(2, 3), m=MASK),
        "masked_fill with -inf, softmax": fn(
            lambda x, m: x.masked_fill(m, -math.inf).softmax(-1),
            t(4, 4),
            m=torch.ones(4, 4).triu(1) > 0,
        ),
        "lower triangle": fn(torch.tril),
        "upper triangle": fn(lambda x: x.triu(1), t(2, 4, 4)),
    },
    "index_select": {
        "": fn(lambda x, i: x.index_select(1, i), i=torch.tensor([2, 3, 0])),
        "backwards": fn(lambda x, i: x.index_select(0, i), i=torch.tensor([2, 1, 0])),
    },
    "index": {
        "": fn(lambda x, i: x[:, i], i=torch.tensor([2, 0, 1])),
        "a table": fn(lambda x, i: x[i], i=torch.tensor([[2, 0], [1, 1]])),
        "reflected padding": fn(lambda x: F.pad(x, (1, 2), mode="reflect"), SEQUENCE),
        "replicated padding": fn(lambda x: F.pad(x, (1, 2, 2, 0), mode="replicate"), IMAGE),
        "each twice": fn(lambda x, i: x[:, i], i=torch.arange(10) // 2),
    },
    "slice_scatter": {
        "": fn(lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), MATRIX, t(3, 2)),
        "the end": fn(lambda x, y: torch.slice_scatter(x, y, 0, -2), MATRIX, t(2, 5)),
        "the beginning": fn(lambda x, y: torch.slice_scatter(x, y, 0, None, 1), MATRIX, t(1, 5)),
        "all": fn(lambda x, y: torch.slice_scatter(x, y * 2), MATRIX, t(3, 5)),
        "another layout": fn(lambda x, y: torch.slice_scatter(x, y.t(), 1, 1, 3), MATRIX, t(2, 3)),
    },
    "roll": {
        "": fn(lambda x: x.roll(2, 1)),
        "two dimensions": fn(lambda x: torch.roll(x, (-1, -2), (2, 3)), IMAGE),
        "flat": fn(lambda x: x.roll(4)),
        "a whole turn": fn(lambda x: x.roll(5, 1) * 2),
        "more than a turn": fn(lambda x: x.roll(-13, 1)),
    },
    "flip": {"": fn(lambda x: x.flip(1)), "two dimensions": fn(lambda x: x.flip((0, -1)))},
    "expand_copy": {
        "several": fn(lambda x: x.expand(2, 3, 4, 5) * 2, t(3, 1, 5)),
        "large": fn(lambda x: x.expand(7000, 50), t(50)),
        "heads of a group": fn(
            lambda x: x[:, :, None].expand(2, 3, 4, 5, 6).reshape(2, 12, 5, 6), t(2, 3, 5, 6)
        ),
        "infinities": fn(lambda x: x.expand(4, 2, 3), INFINITE),
    },
    "repeat": {
        "": fn(lambda x: x.repeat(2, 3)),
        "more dimensions": fn(lambda x: x.repeat(2, 1, 3)),
        "six dimensions": fn(lambda x: x.repeat(1, 2, 1, 3, 1, 2), t(1, 2, 1, 2, 3, 2)),
        "tile": fn(lambda x: torch.tile(x, (2, 1, 1))),
        "each": fn(lambda x: x.repeat_interleave(2, 1)),
        "of a transposed tensor": fn(lambda x: x.t().repeat(2, 3)),
        "once": fn(lambda x: x.repeat(1, 1) * 2),
    },
    "slice_copy": {
        "step": fn(lambda x: x[:, ::2]),
        "step and start": fn(lambda x: x[1::2, 1:4:2]),
        "step above the size": fn(lambda x: x[:, 1::9]),
        "every second place, as patches are merged": fn(
            lambda x: torch.cat([x[:, i::2, j::2] for i in range(2) for j in range(2)], -1),
            t(1, 6, 8, 3),
        ),
        "step, six dimensions": fn(lambda x: x[:, :, :, ::2], t(1, 2, 2, 5, 2, 3)),
        "step, between convolutions": (channels_last(Fn(lambda x: x[:, :, ::3, ::2])), (IMAGE,)),
        "split": fn(lambda x: x.split(2, 1)),
        "split with sizes": fn(lambda x: x.split([1, 4], 1)),
    },
    "view_copy": {
        "pixel shuffle": (nn.PixelShuffle(2), (t(1, 8, 3, 4),)),
        "pixel unshuffle": (nn.PixelUnshuffle(2), (t(1, 2, 4, 6),)),
        "channel shuffle": (nn.ChannelShuffle(2), (IMAGE,)),
    },
    "bmm": {
        "four dimensions": fn(torch.matmul, t(2, 3, 4, 5), t(2, 3, 5, 6)),
        "broadcast": fn(torch.matmul, t(2, 3, 4, 5), t(3, 5, 6)),
        "a matrix on the left": fn(torch.matmul, t(4, 5), t(2, 5, 6)),
        "a vector on the left": fn(torch.matmul, t(5), t(2, 5, 6)),
        "baddbmm": fn(torch.baddbmm, t(2, 4, 6), t(2, 4, 5), t(2, 5, 6)),
        "einsum": fn(
            lambda a, b: torch.einsum("bihd,bjhd->bhij", a, b), t(2, 4, 3, 5), t(2, 6, 3, 5)
        ),
    },
    "lstm_cell": {
        "": (Outputs(made(nn.LSTMCell, 5, 4), 0, 1), (t(2, 5),)),
        "with state": (
            Fn(
                lambda x, h, c, a, b: torch.ops.aten.lstm_cell(x, [h, c], a, b),
                a=t(16, 5),
                b=t(16, 4),
            ),
            (t(2, 5), t(2, 4), t(2, 4, seed=1)),
        ),
    },
    "gru_cell": {
        "": (made(nn.GRUCell, 5, 4), (t(2, 5),)),
        "without bias": (made(nn.GRUCell, 5, 4, bias=False), (t(2, 5), t(2, 4))),
    },
    "lstm": {
        "": (Outputs(made(nn.LSTM, 5, 4), 0, 1, 2), (t(3, 2, 5),)),
        "batch first": (Outputs(made(nn.LSTM, 5, 4, batch_first=True), 0), (t(2, 3, 5),)),
        "two layers, both directions": (
            Outputs(made(nn.LSTM, 5, 4, 2, bidirectional=True), 0, 1, 2),
            (t(3, 2, 5),),
        ),
        "without bias": (Outputs(made(nn.LSTM, 5, 4, bias=False), 0, 2), (t(3, 2, 5),)),
        "one step": (Outputs(made(nn.LSTM, 5, 4), 0, 1, 2), (t(1, 2, 5),)),
        "many steps": (Outputs(made(nn.LSTM, 5, 4), 0), (t(40, 1, 5),)),
    },
    "gru": {
        "": (Outputs(made(nn.GRU, 5, 4), 0, 1), (t(3, 2, 5),)),
        "batch first, two layers, both directions": (
            Outputs(made(nn.GRU, 5, 4, 2, batch_first=True, bidirectional=True), 0, 1),
            (t(2, 3, 5),),
        ),
        "with state": (Outputs(made(nn.GRU, 5, 4), 0), (t(3, 2, 5), t(1, 2, 4))),
    },
}

AVERAGE = "aten.avg_pool2d.default"
WINDOWS = "aten.max_pool2d_with_indices.default"
STEP_PADDED = nn.AvgPool2d(2, padding=1, count_include_pad=False, divisor_override=4)

REFUSED: dict[str, dict[str, Refused]] = {
    "conv2d": {
        "3-D": (
            made(nn.Conv3d, 2, 3, 2),
            (t(1, 2, 4, 4, 4),),
            "aten.convolution.default",
            "1-D or 2-D convolution; got 3-D",
        ),
        "3-D, second reason": (
            made(nn.Conv3d, 2, 3, 2),
            (t(1, 2, 4, 4, 4),),
            "aten.convolution.default",
            "input is 3-D or 4-D; got 5-D",
        ),
        "transposed to less than its stride": (
            made(nn.ConvTranspose2d, 4, 6, 1, stride=3),
            (t(1, 4, 1, 1),),
            "aten.convolution.default",
            "a transposed convolution's result covers its stride; got size",
        ),
    },
    "avg_pool2d": {
        "ceil_mode": (
            nn.AvgPool2d(2, ceil_mode=True),
            (IMAGE,),
            AVERAGE,
            "ceil_mode=False; got ceil_mode=True",
        ),
        "divisor_override": (
            nn.AvgPool2d(2, divisor_override=3),
            (IMAGE,),
            AVERAGE,
            "divisor_override is the pooling region; got divisor_override=3 for kernel_size (2, 2)",
        ),
        "divisor_override, padding that does not count": (
            STEP_PADDED,
            (IMAGE,),
            AVERAGE,
            "divisor_override is the pooling region; got divisor_override=4 over padding",
        ),
    },
    "upsample_bilinear2d": {
        "a factor that the sizes are not quotients of": (
            nn.Upsample(scale_factor=1.3, mode="bilinear"),
            (IMAGE,),
            "aten.upsample_bilinear2d.vec",
            "scale_factors are the quotients of the sizes; got scale_factors=[1.3, 1.3]",
        ),
    },
    "upsample_nearest": {
        "not whole": (
            nn.Upsample(size=(9, 11)),
            (IMAGE,),
            "aten.upsample_nearest2d.vec",
            "sizes are multiplied by whole numbers; got (7, 5) to (9, 11)",
        ),
    },
    "pow": {
        "exponent": (
            Fn(lambda x: x.abs() ** 1.7),
            (MATRIX,),
            "aten.pow.Tensor_Scalar",
            "exponent=2 or 0.5 or 1 or 3 or 4 or -0.5 or -1 or -2; got exponent=1.7",
        ),
    },
    "elu": {
        "alpha": (
            Fn(lambda x: F.elu(x, -0.5)),
            (MATRIX,),
            "aten.elu.default",
            "alpha and input_scale above 0; got",
        ),
    },
    "max_dim": {
        "indices": (
            Fn(lambda x: x.max(1)),
            (MATRIX,),
            "aten.max.dim",
            "indices are not used; got indices used by",
        ),
    },
    "min_dim": {
        "indices": (
            Fn(lambda x: x.min(1)),
            (MATRIX,),
            "aten.min.dim",
            "indices are not used; got indices used by",
        ),
    },
    "var": {
        "one element": (
            Fn(lambda x: x.var(1)),
            (t(3, 1),),
            "aten.var.dim",
            "more elements than the correction; got 1 elements, correction=1",
        ),
    },
    "where": {
        "computed mask": (
            Fn(lambda x, y, m: torch.where(m, x, y)),
            (MATRIX, MATRIX, MATRIX > 0),
            "aten.where.self",
            "data type must be",
        ),
    },
    "index": {
        "two dimensions": (
            Fn(lambda x, i: x[i, i], i=torch.tensor([2, 0, 1])),
            (MATRIX,),
            "aten.index.Tensor",
            "one dimension, constant indices of at most 64 ranges; got 2 indexed dimensions",
        ),
        "many ranges": (
            Fn(lambda x, i: x[i], i=torch.arange(200).flip(0)),
            (t(200),),
            "aten.index.Tensor",
            "one dimension, constant indices of at most 64 ranges; got 200",
        ),
    },
    "index_select": {
        "many ranges": (
            Fn(lambda x, i: x.index_select(0, i), i=torch.arange(200).flip(0)),
            (t(200),),
            "aten.index_select.default",
            "constant indices of at most 64 ranges; got 200",
        ),
    },
    "slice_scatter": {
        "step": (
            Fn(lambda x, y: torch.slice_scatter(x, y, 1, 0, 5, 2)),
            (MATRIX, t(3, 3)),
            "aten.slice_scatter.default",
            "step=1; got step=2",
        ),
    },
    "batch_norm": {
        "computed weight": (
            Fn(lambda x, w, m, v: F.batch_norm(x, m, v, w), m=t(4), v=t(4).abs() + 1),
            (IMAGE, t(4)),
            "aten._native_batch_norm_legit_no_training.default",
            "constant weight and bias and running_mean and running_var; got weight is computed by",
        ),
    },
    "flip": {
        "large": (
            Fn(lambda x: x.flip(0)),
            (t(200),),
            "aten.flip.default",
            "dimensions of at most 64; got [200]",
        ),
    },
    "expand_copy": {
        "large": (
            Fn(lambda x: x.expand(70000, 5)),
            (t(5),),
            "aten.expand_copy.default",
            "at most 65536 copies, of static number; got 70000",
        ),
    },
    "repeat": {
        "large": (
            Fn(lambda x: x.repeat(70000, 1)),
            (t(5),),
            "aten.repeat.default",
            "at most 65536 copies, of static number; got 70000",
        ),
    },
    "native_group_norm": {
        "statistics": (
            Fn(lambda x: torch.native_group_norm(x, None, None, 2, 4, 35, 2, 1e-5)),
            (IMAGE,),
            "aten.native_group_norm.default",
            "only the normalised tensor is used; got statistics used by",
        ),
        "computed weight": (
            Fn(lambda x, w: torch.native_group_norm(x, w, None, 2, 4, 35, 2, 1e-5)[0]),
            (IMAGE, t(4)),
            "aten.native_group_norm.default",
            "constant weight and bias; got weight is computed by",
        ),
    },
    "mean": {
        "no dimensions": (
            Fn(lambda x: x.mean()),
            (t(),),
            "aten.mean.default",
            "self has dimensions; got 0-D",
        ),
    },
}


def torch_lstm(x: torch.Tensor, *weights: torch.Tensor, **options: Any) -> torch.Tensor:
    state = torch.zeros(1, x.shape[1], weights[1].shape[1]).to(x.dtype)
    settings = {"dropout": 0.0, "train": False, **options}
    return torch.lstm(x, (state, state), weights, False, 1, *settings.values(), False, False)[0]


def torch_gru(x: torch.Tensor, *weights: torch.Tensor, **options: Any) -> torch.Tensor:
    state = torch.zeros(1, x.shape[1], weights[1].shape[1]).to(x.dtype)
    settings = {"dropout": 0.0, "train": False, **options}
    return torch.gru(x, state, weights, False, 1, *settings.values(), False, False)[0]


SYMBOLIC = "see test_xnnpack_static_rules"

# Rules that no program of static shapes reaches, with the reason.
UNREACHED = {
    **{
        (row, "the reduced sizes are static"): SYMBOLIC
        for row in (
            *("sum", "amax", "amin", "max_dim", "min_dim", "var", "std", "var_mean", "std_mean"),
            *("linalg_vector_norm", "logsumexp", "log_softmax"),
        )
    },
    **{
        (row, "a static number of channels"): "channels are as many as there are weights"
        for row in ("group_norm", "native_group_norm", "instance_norm")
    },
    **{
        (row, "a batch of sequences of static length, at most 1024"): SYMBOLIC
        for row in ("lstm", "gru")
    },
    ("gru", "no projection"): "only an LSTM has projections",
    ("max_pool2d", "ceil_mode=False, or static sizes"): SYMBOLIC,
    ("max_pool2d_with_indices", "ceil_mode=False, or static sizes"): SYMBOLIC,
    ("upsample_bilinear2d", "static sizes"): SYMBOLIC,
    ("upsample_nearest", "static sizes"): SYMBOLIC,
    ("roll", "static sizes and shifts"): SYMBOLIC,
    ("slice_scatter", "a static place in a static size"): SYMBOLIC,
    ("clamp_tensor", "operands of one data type"): "other types are refused before",
    ("where", "constant condition"): "a computed one is boolean, which is refused before",
}

Asked = tuple[nn.Module, tuple[torch.Tensor, ...], str]

# Kept whole only if the row takes them: see ASKED of xnnpack_cases.
ASKED: dict[str, Asked] = {
    "softplus: beta": (nn.Softplus(-1.0), (MATRIX,), "beta > 0; got beta=-1.0"),
    "softplus: threshold": (nn.Softplus(1.0, 2.0), (MATRIX,), "threshold >= 15; got threshold=2.0"),
    "celu: alpha": (nn.CELU(-0.5), (MATRIX,), "alpha > 0; got alpha=-0.5"),
    "softshrink: lambd": (nn.Softshrink(0.0), (MATRIX,), "lambd > 0; got lambd=0.0"),
    "linalg_vector_norm: order": (
        Fn(lambda x: torch.linalg.vector_norm(x, 3, -1)),
        (MATRIX,),
        "ord=2 or 1 or inf; got ord=3",
    ),
    "prelu: computed slope": (
        Fn(F.prelu),
        (MATRIX, t(5)),
        "constant weight; got weight is computed by",
    ),
    "rms_norm: computed weight": (
        Fn(lambda x, w: F.rms_norm(x, (5,), w)),
        (MATRIX, t(5)),
        "constant weight; got weight is computed by",
    ),
    "group_norm: computed weight": (
        Fn(lambda x, w: F.group_norm(x, 2, w)),
        (IMAGE, t(4)),
        "constant weight and bias; got weight is computed by",
    ),
    "instance_norm: computed weight": (
        Fn(lambda x, w: F.instance_norm(x, weight=w)),
        (IMAGE, t(4)),
        "constant weight and bias; got weight is computed by",
    ),
    "instance_norm: computed statistics": (
        Fn(lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False)),
        (IMAGE, t(4), t(4).abs()),
        "constant running_mean and running_var; got running_mean is computed by",
    ),
    "lstm_cell: computed weights": (
        Fn(lambda x, h, c, a, b: torch.ops.aten.lstm_cell(x, [h, c], a, b)),
        (t(2, 5), t(2, 4), t(2, 4), t(16, 5), t(16, 4)),
        "constant weights; got w_ih is computed by",
    ),
    "gru_cell: computed weights": (
        Fn(lambda x, h, a, b: torch.ops.aten.gru_cell(x, h, a, b)),
        (t(2, 5), t(2, 4), t(12, 5), t(12, 4)),
        "constant weights; got w_ih is computed by",
    ),
    "lstm: computed weights": (
        Fn(torch_lstm),
        (t(3, 2, 5), t(16, 5), t(16, 4)),
        "constant weights; got computed by",
    ),
    "lstm: projection": (
        Outputs(made(nn.LSTM, 5, 4, proj_size=2), 0, 1, 2),
        (t(3, 2, 5),),
        "no projection; got 5 tensors a layer",
    ),
    "lstm: dropout": (
        Fn(lambda x, a, b: torch_lstm(x, a, b, dropout=0.5, train=True), a=t(16, 5), b=t(16, 4)),
        (t(3, 2, 5),),
        "no dropout; got dropout=0.5 in training",
    ),
    "gru: computed weights": (
        Fn(torch_gru),
        (t(3, 2, 5), t(12, 5), t(12, 4)),
        "constant weights; got computed by",
    ),
    "gru: dropout": (
        Fn(lambda x, a, b: torch_gru(x, a, b, dropout=0.5, train=True), a=t(12, 5), b=t(12, 4)),
        (t(3, 2, 5),),
        "no dropout; got dropout=0.5 in training",
    ),
}
