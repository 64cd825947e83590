"""Cases of operators with windows, of resized images, and of attention and products."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from xnnpack_case_parts import (
    AVERAGE,
    EVEN,
    IMAGE,
    MATRIX,
    SEQUENCE,
    STEP_PADDED,
    Accepted,
    Asked,
    Refused,
    channels_last,
    fn,
    made,
    t,
)

VOLUMES = t(2, 4, 6, 7, 5)
SMALL = t(2, 4, 3, 3, 2)

ACCEPTED: dict[str, dict[str, Accepted]] = {
    "conv2d": {
        "1-D": (made(nn.Conv1d, 4, 6, 3), (SEQUENCE,)),
        "1-D, stride, padding, dilation, groups": (
            made(nn.Conv1d, 4, 6, 3, 2, 5, 2, groups=2),
            (SEQUENCE,),
        ),
        "3-D": (made(nn.Conv3d, 4, 6, 3), (VOLUMES,)),
        "3-D, padding": (made(nn.Conv3d, 4, 6, 3, padding=1), (VOLUMES,)),
        "3-D, stride, padding": (made(nn.Conv3d, 4, 6, (3, 2, 1), 2, (1, 0, 0)), (VOLUMES,)),
        "3-D, dilation": (made(nn.Conv3d, 4, 6, 2, dilation=2), (VOLUMES,)),
        "3-D, depthwise": (made(nn.Conv3d, 4, 4, 3, padding=1, groups=4), (VOLUMES,)),
        "3-D, groups": (made(nn.Conv3d, 4, 6, 3, (2, 1, 1), 1, groups=2), (VOLUMES,)),
        "3-D, one element": (made(nn.Conv3d, 4, 6, 1), (VOLUMES,)),
        "3-D, even and the same size": (made(nn.Conv3d, 4, 6, 2, padding="same"), (VOLUMES,)),
        "3-D, transposed": (made(nn.ConvTranspose3d, 4, 6, 2, 2), (SMALL,)),
        "3-D, transposed, padding": (
            made(nn.ConvTranspose3d, 4, 6, 3, 2, 1, output_padding=1),
            (SMALL,),
        ),
        "3-D, transposed, groups": (
            made(nn.ConvTranspose3d, 4, 4, (4, 3, 2), (2, 1, 2), (1, 0, 0), groups=2),
            (SMALL,),
        ),
        "3-D, transposed, stride of one": (made(nn.ConvTranspose3d, 4, 6, 3), (SMALL,)),
        "3-D, without batch": (made(nn.Conv3d, 4, 6, 3), (VOLUMES[0],)),
        "3-D, norm and clamp": (
            nn.Sequential(made(nn.Conv3d, 4, 6, 3), nn.BatchNorm3d(6), nn.ReLU()),
            (VOLUMES,),
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
        "transposed, dilation": (
            made(nn.ConvTranspose2d, 4, 6, (3, 2), (2, 1), (1, 0), dilation=(2, 3)),
            (IMAGE,),
        ),
        "transposed, dilation, groups": (
            made(nn.ConvTranspose2d, 4, 6, 3, 2, 1, 1, groups=2, dilation=2),
            (IMAGE,),
        ),
        "large padding": (made(nn.Conv2d, 4, 6, 3, padding=7), (IMAGE,)),
        "reflected padding": (
            made(nn.Conv2d, 4, 6, 3, padding=2, padding_mode="reflect"),
            (IMAGE,),
        ),
    },
    "adaptive_avg_pool2d": {
        "": (nn.AdaptiveAvgPool2d((2, 3)), (t(1, 4, 7, 11),)),
        "without a batch": (nn.AdaptiveAvgPool2d((3, 5)), (t(4, 7, 11),)),
        "more than there are": (nn.AdaptiveAvgPool2d((9, 4)), (t(1, 4, 7, 11),)),
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
        "ceil_mode": (nn.AvgPool2d(2, ceil_mode=True), (IMAGE,)),
        "ceil_mode, padding that counts": (nn.AvgPool2d(4, 3, 1, ceil_mode=True), (IMAGE,)),
        "ceil_mode, padding that does not count": (
            nn.AvgPool2d((3, 4), (2, 3), 1, ceil_mode=True, count_include_pad=False),
            (IMAGE,),
        ),
        "ceil_mode, 1-D": (nn.AvgPool1d(4, 3, ceil_mode=True), (SEQUENCE,)),
        "ceil_mode that changes nothing": (nn.AvgPool2d(2, ceil_mode=True), (EVEN,)),
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
    "avg_pool3d": {
        "": (nn.AvgPool3d(2), (VOLUMES,)),
        "padding that counts": (nn.AvgPool3d(3, 2, 1), (VOLUMES,)),
        "layers only": (nn.AvgPool3d((2, 1, 1)), (VOLUMES,)),
    },
    "max_pool3d": {
        "": (nn.MaxPool3d(2), (VOLUMES,)),
        "padding": (nn.MaxPool3d(3, 2, 1), (VOLUMES,)),
        "dilation": (nn.MaxPool3d(2, 1, 0, (2, 1, 1)), (VOLUMES,)),
        "images only": (nn.MaxPool3d((1, 2, 2)), (VOLUMES,)),
        "layers only": (nn.MaxPool3d((2, 1, 1)), (VOLUMES,)),
    },
    "max_pool3d_with_indices": {
        "": fn(lambda x: F.max_pool3d(x, 2, return_indices=True)[0], VOLUMES),
    },
    "upsample_linear1d": {
        "factor": (nn.Upsample(scale_factor=2, mode="linear"), (SEQUENCE,)),
        "corners": (nn.Upsample(scale_factor=3, mode="linear", align_corners=True), (SEQUENCE,)),
        "size": (nn.Upsample(size=17, mode="linear"), (SEQUENCE,)),
        "smaller": (nn.Upsample(size=3, mode="linear"), (SEQUENCE,)),
        "of one element": (nn.Upsample(size=4, mode="linear"), (SEQUENCE[..., :1].contiguous(),)),
    },
    "upsample_trilinear3d": {
        "factor": (nn.Upsample(scale_factor=2, mode="trilinear"), (t(2, 3, 4, 5, 6),)),
        "corners": (
            nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True),
            (t(1, 3, 4, 5, 6),),
        ),
        "size": (nn.Upsample(size=(7, 4, 9), mode="trilinear"), (t(1, 3, 4, 5, 6),)),
        "as many layers": (nn.Upsample(size=(4, 7, 9), mode="trilinear"), (t(1, 3, 4, 5, 6),)),
        "layers only": (nn.Upsample(size=(6, 5, 6), mode="trilinear"), (t(1, 3, 4, 5, 6),)),
        "one element": (nn.Upsample(size=(3, 1, 1), mode="trilinear"), (t(1, 3, 2, 2, 3),)),
    },
    "upsample_nearest": {
        "1-D": (nn.Upsample(scale_factor=3), (SEQUENCE,)),
        "2-D": (nn.Upsample(scale_factor=2), (IMAGE,)),
        "2-D, by size": (nn.Upsample(size=(14, 15)), (IMAGE,)),
        "2-D, one direction": (nn.Upsample(size=(7, 10)), (IMAGE,)),
        "2-D, twice less one": (nn.Upsample(size=(13, 9)), (IMAGE,)),
        "2-D, not whole": (nn.Upsample(size=(9, 11)), (IMAGE,)),
        "2-D, smaller": (nn.Upsample(size=(3, 2)), (IMAGE,)),
        "2-D, by half as much again": (nn.Upsample(scale_factor=1.5), (t(2, 3, 8, 6),)),
        "2-D, every second": (nn.Upsample(scale_factor=0.5), (t(2, 3, 8, 6),)),
        "2-D, a factor that the sizes are not quotients of": (
            nn.Upsample(scale_factor=1.3),
            (t(1, 3, 20, 23),),
        ),
        "2-D, one channel": (nn.Upsample(size=(13, 11)), (t(2, 1, 7, 5),)),
        "1-D, not whole": (nn.Upsample(size=20), (SEQUENCE,)),
        "3-D, not whole": (nn.Upsample(size=(5, 7, 9)), (t(1, 2, 3, 4, 6),)),
        "3-D": (nn.Upsample(scale_factor=2), (VOLUMES,)),
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
}

REFUSED: dict[str, dict[str, Refused]] = {
    "conv2d": {
        "3-D, transposed with gaps": (
            made(nn.ConvTranspose3d, 2, 3, 2, dilation=2),
            (t(1, 2, 4, 4, 4),),
            "aten.convolution.default",
            "3-D: static sizes, in floating point; transposed: layers without gaps; got along the",
        ),
        "transposed to less than its stride": (
            made(nn.ConvTranspose2d, 4, 6, 1, stride=3),
            (t(1, 4, 1, 1),),
            "aten.convolution.default",
            "a transposed convolution's result covers its stride; got size",
        ),
        "transposed to a width of less than its stride": (
            made(nn.ConvTranspose2d, 4, 6, 1, stride=3),
            (t(1, 4, 4, 1),),
            "aten.convolution.default",
            "a transposed convolution's result covers its stride; got size (10, 1)",
        ),
    },
    "avg_pool2d": {
        "ceil_mode, divisor_override": (
            nn.AvgPool2d(2, ceil_mode=True, divisor_override=4),
            (IMAGE,),
            AVERAGE,
            "divisor_override is the pooling region; got divisor_override=4 with ceil_mode=True",
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
    "avg_pool3d": {
        "without batch": (
            nn.AvgPool3d(2),
            (VOLUMES[0],),
            "aten.avg_pool3d.default",
            "self is 5-D; got 4-D",
        ),
        "ceil_mode": (
            nn.AvgPool3d(4, ceil_mode=True),
            (VOLUMES,),
            "aten.avg_pool3d.default",
            "ceil_mode=False; got ceil_mode=True",
        ),
        "divisor_override": (
            nn.AvgPool3d(2, divisor_override=3),
            (VOLUMES,),
            "aten.avg_pool3d.default",
            "divisor_override=None; got divisor_override=3",
        ),
        "padding that does not count": (
            nn.AvgPool3d(2, padding=1, count_include_pad=False),
            (VOLUMES,),
            "aten.avg_pool3d.default",
            "padding that is counted; got count_include_pad=False",
        ),
    },
    "max_pool3d_with_indices": {
        "without batch": (
            nn.MaxPool3d(2),
            (VOLUMES[0],),
            "aten.max_pool3d_with_indices.default",
            "self is 5-D; got 4-D",
        ),
        "ceil_mode": (
            nn.MaxPool3d(4, ceil_mode=True),
            (VOLUMES,),
            "aten.max_pool3d_with_indices.default",
            "ceil_mode=False; got ceil_mode=True",
        ),
        "stride above the window": (
            nn.MaxPool3d(2, 3),
            (VOLUMES,),
            "aten.max_pool3d_with_indices.default",
            "stride <= kernel_size; got stride [3, 3, 3]",
        ),
        "indices": (
            *fn(lambda x: F.max_pool3d(x, 2, return_indices=True), VOLUMES),
            "aten.max_pool3d_with_indices.default",
            "indices are not used",
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
        "many pieces": (
            nn.Upsample(size=(7, 211)),
            (t(1, 2, 7, 149),),
            "aten.upsample_nearest2d.vec",
            "put together from at most 64 pieces; got (7, 149) to (7, 211), 124",
        ),
    },
}

# Kept whole only if the row takes them: see ASKED of xnnpack_cases.
ASKED: dict[str, Asked] = {}
