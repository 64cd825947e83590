"""One spelling for each thing: every rule with a small module that needs it."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edge_support import assert_equals_eager, assert_values_are_as_said, edge, spelling

import edgewise
from edgewise.edge.canonicalize import RULES
from edgewise.edge.graph import calls
from edgewise.edge.normalize import is_edge_operator
from support import Fn, export, partitioners, run_ours

aten = torch.ops.aten
M = torch.linspace(-2, 3, 12).reshape(3, 4)
T = torch.linspace(-2, 3, 24).reshape(2, 3, 4)
N = torch.arange(6).reshape(2, 3)
BOOLEANS = torch.tensor([True, False, True])
EIGHT_BITS = torch.arange(-128, 144).reshape(17, 16).to(torch.int8)
IMAGE = torch.linspace(-2, 3, 120).reshape(1, 4, 6, 5)
LAST = torch.channels_last
DIM = torch.export.Dim("n", min=3, max=8)

# Operator as exported | module | inputs | calls of the edge program, in order.
TABLE: list[tuple[Any, Any, tuple[torch.Tensor, ...], list[str]]] = [
    # what ExecuTorch's kernels refuse, or do not compute
    (aten.add.Tensor, lambda i: i + 0.5, (N,), ["_to_copy.default", "add.Scalar"]),
    (aten.add.Tensor, lambda i: i + 2, (N,), ["add.Scalar"]),
    (aten.add.Scalar, lambda i: (i > 1) + 1, (N,), ["gt.Scalar", "_to_copy.default", "add.Scalar"]),
    (
        aten.add.Tensor,
        lambda i: torch.add(i, 0.5, alpha=2),
        (N,),
        ["_to_copy.default", "add.Scalar"],
    ),
    (aten.sum.dim_IntList, lambda x: x.sum(0, True), (M[0, 0],), ["sum.dim_IntList"]),
    (aten.cumsum.default, lambda x: x.cumsum(0) + 1, (M[0, 0],), ["add.Scalar"]),
    (
        aten.cumprod.default,
        lambda i: i.cumprod(0, dtype=torch.float32),
        (N[0, 0],),
        ["_to_copy.default"],
    ),
    (aten.roll.default, lambda x: x.roll(1) + 1, (M[0, 0],), ["add.Scalar"]),
    (aten.unfold.default, lambda x: x.unfold(0, 1, 1), (M[0, 0],), ["view_copy.default"]),
    (
        aten.unfold_copy.default,
        lambda x: torch.unfold_copy(x, 0, 1, 1),
        (M[0, 0],),
        ["view_copy.default"],
    ),
    (aten.mm.default, lambda x: x.t()[:, :0] @ x[:0], (M,), []),
    (aten.bmm.default, lambda x: torch.bmm(x[..., :0], x[:, :0]), (T,), []),
    (
        aten.narrow_copy.default,
        lambda x: torch.narrow_copy(x, -1, 1, 2),
        (M,),
        ["slice_copy.Tensor"],
    ),
    # nothing at all
    (aten.detach.default, lambda x: x.detach() + 1, (M,), ["add.Scalar"]),
    (aten.alias.default, lambda x: aten.alias(x) + 1, (M,), ["add.Scalar"]),
    (aten.lift_fresh_copy.default, lambda x: aten.lift_fresh_copy(x) + 1, (M,), ["add.Scalar"]),
    (aten.lift_fresh.default, lambda x: aten.lift_fresh(x) + 1, (M,), ["add.Scalar"]),
    (aten.resolve_conj.default, lambda x: x.resolve_conj() + 1, (M,), ["add.Scalar"]),
    (aten.resolve_neg.default, lambda x: x.resolve_neg() + 1, (M,), ["add.Scalar"]),
    (aten._neg_view.default, lambda x: aten._neg_view(x) + 1, (M,), ["neg.default", "add.Scalar"]),
    (aten.positive.default, lambda x: +x + 1, (M,), ["add.Scalar"]),
    (aten.detach_.default, lambda x: (x * 2).detach_() + 1, (M,), ["mul.Scalar", "add.Scalar"]),
    (aten.dropout.default, torch.nn.Dropout(), (M,), []),
    (aten.feature_dropout.default, torch.nn.Dropout2d(), (IMAGE,), []),
    (aten.alpha_dropout.default, torch.nn.AlphaDropout(), (M,), []),
    (aten.clone.default, lambda x: x.clone() + 1, (M,), ["add.Scalar"]),
    (aten.clone.default, lambda x: x.clone(memory_format=LAST), (IMAGE,), ["clone.default"]),
    (aten.contiguous.default, lambda x: x.contiguous() + 1, (M,), ["add.Scalar"]),
    (
        aten.contiguous.default,
        lambda x: x.t().contiguous() + 1,
        (M,),
        ["permute_copy.default", "add.Scalar"],
    ),
    (
        aten.contiguous.default,
        lambda x: x.contiguous(memory_format=LAST),
        (IMAGE,),
        ["clone.default"],
    ),
    (aten.to.dtype, lambda x: x.to(torch.float32) + 1, (M,), ["add.Scalar"]),
    (aten.copy.default, lambda x, y: aten.copy(x, y) + 1, (M, M + 1), ["add.Scalar"]),
    (
        aten.copy.default,
        lambda x, y: aten.copy(x, y),
        (M, M[:1].double()),
        ["_to_copy.default", "expand_copy.default"],
    ),
    (aten.to.dtype, lambda x: x.to(torch.float64), (M,), ["_to_copy.default"]),
    (
        aten.to.dtype,
        lambda x: x.to(torch.float64, memory_format=LAST),
        (IMAGE,),
        ["_to_copy.default"],
    ),
    (
        aten.to.dtype_layout,
        lambda x: aten.to.dtype_layout(x, dtype=torch.int32),
        (M,),
        ["_to_copy.default"],
    ),
    (
        aten.to.device,
        lambda x: aten.to.device(x, torch.device("cpu"), torch.float32) + 1,
        (M,),
        ["add.Scalar"],
    ),
    (aten.to.other, lambda x, y: x.to(y), (M, M.double()), ["_to_copy.default"]),
    (aten.type_as.default, lambda x, y: x.type_as(y), (M, M.int()), ["_to_copy.default"]),
    (aten.type_as.default, lambda x, y: x.type_as(y) + 1, (M, M), ["add.Scalar"]),
    (
        aten._to_copy.default,
        lambda x: aten._to_copy(x, dtype=torch.float64),
        (M,),
        ["_to_copy.default"],
    ),
    (aten._to_copy.default, lambda x: aten._to_copy(x) + 1, (M,), ["add.Scalar"]),
    # gathered in a wider type, and back
    (
        aten._to_copy.default,
        lambda x, i: aten.index(x.float(), [None, i])[:1].half(),
        (M.half(), torch.tensor([3, 0, 1])),
        ["_to_copy.default", "index.Tensor", "slice_copy.Tensor", "_to_copy.default"],
    ),
    (
        aten._to_copy.default,
        lambda x, i: aten.index(aten.index(x.float(), [None, i]), [i]).half(),
        (M.half(), torch.tensor([2, 0, 1])),
        ["index.Tensor", "index.Tensor"],
    ),
    # views
    (aten.view.default, lambda x: x.view(2, 6), (M,), ["view_copy.default"]),
    (aten.view.default, lambda x: x.view(3, -1) + 1, (M,), ["add.Scalar"]),
    (
        aten.reshape.default,
        lambda x: x.t().reshape(-1),
        (M,),
        ["permute_copy.default", "view_copy.default"],
    ),
    (aten._unsafe_view.default, lambda x: aten._unsafe_view(x, [12]), (M,), ["view_copy.default"]),
    (aten.flatten.using_ints, lambda x: x.flatten(1), (T,), ["view_copy.default"]),
    (aten.unflatten.int, lambda x: x.unflatten(1, (2, 2)), (M,), ["view_copy.default"]),
    (aten.view_as.default, lambda x, y: x.view_as(y), (M, M.reshape(2, 6)), ["view_copy.default"]),
    (
        aten.reshape_as.default,
        lambda x, y: x.reshape_as(y),
        (M, M.reshape(2, 6)),
        ["view_copy.default"],
    ),
    (aten.permute.default, lambda x: x.permute(2, 0, -2), (T,), ["permute_copy.default"]),
    (aten.permute.default, lambda x: x.permute(0, 1, -1) + 1, (T,), ["add.Scalar"]),
    # Of seven dimensions: one of one element is left out, neighbours are one, the views are short.
    (
        aten.permute.default,
        lambda x: x.view(1, 2, 2, 2, 2, 2, 3).permute(0, 3, 5, 1, 4, 6, 2).reshape(4, 24),
        (torch.arange(96.0).reshape(8, 12),),
        ["view_copy.default", "permute_copy.default", "view_copy.default"],
    ),
    (
        aten.permute.default,
        lambda x: x.view(2, 2, 2, 2, 3, 2, 1).permute(4, 5, 6, 0, 1, 2, 3) + 1,
        (torch.arange(96.0).reshape(8, 12),),
        ["view_copy.default", "permute_copy.default", "view_copy.default", "add.Scalar"],
    ),
    (
        aten.permute.default,
        lambda x: x.view(1, 4, 1, 2, 1, 12, 1).permute(6, 1, 0, 2, 3, 5, 4).reshape(4, 24),
        (torch.arange(96.0).reshape(8, 12),),
        ["view_copy.default"],
    ),
    (
        aten.permute.default,
        lambda x: x.view(2, 2, 2, 2, 2, 3, 2).permute(6, 5, 4, 3, 2, 1, 0) + 1,
        (torch.arange(192.0),),
        ["view_copy.default", "permute_copy.default", "add.Scalar"],
    ),
    (aten.transpose.int, lambda x: x.transpose(-1, 0), (T,), ["permute_copy.default"]),
    (aten.transpose.int, lambda x: x.transpose(1, -2) + 1, (T,), ["add.Scalar"]),
    (aten.t.default, lambda x: x.t(), (M,), ["permute_copy.default"]),
    (aten.t.default, lambda x: x[0].t() + 1, (M,), ["select_copy.int", "add.Scalar"]),
    (aten.numpy_T.default, lambda x: x.T, (M,), ["permute_copy.default"]),
    (aten.numpy_T.default, lambda x: aten.numpy_T(x), (T,), ["permute_copy.default"]),
    (aten.mT.default, lambda x: x.mT, (T,), ["permute_copy.default"]),
    (aten.expand.default, lambda x: x.expand(2, -1, 4), (M,), ["expand_copy.default"]),
    (aten.expand.default, lambda x: x.expand(3, -1) + 1, (M,), ["add.Scalar"]),
    (aten.expand_as.default, lambda x, y: x.expand_as(y), (M, T), ["expand_copy.default"]),
    (aten.unsqueeze.default, lambda x: x.unsqueeze(-1), (M,), ["unsqueeze_copy.default"]),
    (
        aten.squeeze.default,
        lambda x: x.view(3, 1, 4).squeeze(),
        (M,),
        ["view_copy.default", "squeeze_copy.dims"],
    ),
    (
        aten.squeeze.dim,
        lambda x: x.view(3, 1, 4).squeeze(-2),
        (M,),
        ["view_copy.default", "squeeze_copy.dims"],
    ),
    (aten.squeeze.dim, lambda x: x.squeeze(0) + 1, (M,), ["add.Scalar"]),
    (
        aten.squeeze.dims,
        lambda x: x.view(1, 3, 1, 4).squeeze((0, 1, 2)),
        (M,),
        ["view_copy.default", "squeeze_copy.dims"],
    ),
    (aten.slice.Tensor, lambda x: x[1:, :-1], (M,), ["slice_copy.Tensor", "slice_copy.Tensor"]),
    (aten.slice.Tensor, lambda x: x[:, 0:9] + 1, (M,), ["add.Scalar"]),
    (aten.slice.Tensor, lambda x: x[:, ::3], (M,), ["slice_copy.Tensor"]),
    (aten.slice.Tensor, lambda x: x[:1, ::3], (M[:1],), ["slice_copy.Tensor"]),
    (
        aten.as_strided.default,
        lambda x: x.as_strided((2, 2), (4, 2), 1),
        (M,),
        ["as_strided_copy.default"],
    ),
    (
        aten.as_strided.default,
        lambda x: (x + 1).resize_((3, 2)).resize_((2, 1)).resize_(5) * 2,
        (M,),
        ["add.Scalar", "as_strided_copy.default", "mul.Scalar"],
    ),
    (
        aten.as_strided.default,
        lambda x: (x + 1).t()[1:].as_strided((2, 2), (1, 4)),
        (M,),
        ["add.Scalar", "as_strided_copy.default"],
    ),
    (aten.diagonal.default, lambda x: x.diagonal(1), (M,), ["diagonal_copy.default"]),
    (aten.unfold.default, lambda x: x.unfold(1, 2, 1), (M,), ["unfold_copy.default"]),
    (aten.unfold.default, lambda x: x.unfold(1, 2, 2), (M,), ["view_copy.default"]),
    (
        aten.unfold.default,
        lambda x: x.unfold(0, 2, 2),
        (M,),
        ["slice_copy.Tensor", "view_copy.default", "permute_copy.default"],
    ),
    (
        aten.resize.default,
        lambda x: (x + 1).resize_((3, 4)) * 2,
        (M,),
        ["add.Scalar", "view_copy.default", "view_copy.default", "mul.Scalar"],
    ),
    (
        aten.resize.default,
        lambda x: aten.resize(x + 1, (5, 1)) * 2,
        (M,),
        ["add.Scalar", "view_copy.default", "slice_copy.Tensor", "view_copy.default", "mul.Scalar"],
    ),
    (aten.narrow.default, lambda x: x.narrow(1, 1, 2), (M,), ["slice_copy.Tensor"]),
    (aten.narrow.default, lambda x: x.narrow(-1, -3, 2), (M,), ["slice_copy.Tensor"]),
    (aten.select.int, lambda x: x[:, -1], (M,), ["select_copy.int"]),
    (aten.split.Tensor, lambda x: x.split(3, 1), (M,), ["slice_copy.Tensor"] * 2),
    (aten.split.Tensor, lambda x: x.split(3, -1)[1], (M,), ["slice_copy.Tensor"]),
    (aten.split_with_sizes.default, lambda x: x.split([1, 3], -1), (M,), ["slice_copy.Tensor"] * 2),
    (aten.split.sizes, lambda x: aten.split.sizes(x, [1, 2]), (M,), ["slice_copy.Tensor"] * 2),
    (aten.chunk.default, lambda x: x.chunk(2, 1), (M,), ["slice_copy.Tensor"] * 2),
    (aten.tensor_split.sections, lambda x: x.tensor_split(3, 1), (M,), ["slice_copy.Tensor"] * 3),
    (
        aten.split_with_sizes_copy.default,
        lambda x: aten.split_with_sizes_copy(x, [1, 2]),
        (M,),
        ["slice_copy.Tensor"] * 2,
    ),
    (aten.unsafe_split.Tensor, lambda x: x.unsafe_split(2, 1), (M,), ["slice_copy.Tensor"] * 2),
    (aten.unsafe_chunk.default, lambda x: x.unsafe_chunk(2, 1), (M,), ["slice_copy.Tensor"] * 2),
    (aten.unbind.int, lambda x: x.unbind(1), (M,), ["select_copy.int"] * 4),
    (aten.unbind_copy.int, lambda x: aten.unbind_copy(x, 0), (M,), ["select_copy.int"] * 3),
    # one name per computation
    (aten.conv1d.default, torch.nn.Conv1d(3, 2, 2, stride=2), (T,), ["convolution.default"]),
    (
        aten.conv2d.default,
        torch.nn.Conv2d(4, 2, (3, 2), dilation=(1, 2)),
        (IMAGE,),
        ["convolution.default"],
    ),
    (aten.conv3d.default, torch.nn.Conv3d(1, 2, 2), (IMAGE.unsqueeze(0),), ["convolution.default"]),
    (aten.conv1d.padding, torch.nn.Conv1d(3, 2, 3, padding="same"), (T,), ["convolution.default"]),
    (
        aten.conv2d.padding,
        torch.nn.Conv2d(4, 2, 3, padding="valid"),
        (IMAGE,),
        ["convolution.default"],
    ),
    (
        aten.conv2d.padding,
        torch.nn.Conv2d(4, 2, (3, 5), padding="same", dilation=2),
        (IMAGE,),
        ["convolution.default"],
    ),
    (
        aten.conv2d.padding,
        torch.nn.Conv2d(4, 2, 2, padding="same"),
        (IMAGE,),
        ["constant_pad_nd.default", "convolution.default"],
    ),
    (
        aten.conv3d.padding,
        torch.nn.Conv3d(1, 2, 3, padding="same"),
        (IMAGE.unsqueeze(0),),
        ["convolution.default"],
    ),
    (
        aten.conv2d.default,
        torch.nn.Conv2d(4, 2, 3),
        (IMAGE[0],),
        ["unsqueeze_copy.default", "convolution.default", "squeeze_copy.dims"],
    ),
    (
        aten.conv_transpose1d.default,
        torch.nn.ConvTranspose1d(3, 2, 2),
        (T,),
        ["convolution.default"],
    ),
    (
        aten.conv_transpose2d.input,
        torch.nn.ConvTranspose2d(4, 2, 3, 2, output_padding=1),
        (IMAGE,),
        ["convolution.default"],
    ),
    (
        aten.conv_transpose3d.input,
        torch.nn.ConvTranspose3d(1, 2, 2),
        (IMAGE.unsqueeze(0),),
        ["convolution.default"],
    ),
    (aten.softmax.int, lambda x: x.softmax(-1), (M,), ["_softmax.default"]),
    (
        aten.softmax.int,
        lambda x: x.softmax(-1, dtype=torch.float64),
        (M,),
        ["_to_copy.default", "_softmax.default"],
    ),
    (aten.log_softmax.int, lambda x: x.log_softmax(0), (M,), ["_log_softmax.default"]),
    (aten.relu6.default, torch.nn.ReLU6(), (M,), ["hardtanh.default"]),
    (aten.adaptive_avg_pool2d.default, torch.nn.AdaptiveAvgPool2d(1), (IMAGE,), ["mean.dim"]),
    (
        aten.adaptive_avg_pool2d.default,
        torch.nn.AdaptiveAvgPool2d(2),
        (IMAGE,),
        ["_adaptive_avg_pool2d.default"],
    ),
    (
        aten._adaptive_avg_pool2d.default,
        lambda x: aten._adaptive_avg_pool2d(x, [1, 1]),
        (IMAGE,),
        ["mean.dim"],
    ),
    (aten.matmul.default, lambda x, y: x @ y, (M, M.t().contiguous()), ["mm.default"]),
    (aten.matmul.default, lambda x, y: x @ y, (T, T.mT.contiguous()), ["bmm.default"]),
    (
        aten.matmul.default,
        lambda x, y: x @ y,
        (T, M.t().contiguous()),
        ["view_copy.default", "mm.default", "view_copy.default"],
    ),
    (
        aten.matmul.default,
        lambda x, y: x @ y,
        (T[None], T.mT[None].contiguous()),
        ["view_copy.default", "view_copy.default", "bmm.default", "view_copy.default"],
    ),
    (aten.add.Tensor, lambda x: x + 2, (M,), ["add.Scalar"]),
    (aten.add.Tensor, lambda x: torch.add(x, 2, alpha=3), (M,), ["add.Scalar"]),
    (aten.add.Tensor, lambda x, y: x + y, (M, M), ["add.Tensor"]),
    (aten.sub.Tensor, lambda x: x - 2, (M,), ["sub.Scalar"]),
    (aten.mul.Tensor, lambda x: x * 2, (M,), ["mul.Scalar"]),
    (aten.div.Tensor, lambda x: x / 2, (M,), ["div.Scalar"]),
    (aten.full_like.default, lambda x: x * torch.full_like(x, 3), (M,), ["mul.Tensor"]),
    (
        aten.zeros_like.default,
        lambda x: torch.cat([torch.zeros_like(x, dtype=torch.int64), x]),
        (M,),
        ["cat.default"],
    ),
    (aten.ones_like.default, lambda x: torch.cat([torch.ones_like(x), x]), (M,), ["cat.default"]),
    (aten.constant_pad_nd.default, lambda x: F.pad(x, (1, 2)), (M,), ["constant_pad_nd.default"]),
    (
        aten.constant_pad_nd.default,
        lambda x: F.pad(x, (-1, 2, 0, -1), value=3.0),
        (M,),
        ["slice_copy.Tensor", "slice_copy.Tensor", "constant_pad_nd.default"],
    ),
    (aten.constant_pad_nd.default, lambda x: F.pad(x, (-1, -2)), (M,), ["slice_copy.Tensor"]),
    (aten.pad.default, lambda x: aten.pad(x, (1, 2)), (M,), ["constant_pad_nd.default"]),
    (aten.pad.default, lambda x: aten.pad(x, (0, 0)), (M,), []),
    (
        aten.pad.default,
        lambda x: F.pad(x, (1, 0, 2, 3), mode="circular"),
        (T,),
        [
            "slice_copy.Tensor",
            "cat.default",
            "slice_copy.Tensor",
            "slice_copy.Tensor",
            "cat.default",
        ],
    ),
    (
        aten.pad.default,
        lambda x: aten.pad(x, (-1, 2), value=3.0),
        (M,),
        ["slice_copy.Tensor", "constant_pad_nd.default"],
    ),
    (aten.pad.default, lambda x: F.pad(x, (1, 1), "reflect"), (T,), ["index.Tensor"]),
    (
        aten.batch_norm.default,
        torch.nn.BatchNorm2d(4),
        (IMAGE,),
        ["_native_batch_norm_legit_no_training.default"],
    ),
    # no rule: torch's decompositions of one call
    (None, torch.nn.LayerNorm(4), (M,), ["native_layer_norm.default"]),
    (None, torch.nn.Linear(4, 2), (M,), ["addmm.default"]),
    (
        None,
        torch.nn.Hardsigmoid(),
        (M,),
        ["add.Scalar", "clamp.default", "clamp.default", "div.Scalar"],
    ),
    (None, lambda x: F.silu(x), (M,), ["sigmoid.default", "mul.Tensor"]),
    (aten.cat.default, lambda x: torch.cat([x[:, 4:], x * 2], 1), (M,), ["mul.Scalar"]),
    (
        aten.cat.default,
        lambda x: torch.cat([x, x[:, 4:], x], 1),
        (M,),
        ["cat.default"],
    ),
    (
        aten.stack.default,
        lambda x: torch.stack([x, x + 1], -1),
        (M,),
        ["add.Scalar", "unsqueeze_copy.default", "unsqueeze_copy.default", "cat.default"],
    ),
    (
        aten.stack.default,
        lambda x: torch.stack([x, x], 1),
        (M,),
        ["cat.default", "view_copy.default"],
    ),
    # pooling of sequences, and adaptive pooling whose sizes divide
    (
        aten.avg_pool1d.default,
        torch.nn.AvgPool1d(2, padding=1),
        (T,),
        ["unsqueeze_copy.default", "avg_pool2d.default", "squeeze_copy.dims"],
    ),
    (
        aten.max_pool1d.default,
        torch.nn.MaxPool1d(2, 1, ceil_mode=True),
        (T,),
        ["unsqueeze_copy.default", "max_pool2d_with_indices.default", "squeeze_copy.dims"],
    ),
    (aten.adaptive_avg_pool1d.default, torch.nn.AdaptiveAvgPool1d(1), (T,), ["mean.dim"]),
    (
        aten.adaptive_avg_pool1d.default,
        torch.nn.AdaptiveAvgPool1d(2),
        (T,),
        ["unsqueeze_copy.default", "avg_pool2d.default", "squeeze_copy.dims"],
    ),
    (
        aten.adaptive_avg_pool1d.default,
        torch.nn.AdaptiveAvgPool1d(3),
        (T,),
        ["unsqueeze_copy.default", "_adaptive_avg_pool2d.default", "squeeze_copy.dims"],
    ),
    (
        aten.adaptive_avg_pool2d.default,
        torch.nn.AdaptiveAvgPool2d((3, 5)),
        (IMAGE,),
        ["avg_pool2d.default"],
    ),
    (aten.adaptive_max_pool2d.default, torch.nn.AdaptiveMaxPool2d(1), (IMAGE,), ["amax.default"]),
    (
        aten.adaptive_max_pool2d.default,
        torch.nn.AdaptiveMaxPool2d((2, 5)),
        (IMAGE,),
        ["max_pool2d_with_indices.default"],
    ),
    # functions without a kernel
    (
        aten.linalg_vector_norm.default,
        lambda x: x.norm(dim=-1),
        (M,),
        ["abs.default", "pow.Tensor_Scalar", "sum.dim_IntList", "pow.Tensor_Scalar"],
    ),
    (
        aten.linalg_vector_norm.default,
        lambda x: torch.linalg.vector_norm(x, 1),
        (M,),
        ["abs.default", "sum.dim_IntList"],
    ),
    (
        aten.linalg_vector_norm.default,
        lambda x: torch.linalg.vector_norm(x, float("-inf"), 0, keepdim=True),
        (M,),
        ["abs.default", "amin.default"],
    ),
    (aten.exp2.default, torch.exp2, (M,), ["pow.Scalar"]),
    (
        aten.hypot.default,
        torch.hypot,
        (M, M - 1),
        ["abs.default"] * 2
        + ["maximum.default", "minimum.default", "clamp.default", "div.Tensor", "mul.Tensor"]
        + ["add.Scalar", "sqrt.default", "mul.Tensor"],
    ),
    (aten.softshrink.default, F.softshrink, (M,), ["clamp.default", "sub.Tensor"]),
    (
        aten.softshrink.default,
        lambda x: F.softshrink(x.half(), 0.37),
        (M,),
        ["_to_copy.default", "_to_copy.default", "clamp.default", "sub.Tensor", "_to_copy.default"],
    ),
    (
        torch.ops.prims.scalar_tensor.default,
        lambda x: torch.xlogy(0.37, x.exp()),
        (M,),
        ["exp.default", "log.default", "mul.Tensor", "where.self", "isnan.default", "where.self"],
    ),
    (
        aten.mv.default,
        torch.mv,
        (M, M[0]),
        ["unsqueeze_copy.default", "mm.default", "squeeze_copy.dims"],
    ),
    (
        aten.hardswish.default,
        F.hardswish,
        (M,),
        ["add.Scalar", "clamp.default", "mul.Scalar", "mul.Tensor"],
    ),
    (
        aten.hardsigmoid.default,
        F.hardsigmoid,
        (M,),
        ["add.Scalar", "clamp.default", "mul.Scalar"],
    ),
    (
        aten.roll.default,
        lambda x: x.roll(5),
        (M,),
        ["view_copy.default", "roll.default", "view_copy.default"],
    ),
    (aten.roll.default, lambda x: x.roll(1, 0), (M,), ["roll.default"]),
    (
        aten.instance_norm.default,
        torch.nn.InstanceNorm2d(4),
        (IMAGE,),
        ["native_group_norm.default"],
    ),
    (
        aten.instance_norm.default,
        torch.nn.InstanceNorm2d(4, track_running_stats=True),
        (IMAGE,),
        ["_native_batch_norm_legit_no_training.default"],
    ),
    (aten.cat.default, lambda x: torch.cat([x]) + 1, (M,), ["add.Scalar"]),
    # integers
    (
        aten.remainder.Scalar_Tensor,
        lambda x: torch.remainder(7, x),
        (M,),
        ["remainder.Tensor"],
    ),
    (
        aten.bitwise_and.Scalar_Tensor,
        lambda x: torch.ops.aten.bitwise_and.Scalar_Tensor(5, x),
        (N,),
        ["bitwise_and.Tensor"],
    ),
    (
        aten.bitwise_or.Scalar_Tensor,
        lambda x: torch.ops.aten.bitwise_or.Scalar_Tensor(5, x),
        (N,),
        ["bitwise_or.Tensor"],
    ),
    (
        aten.bitwise_xor.Scalar_Tensor,
        lambda x: torch.ops.aten.bitwise_xor.Scalar_Tensor(5, x),
        (N,),
        ["bitwise_xor.Tensor"],
    ),
    (aten.__lshift__.Scalar, lambda x: x << 2, (N,), ["bitwise_left_shift.Tensor_Scalar"]),
    (aten.__rshift__.Scalar, lambda x: x >> 2, (N,), ["bitwise_right_shift.Tensor_Scalar"]),
    (aten.__lshift__.Tensor, lambda x: x << x, (N,), ["bitwise_left_shift.Tensor"]),
    (aten.__rshift__.Tensor, lambda x: x >> x, (N,), ["bitwise_right_shift.Tensor"]),
    (
        aten.bitwise_left_shift.Scalar_Tensor,
        lambda x: torch.bitwise_left_shift(3, x),
        (N,),
        ["bitwise_left_shift.Tensor"],
    ),
    (
        aten.bitwise_right_shift.Scalar_Tensor,
        lambda x: torch.bitwise_right_shift(300, x),
        (N,),
        ["bitwise_right_shift.Tensor"],
    ),
    (
        aten._int_mm.default,
        torch._int_mm,
        (EIGHT_BITS, EIGHT_BITS.t()),
        ["_to_copy.default", "_to_copy.default", "mm.default"],
    ),
    (aten.eq.Scalar, lambda x: x == 0, (BOOLEANS,), ["logical_not.default"]),
    (aten.ne.Scalar, lambda x: x != 1, (BOOLEANS,), ["logical_not.default"]),
]


def as_module(function: Any) -> torch.nn.Module:
    return function if isinstance(function, torch.nn.Module) else Fn(function)


@pytest.mark.parametrize(
    ("operator", "function", "inputs", "expected"),
    [pytest.param(*row, id=f"{i}-{row[0]}") for i, row in enumerate(TABLE)],
)
def test_spelling(
    operator: Any, function: Any, inputs: tuple[torch.Tensor, ...], expected: list[str]
) -> None:
    module = as_module(function)
    program = edge(module, inputs)
    found = spelling(program)
    if operator is not None or len(found) == len(expected):
        assert [n for n in found if n != "add.Tensor" or n in expected] == expected
    assert all(is_edge_operator(node.target) for node in calls(program.graph))
    assert_values_are_as_said(program, inputs)
    assert_equals_eager(program, module, inputs, 1e-5)


OF_OPEN_SIZES = {
    operator.pow,
    torch.sym_sqrt,
    torch.sym_sum,
    aten.size.default,
    aten.sym_size.default,
}
"""Rows of test_edge_numbers.py: in programs of fixed sizes there are none."""


# What draws numbers, without a generator.
DRAWS: dict[Any, Any] = {
    aten.rand.generator: lambda x: torch.rand(3, generator=None),
    aten.randn.generator: lambda x: torch.randn(3, generator=None),
    aten.randint.generator: lambda x: torch.randint(9, (3,), generator=None),
    aten.randint.low_generator: lambda x: torch.randint(2, 9, (3,), generator=None),
    aten.randperm.generator: lambda x: torch.randperm(3, generator=None),
    aten.rand_like.generator: lambda x: torch.rand_like(x, generator=None),
    aten.randn_like.generator: lambda x: torch.randn_like(x, generator=None),
}


@pytest.mark.parametrize("target", DRAWS, ids=str)
def test_draws_without_a_generator(target: Any) -> None:
    module = Fn(DRAWS[target])
    exported = export(module, (torch.zeros(3),))
    assert target in [n.target for n in exported.graph.nodes]
    (drawn,) = run_ours(edgewise.to_edge(exported).to_executorch().buffer, (torch.zeros(3),))[0]
    assert drawn.shape == (3,)


def test_every_rule_has_a_row() -> None:
    rows = {row[0] for row in TABLE if row[0] is not None}
    assert rows | set(DRAWS) == set(RULES) - OF_OPEN_SIZES


def test_dynamic_shapes_are_kept() -> None:
    module = Fn(lambda x: x.flatten(1).reshape(x.shape[0], 6, 2).transpose(1, 2) + 1)
    inputs = (torch.linspace(-1, 1, 36).reshape(3, 3, 4),)
    program = edge(module, inputs, dynamic_shapes=(({0: DIM},),))
    for n in (3, 5):
        assert_equals_eager(program, module, (torch.linspace(-1, 1, 12 * n).reshape(n, 3, 4),))


def test_symbols_stay_free() -> None:
    """Lowering and its report fix no size, neither here nor in the user's program."""
    module = Fn(lambda x: (x.flatten(1)[:3].atan() @ torch.ones(12, 2)).softmax(-1))
    inputs = (torch.linspace(-1, 1, 36).reshape(3, 3, 4),)
    program = export(module, inputs, dynamic_shapes=(({0: DIM},),))
    lowered = edgewise.to_edge_transform_and_lower(program, partitioner=partitioners("xnnpack"))
    lowered.to_executorch()
    str(lowered.delegation_report())
    symbol = next(n for n in program.graph.nodes if n.op == "placeholder").meta["val"].shape[0]
    assert not symbol.node.expr.is_number
    for n in (3, 5):
        assert_equals_eager(program, module, (torch.linspace(-1, 1, 12 * n).reshape(n, 3, 4),))


def test_assertions_of_export_are_dropped() -> None:
    class Checked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float64).to(torch.float32)

    program = edge(Checked(), (M,))
    assert spelling(program) == ["_to_copy.default", "_to_copy.default"]


def test_a_decomposition_that_writes_is_functionalised() -> None:
    """Torch decomposes a recurrent layer into additions in place."""
    module = torch.nn.GRU(4, 3, batch_first=True)
    assert_equals_eager(edge(module, (T,)), module, (T,), 1e-5)
