"""The cases of kernels that move or gather elements: images, shapes, indices; see kernel_cases."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from kernel_cases import Case, Input

aten = torch.ops.aten


def images(n: int) -> list[Case]:
    side = n // 4
    image, small = Input((1, 16, side, side)), Input((1, 16, side // 2, side // 2))
    line = Input((1, 16, side * side))
    volume = Input((1, 4, side // 2, side // 2, 16))
    depth = Input((1, 4, side // 4, side // 4, 16))

    def resize(mode: str) -> Any:
        return lambda x: F.interpolate(x, scale_factor=2, mode=mode)

    def pooled_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None)

    def max_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        _, where = aten.max_pool2d_with_indices(x, [2, 2], [2, 2])
        return aten.max_pool2d_with_indices_backward(
            g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, where
        )

    grid = Input((1, side, side, 2), "grid")
    return [
        Case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), (line,)),
        Case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), (image,)),
        Case("avg_pool3d", lambda x: F.avg_pool3d(x, 3, 2, 1), (volume,)),
        Case("avg_pool2d_backward", pooled_backward, (small, image)),
        Case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 7), (line,)),
        Case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 7), (image,)),
        Case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 3), (volume,)),
        Case(
            "adaptive_avg_pool2d_backward",
            aten._adaptive_avg_pool2d_backward,
            (Input((1, 16, 2, 2)), image),
        ),
        Case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (image,)),
        Case("max_pool3d", lambda x: F.max_pool3d(x, 3, 2, 1), (volume,)),
        Case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 7), (image,)),
        Case("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 3), (volume,)),
        Case("max_pool2d and backward", max_backward, (small, image)),
        Case("nearest1d", resize("nearest"), (Input((1, 16, side * side // 2)),)),
        Case("nearest2d", resize("nearest"), (small,)),
        Case("nearest3d", resize("nearest"), (depth,)),
        Case("linear1d", resize("linear"), (Input((1, 16, side * side // 2)),)),
        Case("bilinear2d", resize("bilinear"), (small,)),
        Case("trilinear3d", resize("trilinear"), (depth,)),
        Case("bicubic2d", resize("bicubic"), (small,)),
        Case(
            "bilinear2d antialiased",
            lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
            (image,),
        ),
        Case("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), (image, grid)),
        Case(
            "grid_sample 3d",
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            (volume, Input((1, side // 2, side // 2, 16, 3), "grid")),
        ),
        Case("reflection_pad1d", lambda x: F.pad(x, (2, 2), "reflect"), (line,)),
        Case("reflection_pad2d", lambda x: F.pad(x, (1, 1) * 2, "reflect"), (image,)),
        Case("reflection_pad3d", lambda x: F.pad(x, (1, 1) * 3, "reflect"), (volume,)),
        Case("replication_pad1d", lambda x: F.pad(x, (2, 2), "replicate"), (line,)),
        Case("replication_pad2d", lambda x: F.pad(x, (2, 2) * 2, "replicate"), (image,)),
        Case("replication_pad3d", lambda x: F.pad(x, (2, 2) * 3, "replicate"), (volume,)),
        Case("im2col", lambda x: F.unfold(x, 2, stride=2), (image,)),
        Case(
            "col2im",
            lambda x: F.fold(x, (side, side), 2, stride=2),
            (Input((1, 64, side * side // 4)),),
        ),
        Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (image,)),
        Case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (image,)),
    ]


def shapes(n: int) -> list[Case]:
    x, row = Input((n, n)), Input((n,))
    image = Input((1, 16, n // 4, n // 4))
    half = Input((n, n // 2))
    return [
        Case("clone", lambda x: x.clone(), (x,)),
        Case("copy", lambda x, y: aten.copy(x, y), (x, x)),
        Case("to float32", lambda x: aten._to_copy(x, dtype=torch.float32), (x,)),
        Case("to float16", lambda x: aten._to_copy(x, dtype=torch.float16), (x,)),
        Case("to int64", lambda x: aten._to_copy(x, dtype=torch.int64), (x,)),
        Case("to bool", lambda x: aten._to_copy(x, dtype=torch.bool), (x,)),
        Case("channels last", lambda x: x.clone(memory_format=torch.channels_last), (image,)),
        Case("permute", lambda x: aten.permute_copy(x, [1, 0]), (x,)),
        Case(
            "permute channels last",
            lambda x: aten.permute_copy(x, [0, 2, 3, 1]).clone(
                memory_format=torch.contiguous_format
            ),
            (image,),
        ),
        Case("transpose", lambda x: aten.transpose_copy(x, 0, 1).clone(), (x,)),
        Case("t", lambda x: aten.t_copy(x).clone(), (x,)),
        Case("view", lambda x: aten.view_copy(x, [n * n]), (x,)),
        Case("expand", lambda x: aten.expand_copy(x, [n, n]), (row,)),
        Case("slice", lambda x: aten.slice_copy(x, 1, 0, n, 2), (x,)),
        Case("slice of rows", lambda x: aten.slice_copy(x, 0, 0, n // 2, 1), (x,)),
        Case("select", lambda x: aten.select_copy(x, 0, 1), (Input((2, n, n // 2)),)),
        Case("squeeze", lambda x: aten.squeeze_copy(x, 0), (Input((1, n, n)),)),
        Case("unsqueeze", lambda x: aten.unsqueeze_copy(x, 0), (x,)),
        Case("narrow", lambda x: aten.narrow_copy(x, 1, 0, n // 2), (x,)),
        Case("as_strided", lambda x: aten.as_strided_copy(x, [n, n], [1, n]), (x,)),
        Case("diagonal", lambda x: aten.diagonal_copy(x, 0, 1, 2), (Input((n, 16, 16)),)),
        Case("unfold", lambda x: aten.unfold_copy(x, 1, 4, 4), (x,)),
        Case("flip", lambda x: x.flip(1), (x,)),
        Case("flip rows", lambda x: x.flip(0), (x,)),
        Case("roll", lambda x: x.roll(3, 1), (x,)),
        Case("repeat", lambda x: x.repeat(1, 2), (half,)),
        Case("cat", lambda x, y: torch.cat([x, y], -1), (half, half)),
        Case("cat of rows", lambda x, y: torch.cat([x, y], 0), (half, half)),
        Case("stack", lambda x, y: torch.stack([x, y], -1), (half, half)),
        Case("split", lambda x: aten.split_copy(x, n // 2, 1), (x,)),
        Case("split sizes", lambda x: aten.split_with_sizes_copy(x, [n // 4, n - n // 4]), (x,)),
        Case("unbind", lambda x: aten.unbind_copy(x, 0), (Input((2, n, n // 2)),)),
        Case("constant_pad", lambda x: F.pad(x, (1, 1, 1, 1)), (x,)),
        Case("tril", torch.tril, (x,)),
        Case("triu", torch.triu, (x,)),
        Case("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 1, 0, n // 2), (x, half)),
        Case("select_scatter", lambda x, y: torch.select_scatter(x, y, 0, 1), (x, row)),
        Case("full", lambda x: torch.full((n, n), 3.0) + x[:1, :1], (x,)),
        Case("full_like", lambda x: torch.full_like(x, 1), (x,)),
        Case("fill", lambda x: aten.fill(x, 1), (x,)),
        Case("arange", lambda x: torch.arange(n * n) + x[:1, 0], (x,)),
    ]


def indexing(n: int) -> list[Case]:
    x, index, rows = Input((n, n)), Input((n, n), "index", n), Input((n,), "index", n)
    mask = Input((n, n), "mask")
    return [
        Case("embedding", lambda i, w: F.embedding(i, w), (rows, x)),
        Case(
            "embedding backward",
            lambda g, i: aten.embedding_dense_backward(g, i, n, -1, False),
            (x, rows),
        ),
        Case(
            "embedding_bag",
            lambda i, w: F.embedding_bag(i, w),
            (Input((n // 4, 4), "index", n), x),
        ),
        Case("gather", lambda x, i: x.gather(1, i), (x, index)),
        Case("gather rows", lambda x, i: x.gather(0, i), (x, index)),
        Case("scatter", lambda x, i, y: x.scatter(1, i, y), (x, index, x)),
        Case("scatter value", lambda x, i: x.scatter(1, i, 1), (x, index)),
        Case("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), (x, index, x)),
        Case(
            "scatter_reduce",
            lambda x, i, y: x.scatter_reduce(1, i, y, "amax"),
            (x, index, x),
        ),
        Case(
            "scatter multiply", lambda x, i, y: x.scatter(1, i, y, reduce="multiply"), (x, index, x)
        ),
        Case("index_select", lambda x, i: x.index_select(0, i), (x, rows)),
        Case("index_select columns", lambda x, i: x.index_select(1, i), (x, rows)),
        Case("index", lambda x, i: x[i], (x, rows)),
        Case("index columns", lambda x, i: x[:, i], (x, rows)),
        Case("index pairs", lambda x, i, j: x[i, j], (x, index, index)),
        Case("index_put", lambda x, i, y: x.index_put((i,), y), (x, rows, x)),
        Case(
            "index_put adding",
            lambda x, i, y: x.index_put((i,), y, accumulate=True),
            (x, rows, x),
        ),
        Case("nonzero", torch.nonzero, (mask,)),
        Case("masked_select", torch.masked_select, (x, mask)),
        Case("masked_scatter", torch.masked_scatter, (x, mask, x)),
    ]
