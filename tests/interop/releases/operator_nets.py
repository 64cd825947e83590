"""Nets of the matrix that are one operator or a few: those that seldom occur, types of inputs, what
is returned. Imports torch only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from nets import IMAGE, ROWS, SERIES, Fn, M, Net, _random
from torch import nn

WHOLE = torch.tensor([[3, -7, 2, 9], [0, 5, -1, 4]])
VOLUME = _random(1, 2, 4, 5, 6, seed=11)

OPERATORS: dict[str, Net] = {
    # Activations.
    "activations": Net(
        lambda: Fn(lambda x: (F.selu(x), F.celu(x, 0.5), F.softsign(x), F.tanhshrink(x))), (M * 3,)
    ),
    "shrinks": Net(
        lambda: Fn(lambda x: (F.hardshrink(x, 0.3), F.softshrink(x, 0.3), F.threshold(x, 0.1, 2))),
        (M,),
    ),
    "log_sigmoid": Net(lambda: nn.LogSigmoid(), (M * 4,), half=True),
    "prelu_one": Net(lambda: nn.PReLU(), (IMAGE,), half=True),
    "relus": Net(lambda: Fn(lambda x: F.relu6(x * 9) + F.leaky_relu(x)), (M,), half=True),
    # Functions of numbers.
    "hyperbolic": Net(lambda: Fn(lambda x: (x.sinh(), x.cosh(), x.asinh(), x.atanh())), (M / 2,)),
    "angles": Net(lambda: Fn(lambda x: (x.tan(), x.asin(), x.acos(), x.atan())), (M / 2,)),
    "angles_only": Net(lambda: Fn(lambda x: x.sin() * 2 + 1), (M,)),
    "logarithms": Net(lambda: Fn(lambda x: ((x + 2).log2(), (x + 2).log10(), x.exp2())), (M,)),
    "nan": Net(
        lambda: Fn(lambda x: (x.log().nan_to_num(0.5), x.log().isnan(), (1 / (x * 0)).isinf())),
        (M,),
    ),
    "truncated": Net(lambda: Fn(lambda x: ((x * 9).trunc(), (x * 9).frac(), x.reciprocal())), (M,)),
    "scaled_by_input": Net(lambda: Fn(lambda x, s: x / s + s), (M, torch.tensor([2.5]))),
    "addcmul": Net(
        lambda: Fn(lambda x, y: (x.addcmul(x, y, value=0.5), x.addcdiv(x, y + 3, value=2))),
        (M, M * 2),
    ),
    # Integers and truth values.
    "integers_more": Net(
        lambda: Fn(
            lambda i: (i.abs(), i.clamp(-2, 4), i**2, i ^ 5, ~i, i.sum(), i.amax(1), i.float() / 2)
        ),
        (WHOLE,),
    ),
    "int32": Net(lambda: Fn(lambda i: (i * 3 - 1, i.float() * 0.5)), (WHOLE.int(),)),
    "bytes": Net(lambda: Fn(lambda i: i.float() / 255 - 0.5), (WHOLE.abs().to(torch.uint8),)),
    "mask": Net(lambda: Fn(lambda x, m: (torch.where(m, x, -x), m & (x > 0))), (M, M > 0.2)),
    "doubles": Net(lambda: Fn(lambda x: (x.exp() + 1, x @ x.t())), (M.double(),)),
    "remainders_whole": Net(
        lambda: Fn(lambda i: (i % 4, i % -3, i % (i.abs() + 1), i.int() % 5)), (WHOLE,)
    ),
    "added": Net(
        lambda: Fn(lambda i: (i + 0.5, i.int() + 2.5, (i > 1) + 1, (i > 1) + 0.5, i - 0.5)),
        (WHOLE,),
    ),
    # Reductions and order.
    "reduced_all": Net(lambda: Fn(lambda x: (x.sum(), x.mean(), x.max(), x.std())), (M,)),
    "reduced_kept": Net(
        lambda: Fn(lambda x: (x.amin((1, 2), keepdim=True), x.mean((0, 2)), x.argmax(1))), (ROWS,)
    ),
    "masked_mean": Net(
        lambda: Fn(lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True)),
        (ROWS, torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 0]])),
    ),
    "median": Net(lambda: Fn(lambda x: x.median(1)), (M,)),
    "cumulative_more": Net(lambda: Fn(lambda x: (x.cumsum(0).cumsum(1), x.cumprod(1))), (M,)),
    "any_all": Net(lambda: Fn(lambda x: ((x > 0).any(), (x > -2).all(1), x.norm(p=1))), (M,)),
    "bucketized": Net(
        lambda: Fn(lambda x, b: torch.bucketize(x, b), b=torch.linspace(-1, 1, 5)), (M,)
    ),
    "top_least": Net(lambda: Fn(lambda x: x.topk(3, 1, largest=False)), (M,)),
    # Products.
    "outer": Net(lambda: Fn(lambda x: (torch.outer(x[0], x[1]), torch.kron(x[:2], x[1:]))), (M,)),
    "cosine": Net(lambda: Fn(lambda x, y: F.cosine_similarity(x, y)), (M, M + 0.5), half=True),
    "matrix_vector": Net(lambda: Fn(lambda x: (x @ x[0], x[0].dot(x[1]))), (M,)),
    "addmm": Net(lambda: Fn(lambda x, c: torch.addmm(x[:, :3], x, c), c=_random(8, 3)), (M,)),
    # Places.
    "triangles": Net(lambda: Fn(lambda x: (x.triu(1) + x.tril(-1), x[:, :3].diagonal())), (M,)),
    "turned": Net(lambda: Fn(lambda x: (x.rot90(1, (2, 3)), x.flip((1, 2)))), (IMAGE,)),
    "rolled_two": Net(
        lambda: Fn(lambda x: torch.roll(x, (1, -2), (2, 3)) * 2), (IMAGE,), half=True
    ),
    "index_put_add": Net(
        lambda: Fn(
            lambda x, i: x.index_put((i,), x[:2] * 2, accumulate=True), i=torch.tensor([1, 1])
        ),
        (M,),
    ),
    "index_two": Net(
        lambda: Fn(lambda x, i: x[:, i][:, :, i], i=torch.tensor([3, 0, 2])), (ROWS,)
    ),
    "slice_written": Net(
        lambda: Fn(lambda x, y: torch.slice_scatter(x, y, 1, 2, 8, 2)), (M, _random(3, 3))
    ),
    "selected_written": Net(lambda: Fn(lambda x: x.select_scatter(x[1] * 2, 0, 2)), (M,)),
    "strided": Net(lambda: Fn(lambda x: x[:, ::3, 1::2] + 1), (ROWS,), half=True),
    "masked_scatter": Net(lambda: Fn(lambda x, y: x.masked_scatter(x > 0, y)), (M, M * 3)),
    "interleaved": Net(lambda: Fn(lambda x: x.repeat_interleave(2, 1) * 2), (M,)),
    "fold": Net(lambda: nn.Fold((4, 4), 2), (_random(1, 8, 9),)),
    "unbound": Net(lambda: Fn(lambda x: x.unbind(1)), (ROWS,)),
    "meshes": Net(lambda: Fn(lambda x: torch.meshgrid(x[0], x[1], indexing="ij")), (M,)),
    "gathered_int32": Net(
        lambda: Fn(lambda x, i: (x.gather(1, i), x.index_select(0, i[0]), x[i[1]])),
        (M, torch.tensor([[2, 0], [1, 1]], dtype=torch.int32)),
    ),
    "narrow_copy": Net(
        lambda: Fn(lambda x: (torch.narrow_copy(x, -1, 1, 3), torch.narrow_copy(x, 0, 1, 2))), (M,)
    ),
    "empty_constant": Net(lambda: Fn(lambda x, c: (c, x.abs()), c=torch.zeros(0, 3)), (M,)),
    "empty_product": Net(lambda: Fn(lambda x: x[:, :0] @ x[:0] + 1), (M,)),
    # Images and volumes.
    "pad_modes": Net(
        lambda: Fn(lambda x: F.pad(F.pad(x, (2, 1), mode="reflect"), (1, 1), mode="replicate")),
        (SERIES,),
    ),
    "conv_same": Net(
        lambda: nn.Conv2d(4, 4, 4, padding="same"), (IMAGE,), half=True, quantize=("int8",)
    ),
    "conv_reflect": Net(
        lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (IMAGE,), half=True
    ),
    "conv_functional": Net(lambda: Fn(lambda x, w: F.conv2d(x, w)), (IMAGE, _random(3, 4, 3, 3))),
    "conv_3d_transposed": Net(lambda: nn.ConvTranspose3d(2, 2, 2, stride=2), (VOLUME,)),
    "conv_1d_int8": Net(
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3, bias=False), nn.ReLU(), nn.Conv1d(8, 4, 3, 2)),
        (SERIES,), half=True, quantize=("int8", "int8-dynamic"),
    ),
    "pool_3d": Net(lambda: nn.Sequential(nn.MaxPool3d(2), nn.AvgPool3d((1, 2, 2))), (VOLUME,)),
    "pool_lp": Net(lambda: nn.LPPool2d(2, 3), (IMAGE,)),
    "pool_global_max": Net(lambda: nn.AdaptiveMaxPool2d(1), (IMAGE,)),
    "local_response": Net(lambda: nn.LocalResponseNorm(3), (IMAGE,)),
    "resize_area": Net(lambda: Fn(lambda x: F.interpolate(x, (6, 4), mode="area")), (IMAGE,)),
    "resize_corners": Net(
        lambda: nn.Upsample((20, 7), mode="bilinear", align_corners=True), (IMAGE,), half=True
    ),
    "resize_antialiased": Net(
        lambda: Fn(lambda x: F.interpolate(x, (5, 7), mode="bilinear", antialias=True)),
        (_random(1, 3, 16, 16),),
    ),
    "resize_linear": Net(lambda: nn.Upsample(scale_factor=2, mode="linear"), (SERIES,)),
    "unshuffled": Net(lambda: nn.PixelUnshuffle(2), (IMAGE,), half=True),
    "channels_last": Net(
        lambda: nn.Conv2d(4, 4, 3), (IMAGE.to(memory_format=torch.channels_last),), half=True
    ),
    # What is given and returned.
    "given_back": Net(lambda: Fn(lambda x, y: (x, y + 1, x)), (M, M)),
    "constant_only": Net(lambda: Fn(lambda x, c: (c * 2, x + c), c=_random(8)), (M,)),
    "unused": Net(lambda: Fn(lambda x, y: x * 2), (M, ROWS)),
    "empty": Net(lambda: Fn(lambda x: x[:, :0] + 1), (M,)),
    "bool_linear": Net(
        lambda: nn.Sequential(nn.Linear(8, 4), Fn(lambda x: x > 0)), (M,), quantize=("int8",)
    ),
    "linear_bfloat16": Net(lambda: nn.Linear(16, 8), (ROWS,), config="bfloat16"),
    "linear_after_sum": Net(
        lambda: nn.Sequential(Fn(lambda x: x.sum(1)), nn.Linear(16, 3)), (ROWS,), half=True,
        quantize=("int8", "int8-dynamic"),
    ),
}  # fmt: skip
