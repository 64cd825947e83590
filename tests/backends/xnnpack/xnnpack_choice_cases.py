"""Cases of choices by masks and indices, of repetitions and slices."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from xnnpack_case_parts import (
    IMAGE,
    INFINITE,
    MASK,
    MATRIX,
    SEQUENCE,
    Accepted,
    Asked,
    Refused,
    channels_last,
    fn,
    t,
)

from support import Fn

ACCEPTED: dict[str, dict[str, Accepted]] = {
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
        "in a pattern": (
            Fn(
                lambda x, i: x.index_select(1, i),
                i=torch.arange(200).reshape(-1, 2).flip(1).flatten(),
            ),
            (t(2, 200, 3),),
        ),
        "in a pattern, of six dimensions": (
            Fn(lambda x, i: x.index_select(3, i), i=torch.tensor([0, 0, 1, 2, 2, 3, 4, 4, 5])),
            (t(1, 2, 1, 6, 2, 3),),
        ),
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
    "select_scatter": {
        "": fn(lambda x, y: torch.select_scatter(x, y, 1, 2), MATRIX, t(3)),
        "the first": fn(lambda x, y: torch.select_scatter(x, y, 0, 0), MATRIX, t(5)),
        "the last": fn(lambda x, y: torch.select_scatter(x, y * 2, -1, -1), MATRIX, t(3)),
        "the only one": fn(lambda x, y: torch.select_scatter(x, y, 0, 0), t(1, 5), t(5)),
        "of an image": fn(lambda x, y: torch.select_scatter(x, y, 1, 1), IMAGE, t(2, 7, 5)),
    },
    "roll": {
        "": fn(lambda x: x.roll(2, 1)),
        "two dimensions": fn(lambda x: torch.roll(x, (-1, -2), (2, 3)), IMAGE),
        "flat": fn(lambda x: x.roll(4)),
        "a whole turn": fn(lambda x: x.roll(5, 1) * 2),
        "more than a turn": fn(lambda x: x.roll(-13, 1)),
    },
    "unfold_copy": {
        "": fn(lambda x: x.unfold(1, 3, 2) * 2, t(2, 9, 8)),
        "whole steps": fn(lambda x: x.unfold(1, 8, 4).movedim(-1, 2) * 2, t(2, 40, 3, 2)),
        "of rows": fn(lambda x: x.unfold(0, 4, 1) * 2, t(9, 16)),
        "of samples": fn(lambda x: x.unfold(-1, 50, 20) * 2, t(2, 193)),
        "gaps": fn(lambda x: x.unfold(1, 20, 50) * 2, t(3, 230)),
        "gaps, and a rest": fn(lambda x: x.unfold(1, 20, 50) * 2, t(3, 250)),
        "one window": fn(lambda x: x.unfold(1, 50, 30) * 2, t(3, 60)),
        "few windows": fn(lambda x: x.unfold(1, 90, 1) * 2, t(3, 92, 16)),
        "an image": fn(lambda x: x.unfold(1, 3, 1).unfold(2, 3, 1) * 2, t(1, 4, 6, 16)),
        "channels last": fn(
            lambda x: nn.functional.relu(x).unfold(1, 3, 2) * 2,
            t(2, 7, 4, 5).to(memory_format=torch.channels_last),
        ),
        "infinities": fn(lambda x: x.unfold(0, 40, 20), INFINITE.flatten().repeat(30)),
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
}

REFUSED: dict[str, dict[str, Refused]] = {
    "where": {
        "computed mask": (
            Fn(lambda x, y: torch.where(x * 2 > y, x, y)),
            (MATRIX, MATRIX),
            "aten.where.self",
            "data type must be",
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
    "index": {
        "two dimensions": (
            Fn(lambda x, i: x[i, :, i], i=torch.tensor([1, 0, 1])),
            (t(2, 3, 4),),
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
    "slice_scatter": {
        "step": (
            Fn(lambda x, y: torch.slice_scatter(x, y, 1, 0, 5, 2)),
            (MATRIX, t(3, 3)),
            "aten.slice_scatter.default",
            "step=1; got step=2",
        ),
    },
    "unfold_copy": {
        "short steps": (
            Fn(lambda x: x.unfold(1, 3, 2)),
            (t(2, 200),),
            "aten.unfold_copy.default",
            "steps of at least 16 elements; got 2",
        ),
        "many windows of many steps": (
            Fn(lambda x: x.unfold(1, 70, 1)),
            (t(2, 200, 16),),
            "aten.unfold_copy.default",
            "windows of a static size, at most 64 or of as many steps; got 70",
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
}

# Kept whole only if the row takes them: see ASKED of xnnpack_cases.
ASKED: dict[str, Asked] = {}
