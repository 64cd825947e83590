"""Cases of reductions, of what is made of them, and of norms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from xnnpack_case_parts import (
    HIDDEN,
    IMAGE,
    INFINITE,
    MATRIX,
    SEQUENCE,
    VOLUME,
    Accepted,
    Asked,
    Refused,
    channels_last,
    fn,
    made,
    t,
)

from support import Fn

ACCEPTED: dict[str, dict[str, Accepted]] = {
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
        "many of one sign": fn(lambda x: x.mean(-1), t(2, 5000) + 1000),
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
}

REFUSED: dict[str, dict[str, Refused]] = {
    "mean": {
        "no dimensions": (
            Fn(lambda x: x.mean()),
            (t(),),
            "aten.mean.default",
            "self has dimensions; got 0-D",
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
    "batch_norm": {
        "computed weight": (
            Fn(lambda x, w, m, v: F.batch_norm(x, m, v, w), m=t(4), v=t(4).abs() + 1),
            (IMAGE, t(4)),
            "aten._native_batch_norm_legit_no_training.default",
            "constant weight and bias and running_mean and running_var; got weight is computed by",
        ),
    },
}

# Kept whole only if the row takes them: see ASKED of xnnpack_cases.
ASKED: dict[str, Asked] = {
    "linalg_vector_norm: order": (
        Fn(lambda x: torch.linalg.vector_norm(x, 3, -1)),
        (MATRIX,),
        "ord=2 or 1 or inf; got ord=3",
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
}
