"""Cases of the operator table: for each row what it accepts, for each rule what it refuses."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import xnnpack_more_cases

from edgewise.backends.xnnpack import ConfigPrecisionType
from edgewise.backends.xnnpack.lowering.table import RESHAPABLE
from support import Fn


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int) -> torch.Tensor:
    return t(*shape).abs() + 0.5


def conv(*args: Any, **options: Any) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Conv2d(*args, **options)


def deconv(*args: Any, **options: Any) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.ConvTranspose2d(*args, **options)


IMAGE = t(1, 4, 7, 5)
MATRIX = t(3, 5)
HEADS = (t(2, 3, 6, 8), t(2, 3, 5, 8, seed=1), t(2, 3, 5, 8, seed=2))
DEAD_ROW = torch.ones(6, 5, dtype=torch.bool)
DEAD_ROW[2] = False
LAST_HIDDEN = torch.ones(6, 5, dtype=torch.bool).tril()
LAST_HIDDEN[:, 0] = True


def unary(op: Any) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return Fn(op), (MATRIX,)


# What each row accepts: one delegate and nothing else, and eager's results.
ACCEPTED: dict[str, dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]] = {
    "abs": {"": unary(torch.abs)},
    "ceil": {"": unary(torch.ceil)},
    "cos": {"": unary(torch.cos)},
    "exp": {"": unary(torch.exp)},
    "floor": {"": unary(torch.floor)},
    "log": {"": (Fn(torch.log), (positive(3, 5),))},
    "neg": {"": unary(torch.neg)},
    "rsqrt": {"": (Fn(torch.rsqrt), (positive(3, 5),))},
    "sigmoid": {"": unary(torch.sigmoid)},
    "sin": {"": unary(torch.sin)},
    "sqrt": {"": (Fn(torch.sqrt), (positive(3, 5),))},
    "tanh": {"": unary(torch.tanh)},
    "add": {
        "same shape": (Fn(lambda x, y: x + y), (MATRIX, t(3, 5, seed=1))),
        "itself": (Fn(lambda x: x + x), (MATRIX,)),
        "a row": (Fn(lambda x, y: x + y), (MATRIX, t(5))),
        "a column to a row": (Fn(lambda x, y: x + y), (t(3, 1), t(1, 5))),
        "more dimensions on the right": (Fn(lambda x, y: x + y), (t(5), t(2, 3, 5))),
        "a number": (Fn(lambda x: x + 2), (MATRIX,)),
        "a constant": (Fn(lambda x, c: x + c, c=t(5)), (MATRIX,)),
        "a larger constant": (Fn(lambda x, c: x + c, c=t(2, 3, 5)), (t(5),)),
        "a constant scalar": (Fn(lambda x, c: x + c, c=torch.tensor(2.0)), (MATRIX,)),
        "a constant of one element and more dimensions": (
            Fn(lambda x, c: x + c, c=torch.full((1, 1, 1), 2.0)),
            (MATRIX,),
        ),
        "six dimensions": (Fn(lambda x, y: x + y), (t(1, 2, 1, 3, 2, 2), t(2, 1, 3, 1, 2))),
        "no dimensions": (Fn(lambda x, y: x + y), (t(), t())),
    },
    "sub": {
        "": (Fn(lambda x, y: x - y), (MATRIX, t(5))),
        "from a constant": (Fn(lambda x, c: c - x, c=t(3, 5, seed=2)), (MATRIX,)),
        "a number": (Fn(lambda x: x - 0.5), (MATRIX,)),
    },
    "mul": {
        "": (Fn(lambda x, y: x * y), (MATRIX, t(3, 1))),
        "itself": (Fn(lambda x: x * x), (MATRIX,)),
        "a number": (Fn(lambda x: x * 3), (MATRIX,)),
    },
    "div": {
        "": (Fn(lambda x, y: x / y), (MATRIX, positive(5))),
        "of a constant": (Fn(lambda x, c: c / x, c=t(3, 5)), (positive(5),)),
        "a number": (Fn(lambda x: x / 3), (MATRIX,)),
    },
    "maximum": {"": (Fn(torch.maximum), (MATRIX, t(5)))},
    "minimum": {"": (Fn(torch.minimum), (MATRIX, t(5)))},
    "pow": {"": (Fn(lambda x: x**2), (MATRIX,))},
    "clamp": {
        "both": (Fn(lambda x: x.clamp(-0.5, 0.5)), (MATRIX,)),
        "low": (Fn(lambda x: x.clamp(min=0.1)), (MATRIX,)),
        "high": (Fn(lambda x: x.clamp(max=0.1)), (MATRIX,)),
        "after another": (Fn(lambda x: x.clamp(-1, 0.5).clamp(-0.5, 1)), (MATRIX,)),
        "after a disjoint other": (Fn(lambda x: x.clamp(0, 1).clamp(2, 3)), (MATRIX,)),
    },
    "relu": {
        "": (torch.nn.ReLU(), (MATRIX,)),
        "in place": (Fn(lambda x: (x + 1).relu_()), (MATRIX,)),
    },
    "hardtanh": {
        "": (torch.nn.Hardtanh(-0.3, 0.7), (MATRIX,)),
        "relu6": (torch.nn.ReLU6(), (MATRIX * 9,)),
    },
    "hardswish": {"": (torch.nn.Hardswish(), (MATRIX * 3,))},
    "hardsigmoid": {"": (torch.nn.Hardsigmoid(), (MATRIX * 3,))},
    "silu": {"": (torch.nn.SiLU(), (MATRIX,))},
    "gelu": {
        "exact": (torch.nn.GELU(), (MATRIX * 2,)),
        "tanh": (torch.nn.GELU("tanh"), (MATRIX * 2,)),
    },
    "elu": {"": (torch.nn.ELU(0.7), (MATRIX,))},
    "leaky_relu": {"": (torch.nn.LeakyReLU(0.2), (MATRIX,))},
    "softmax": {
        "": (Fn(lambda x: x.softmax(-1)), (t(2, 3, 5),)),
        "of a transposed tensor": (Fn(lambda x: x.transpose(1, 2).softmax(2)), (t(2, 3, 5),)),
    },
    "linear": {
        "": (torch.nn.Linear(5, 4), (MATRIX,)),
        "without bias": (torch.nn.Linear(5, 4, bias=False), (MATRIX,)),
        "one dimension": (torch.nn.Linear(5, 4), (t(5),)),
        "computed weight": (Fn(F.linear), (MATRIX, t(4, 5))),
        "computed weight and bias": (Fn(F.linear), (MATRIX, t(4, 5), t(4))),
        "computed bias": (Fn(lambda x, b, w: F.linear(x, w, b), w=t(4, 5)), (MATRIX, t(4))),
        "computed weight, four dimensions": (Fn(F.linear), (t(2, 3, 1, 5), t(4, 5), t(4))),
        "four dimensions": (torch.nn.Linear(5, 4), (t(2, 3, 1, 5),)),
        "of a transposed tensor": (
            torch.nn.Sequential(Fn(lambda x: x.transpose(0, 1)), torch.nn.Linear(3, 4)),
            (MATRIX,),
        ),
    },
    "addmm": {"": (Fn(lambda x, w, b: torch.addmm(b, x, w), w=t(5, 4), b=t(4)), (MATRIX,))},
    "mm": {
        "constant": (Fn(lambda x, w: x @ w, w=t(5, 4)), (MATRIX,)),
        "computed": (Fn(lambda x, y: x @ y), (MATRIX, t(5, 4))),
        "computed, transposed": (Fn(lambda x, y: x @ y.t()), (MATRIX, t(4, 5))),
        "a constant on the left": (Fn(lambda x, w: w @ x, w=t(4, 3)), (MATRIX,)),
    },
    "matmul": {
        "four dimensions": (Fn(torch.matmul), (t(2, 3, 4, 5), t(2, 3, 5, 6))),
        "transposed": (Fn(lambda x, y: x @ y.mT), (t(2, 3, 4, 5), t(2, 3, 6, 5))),
        "broadcast": (Fn(torch.matmul), (t(2, 3, 4, 5), t(3, 5, 6))),
        "five dimensions, broadcast": (Fn(torch.matmul), (t(2, 1, 3, 4, 5), t(1, 2, 1, 5, 6))),
        "a constant": (Fn(lambda x, w: x @ w, w=t(5, 6)), (t(2, 3, 4, 5),)),
        "a constant of more dimensions": (
            Fn(lambda x, w: x @ w, w=t(2, 3, 5, 6)),
            (t(2, 3, 4, 5),),
        ),
    },
    "bmm": {
        "computed": (Fn(torch.bmm), (t(2, 3, 5), t(2, 5, 4))),
        "itself": (Fn(lambda x: torch.bmm(x, x)), (t(2, 3, 3),)),
        "a constant on the right": (Fn(lambda x, w: torch.bmm(x, w), w=t(2, 5, 4)), (t(2, 3, 5),)),
        "a constant on the left": (Fn(lambda x, w: torch.bmm(w, x), w=t(2, 4, 3)), (t(2, 3, 5),)),
    },
    "scaled_dot_product_attention": {
        "": (Fn(F.scaled_dot_product_attention), HEADS),
        "three dimensions": (Fn(F.scaled_dot_product_attention), tuple(h[0] for h in HEADS)),
        "causal": (Fn(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True)), HEADS),
        "scale": (Fn(lambda *x: F.scaled_dot_product_attention(*x, scale=0.3)), HEADS),
        "boolean mask": (
            Fn(lambda *x, m: F.scaled_dot_product_attention(*x, attn_mask=m), m=LAST_HIDDEN),
            HEADS,
        ),
        "a row of which nothing is left": (
            Fn(lambda *x, m: F.scaled_dot_product_attention(*x, attn_mask=m), m=DEAD_ROW),
            HEADS,
        ),
        "a row of which nothing is left, added": (
            Fn(
                lambda *x, m: F.scaled_dot_product_attention(*x, attn_mask=m),
                m=torch.zeros(6, 5).masked_fill(~DEAD_ROW, -torch.inf) + t(6, 5),
            ),
            HEADS,
        ),
        "rows and no columns": (
            Fn(
                lambda *x, m: F.scaled_dot_product_attention(*x, attn_mask=m),
                m=DEAD_ROW[:, :1],
            ),
            HEADS,
        ),
        "computed mask": (
            Fn(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)),
            (*HEADS, t(2, 1, 6, 5)),
        ),
        "heads split by a transpose": (
            Fn(lambda x: F.scaled_dot_product_attention(*[x.view(1, 6, 2, 4).transpose(1, 2)] * 3)),
            (t(1, 6, 8),),
        ),
    },
    "conv2d": {
        "": (conv(4, 6, 3), (IMAGE,)),
        "stride, padding, dilation": (
            conv(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
            (IMAGE,),
        ),
        "padding=same": (conv(4, 6, 3, padding="same"), (IMAGE,)),
        "1x1, stride 2": (conv(4, 6, 1, stride=2, bias=False), (IMAGE,)),
        "groups": (conv(4, 6, 3, groups=2), (IMAGE,)),
        "depthwise": (conv(4, 4, 3, groups=4), (IMAGE,)),
        "depthwise with multiplier": (conv(4, 8, 3, groups=4), (IMAGE,)),
        "batch": (conv(4, 6, 3), (t(3, 4, 7, 5),)),
        "one channel": (conv(1, 1, 3), (t(1, 1, 5, 5),)),
        "transposed": (deconv(4, 6, 3, stride=2, padding=1, output_padding=1), (IMAGE,)),
        "transposed, groups": (deconv(4, 6, 3, groups=2), (IMAGE,)),
        "transposed, one channel": (deconv(4, 1, 3, stride=2), (IMAGE,)),
        "channels_last input": (conv(4, 6, 3), (IMAGE.to(memory_format=torch.channels_last),)),
    },
    "layer_norm": {
        "": (torch.nn.LayerNorm(5), (MATRIX,)),
        "two dimensions": (torch.nn.LayerNorm((3, 5)), (t(2, 3, 5),)),
        "not affine": (torch.nn.LayerNorm(5, elementwise_affine=False), (MATRIX,)),
        "of a transposed tensor": (
            torch.nn.Sequential(Fn(lambda x: x.transpose(1, 2)), torch.nn.LayerNorm(3)),
            (t(2, 3, 5),),
        ),
    },
    "native_layer_norm": {
        "": (
            Fn(lambda x, w, b: torch.native_layer_norm(x, [5], w, b, 1e-5)[0], w=t(5), b=t(5)),
            (MATRIX,),
        )
    },
    "max_pool2d": {
        "": (torch.nn.MaxPool2d(2), (IMAGE,)),
        "stride, padding, dilation": (torch.nn.MaxPool2d(3, 2, 1, 2), (t(1, 4, 9, 9),)),
    },
    "max_pool2d_with_indices": {
        "": (Fn(lambda x: torch.ops.aten.max_pool2d_with_indices(x, [2, 3])[0]), (IMAGE,))
    },
    "mean": {
        "spatial": (Fn(lambda x: x.mean((2, 3))), (IMAGE,)),
        "spatial, kept": (Fn(lambda x: x.mean((-1, -2), keepdim=True)), (IMAGE,)),
        "last": (Fn(lambda x: x.mean(-1)), (MATRIX,)),
        "last, kept": (Fn(lambda x: x.mean(-1, keepdim=True)), (IMAGE,)),
        "to no dimensions": (Fn(lambda x: x.mean(-1)), (t(5),)),
        "adaptive pooling": (torch.nn.AdaptiveAvgPool2d(1), (IMAGE,)),
    },
    # Shape operators alone are no partition: each has something computed beside it.
    "view_copy": {"": (Fn(lambda x: x.view(5, 3) * 2), (MATRIX,))},
    "squeeze_copy": {"": (Fn(lambda x: x.squeeze(1) * 2), (t(3, 1, 5),))},
    "unsqueeze_copy": {"": (Fn(lambda x: x.unsqueeze(1) * 2), (MATRIX,))},
    "permute_copy": {
        "": (Fn(lambda x: x.permute(2, 0, 1)), (t(2, 3, 5),)),
        "twice": (Fn(lambda x: x.permute(2, 0, 1).permute(2, 0, 1)), (t(2, 3, 5),)),
        "back": (Fn(lambda x: x.permute(1, 0, 2).permute(1, 0, 2) + 1), (t(2, 3, 5),)),
    },
    "slice_copy": {
        "": (Fn(lambda x: x[:, 1:3]), (MATRIX,)),
        "negative": (Fn(lambda x: x[-2:, :-1]), (MATRIX,)),
        "beyond the end": (Fn(lambda x: x[1:100]), (MATRIX,)),
        "chunks": (Fn(lambda x: x.chunk(2, 1)), (t(3, 6),)),
        "every other of six dimensions": (
            Fn(lambda x: (x[::2], x[:, 1::2], x[:, :, :, ::3], x[..., ::2])),
            (t(2, 3, 2, 4, 2, 3),),
        ),
    },
    "select_copy": {
        "": (Fn(lambda x: x[:, 1]), (t(2, 3, 5),)),
        "negative": (Fn(lambda x: x.select(-1, -2)), (MATRIX,)),
        "to no dimensions": (Fn(lambda x: x[2]), (t(5),)),
        "to no dimensions, then computed": (Fn(lambda x: x[2] * 2 + x[1]), (t(5),)),
        "unbind": (Fn(lambda x: x.unbind(0)), (MATRIX,)),
    },
    "cat": {
        "two": (Fn(lambda x, y: torch.cat([x, y], 1)), (MATRIX, t(3, 2))),
        "itself": (Fn(lambda x: torch.cat([x, x])), (MATRIX,)),
        "a constant": (Fn(lambda x, c: torch.cat([c, x], 1), c=t(2, 1, 4)), (t(2, 3, 4),)),
        "six": (Fn(lambda *x: torch.cat(x)), tuple(t(i + 1, 2) for i in range(6))),
        "eleven": (Fn(lambda x: torch.cat([x + i for i in range(11)], 1)), (MATRIX,)),
        "other order": (Fn(lambda x, y: torch.cat([x.t(), y])), (MATRIX, t(2, 3))),
        "stack": (Fn(lambda x, y: torch.stack([x, y], 1)), (MATRIX, t(3, 5, seed=1))),
    },
    "constant_pad_nd": {
        "": (Fn(lambda x: F.pad(x, (1, 2))), (MATRIX,)),
        "two dimensions, a value": (Fn(lambda x: F.pad(x, (1, 0, 0, 2), value=-1.5)), (IMAGE,)),
        "of a transposed tensor": (Fn(lambda x: F.pad(x.t(), (1, 2, 3, 0))), (MATRIX,)),
        "negative": (Fn(lambda x: F.pad(x, (-1, 2, 0, -1))), (MATRIX,)),
        "negative only": (Fn(lambda x: F.pad(x, (-1, -2))), (MATRIX,)),
    },
    "expand_copy": {
        "": (Fn(lambda x: x.expand(4, 3, 5) * 2), (t(3, 1),)),
        "alone": (Fn(lambda x: x.expand(4, 3, 5)), (t(3, 1),)),
    },
    "clone": {
        "memory format": (
            Fn(lambda x: (x + 1).contiguous(memory_format=torch.channels_last)),
            (IMAGE,),
        )
    },
    "_to_dim_order_copy": {
        "memory format": (Fn(lambda x: (x + 1).to(memory_format=torch.channels_last)), (IMAGE,))
    },
}

# What is refused: rule and what was found, as the report words them. The runtime's own kernels
# then run the node.
Refused = tuple[torch.nn.Module, tuple[torch.Tensor, ...], str, str]
REFUSED: dict[str, dict[str, Refused]] = {
    "any row": {
        "integers": (
            Fn(lambda x, y: x + y),
            (torch.arange(3), torch.arange(3)),
            "aten.add.Tensor",
            "data type must be float32 or float16; got inputs_0: int64",
        ),
        "seven dimensions": (
            Fn(torch.tanh),
            (t(1, 1, 1, 2, 1, 1, 2),),
            "aten.tanh.default",
            "at most 6 dimensions; got",
        ),
        "no elements": (
            Fn(torch.tanh),
            (t(0, 3),),
            "aten.tanh.default",
            "tensors must have elements; got inputs_0: [0, 3]",
        ),
        "not in the table": (
            Fn(torch.atan),
            (MATRIX,),
            "aten.atan.default",
            "an operator of the XNNPACK table; got aten.atan.default",
        ),
    },
    "add": {
        "alpha": (
            Fn(lambda x, y: torch.add(x, y, alpha=2)),
            (MATRIX, MATRIX),
            "aten.add.Tensor",
            "alpha=1; got alpha=2; try multiplying the second operand first",
        ),
        "two types": (
            Fn(lambda x, y: x + y),
            (MATRIX, torch.arange(5.0, dtype=torch.float64)),
            "aten.add.Tensor",
            "data type must be float32 or float16; got",
        ),
    },
    "sub": {
        "alpha": (
            Fn(lambda x, y: torch.sub(x, y, alpha=2)),
            (MATRIX, MATRIX),
            "aten.sub.Tensor",
            "alpha=1; got alpha=2",
        ),
    },
    "clamp": {
        "empty range": (
            Fn(lambda x: x.clamp(1, 1)),
            (MATRIX,),
            "aten.clamp.default",
            "min < max; got min=1.0, max=1.0",
        ),
    },
    "hardtanh": {
        "empty range": (
            Fn(lambda x: F.hardtanh(x, 1.0, 1.0)),
            (MATRIX,),
            "aten.hardtanh.default",
            "min < max; got min=1.0, max=1.0",
        ),
    },
    "conv2d": {
        "computed weight": (
            Fn(F.conv2d),
            (IMAGE, t(6, 4, 3, 3)),
            "aten.convolution.default",
            "constant weight and bias; got weight is computed by",
        ),
    },
    "native_layer_norm": {
        "statistics": (
            Fn(lambda x: torch.native_layer_norm(x, [5], None, None, 1e-5)),
            (MATRIX,),
            "aten.native_layer_norm.default",
            "only the normalised tensor is used; got mean or rstd used by",
        ),
        "computed weight": (
            Fn(lambda x, w: torch.native_layer_norm(x, [5], w, None, 1e-5)[0]),
            (MATRIX, t(5)),
            "aten.native_layer_norm.default",
            "constant weight and bias; got weight is computed by",
        ),
    },
    "max_pool2d_with_indices": {
        "indices": (
            Fn(lambda x: F.max_pool2d(x, 2, return_indices=True)),
            (IMAGE,),
            "aten.max_pool2d_with_indices.default",
            "indices are not used; got indices used by",
        ),
        "stride": (
            torch.nn.MaxPool2d(2, 3),
            (t(1, 4, 9, 9),),
            "aten.max_pool2d_with_indices.default",
            "stride <= kernel_size; got stride (3, 3), kernel_size (2, 2)",
        ),
        "1x1": (
            torch.nn.MaxPool2d(1),
            (IMAGE,),
            "aten.max_pool2d_with_indices.default",
            "kernel_size above 1x1; got (1, 1)",
        ),
    },
    "view_copy": {
        "alone": (
            Fn(lambda x: x.view(5, 3)),
            (MATRIX,),
            "aten.view_copy.default",
            "a partition must compute something; got shape operators only",
        ),
    },
    "_to_dim_order_copy": {
        "conversion": (
            Fn(lambda x: x.to(torch.float64)),
            (MATRIX,),
            "aten._to_copy.default",
            "data type must be float32 or float16; got",
        ),
    },
}

# Rules that no program reaches which torch.export makes today, with the reason.
UNREACHED = {
    ("constant_pad_nd", "no negative padding"): "negative padding is spelt as a slice before",
    ("add", "operands of one data type"): "types other than float32 and float16 are refused before",
    ("sub", "operands of one data type"): "as add",
    ("mul", "operands of one data type"): "as add",
    ("div", "operands of one data type"): "as add",
    ("maximum", "operands of one data type"): "as add",
    ("minimum", "operands of one data type"): "as add",
    ("slice_copy", "start and end are numbers"): "symbolic operands are refused before",
    ("_to_dim_order_copy", "no dtype conversion"): "another type is refused before",
    ("adaptive_avg_pool2d", "static sizes of the image"): "test_xnnpack_dynamic.py",
}

# Operators that are kept whole only if the row takes them: refused ones are decomposed before the
# partitioner sees them, so these reasons come from asking the row about the exported node.
ASKED: dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...], str]] = {
    "scaled_dot_product_attention: dropout": (
        Fn(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.5)),
        HEADS,
        "dropout_p=0; got dropout_p=0.5",
    ),
    "scaled_dot_product_attention: groups": (
        Fn(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)),
        (t(2, 4, 6, 8), t(2, 2, 5, 8), t(2, 1, 5, 8)),
        "leading dimensions that go together; got [2, 4, 6, 8], [2, 2, 5, 8], [2, 1, 5, 8]",
    ),
    "scaled_dot_product_attention: leading dimensions": (
        Fn(F.scaled_dot_product_attention),
        tuple(t(1, 1, 1, 2, 1, 4, 4) for _ in range(3)),
        "at most 6 dimensions; got inputs_0: 7",
    ),
    "scaled_dot_product_attention: a computed boolean mask": (
        Fn(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)),
        (*HEADS, DEAD_ROW),
        "data type must be float32 or float16; got inputs_3: bool",
    ),
    "layer_norm: computed bias": (
        Fn(lambda x, b: F.layer_norm(x, (5,), None, b)),
        (MATRIX, t(5)),
        "constant weight and bias; got bias is computed by",
    ),
    "max_pool2d: stride": (
        torch.nn.MaxPool2d(2, 3),
        (t(1, 4, 9, 9),),
        "stride <= kernel_size; got",
    ),
}

for _table, _more in (
    (ACCEPTED, xnnpack_more_cases.ACCEPTED),
    (REFUSED, xnnpack_more_cases.REFUSED),
):
    for _row, _cases in _more.items():
        _table.setdefault(_row, {}).update(_cases)
UNREACHED |= xnnpack_more_cases.UNREACHED
for _row in ("view_copy", "squeeze_copy", "unsqueeze_copy", "select_copy"):
    UNREACHED[_row, RESHAPABLE.rule] = "needs a dynamic shape: test_xnnpack_dynamic.py"
UNREACHED["slice_copy", "the size along dim is static"] = "as view_copy"
UNREACHED["select_copy", "a negative index only where the size is static"] = "as view_copy"
ASKED |= xnnpack_more_cases.ASKED
ASKED["linear: a vector times a computed weight"] = (
    Fn(F.linear),
    (t(5), t(4, 5)),
    "a matrix, or several, times a matrix; got [5] and [4, 5]",
)
ASKED["matmul: two dimensions"] = (
    Fn(torch.matmul),
    (MATRIX, t(5, 4)),
    "matrices, with more than three dimensions or symbolic sizes; got [3, 5] and [5, 4]",
)
ASKED["matmul: a vector"] = (
    Fn(torch.matmul),
    (t(2, 3, 4, 5), t(5)),
    "matrices, with more than three dimensions or symbolic sizes; got [2, 3, 4, 5] and [5]",
)
for name, pool, inputs, told in (
    ("without batch", torch.nn.MaxPool3d(2), t(4, 6, 7, 5), "self is 5-D; got 4-D"),
    ("ceil_mode", torch.nn.MaxPool3d(4, ceil_mode=True), t(1, 4, 6, 7, 5), "ceil_mode=False; got"),
    ("stride", torch.nn.MaxPool3d(2, 3), t(1, 4, 6, 7, 5), "stride <= kernel_size; got stride [3"),
):
    ASKED[f"max_pool3d: {name}"] = (pool, (inputs,), told)
ASKED["upsample_linear1d: a factor that the sizes are not quotients of"] = (
    torch.nn.Upsample(scale_factor=1.3, mode="linear"),
    (t(2, 4, 9),),
    "scale_factors are the quotients of the sizes; got scale_factors=[1.3]",
)
ASKED["upsample_trilinear3d: a factor that the sizes are not quotients of"] = (
    torch.nn.Upsample(scale_factor=1.3, mode="trilinear"),
    (t(1, 3, 4, 5, 6),),
    "scale_factors are the quotients of the sizes; got scale_factors=[1.3, 1.3, 1.3]",
)

__all__ = ["ACCEPTED", "REFUSED", "UNREACHED", "ConfigPrecisionType", "t"]
