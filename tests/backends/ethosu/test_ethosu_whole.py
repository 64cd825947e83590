"""Single operators as users have them: quantized, lowered, and their file run in the simulator.

All of a row is one delegate on each of its processors; every element of the result is within the
row's steps of what the quantized program computes in eager PyTorch, and integers and booleans are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ethosu_reference import SPECS, like
from torch import nn

import edgewise
from edgewise.backends.ethosu import (
    EthosUCompileSpec,
    EthosUPartitioner,
    EthosUQuantizer,
    get_symmetric_a16w8_quantization_config,
)
from edgewise.edge.graph import op_name
from edgewise.partition.lowered_module import is_delegate_call
from edgewise.quantize._torchao import convert_pt2e, prepare_pt2e
from support import Fn, exported_again, run_ours

aten = torch.ops.aten
Shape = tuple[int, ...]
ALL, U85 = ("U55", "U65", "U85"), ("U85",)


@dataclass(frozen=True)
class Whole:
    """function(*tensors of the shapes, of numbers from `low` to `high`, *others)."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...] = ((3, 4, 6),)
    low: float = -2.0
    high: float = 2.0
    others: tuple[Any, ...] = ()
    """Indices and masks, which are not quantized, and numbers as they are."""
    bits: int = 8
    families: tuple[str, ...] = ALL
    steps: int = 1
    negated: bool = False
    """Whether the negatives of the tensors are tried, too."""


class Layer(nn.Module):
    """A function with weights of its own, drawn once."""

    def __init__(self, function: Callable[..., Any], *shapes: Shape) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.function = function
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(shape, generator=generator) / 2) for shape in shapes]
        )

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.weights)


def wide(rows: dict[str, Whole], **options: Any) -> dict[str, Whole]:
    """The rows, and the same with 16 bits."""
    return {
        **rows,
        **{f"{name}, 16 bits": replace(row, bits=16, **options) for name, row in rows.items()},
    }


def _functions() -> dict[str, Whole]:
    """Of one tensor, over a range where they bend."""
    spans: dict[str, tuple[Callable[..., Any], float, float]] = {
        "abs": (torch.abs, -3, 3),
        "acos": (torch.acos, -0.95, 0.95),
        "asin": (torch.asin, -0.95, 0.95),
        "atan": (torch.atan, -20, 20),
        "atanh": (torch.atanh, -0.9, 0.9),
        "ceil": (torch.ceil, -4, 4),
        "cos": (torch.cos, -6, 6),
        "cosh": (torch.cosh, -3, 3),
        "elu": (F.elu, -6, 6),
        "erf": (torch.erf, -4, 4),
        "exp": (torch.exp, -9, 3),
        "expm1": (torch.expm1, -4, 3),
        "floor": (torch.floor, -4, 4),
        "gelu": (F.gelu, -20, 20),
        "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), -8, 8),
        "hardsigmoid": (F.hardsigmoid, -9, 9),
        "hardswish": (F.hardswish, -9, 9),
        "leaky_relu": (F.leaky_relu, -3, 3),
        "log": (torch.log, 0.01, 9),
        "log1p": (torch.log1p, 0.01, 9),
        "neg": (torch.neg, -1, 3),
        "reciprocal": (torch.reciprocal, 0.05, 4),
        "round": (torch.round, -4, 4),
        "rsqrt": (torch.rsqrt, 0.01, 9),
        "sigmoid": (torch.sigmoid, -20, 20),
        "sign": (torch.sign, -2, 2),
        "silu": (F.silu, -15, 15),
        "sin": (torch.sin, -6, 6),
        "softplus": (F.softplus, -15, 15),
        "sqrt": (torch.sqrt, 0, 9),
        "square": (torch.square, -3, 3),
        "tan": (torch.tan, -1.4, 1.4),
        "tanh": (torch.tanh, -12, 12),
        "power of three": (lambda x: x**3, -2, 2),
        "division of no rounding": (lambda x: torch.div(x, 2, rounding_mode=None), -2, 2),
        "two functions": (lambda x: torch.exp(-x.abs()), -8, 8),
    }
    rows = {name: Whole(f, low=low, high=high) for name, (f, low, high) in spans.items()}
    # A function that is steep enlarges the step of its operand, which was rounded before.
    return wide(rows)


def _pairs() -> dict[str, Whole]:
    """Of two tensors, one of which is repeated along dimensions."""
    shapes = {
        "alike": ((3, 4, 6), (3, 4, 6)),
        "a row": ((3, 4, 6), (6,)),
        "a column": ((3, 4, 6), (4, 1)),
        "both repeated": ((3, 1, 6), (4, 1)),
        "images": ((1, 3, 4, 5), (1, 3, 1, 1)),
    }
    functions = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
    }
    return wide(
        {
            f"{name} of {kind}": Whole(f, pair)
            for name, f in functions.items()
            for kind, pair in shapes.items()
        }
    )


def _reductions() -> dict[str, Whole]:
    functions: dict[str, Callable[..., Any]] = {
        "mean": torch.mean,
        "sum": torch.sum,
        "amax": torch.amax,
        "amin": torch.amin,
    }
    dims: dict[str, tuple[int, ...]] = {"last": (-1,), "first": (0,), "two": (0, 2)}
    rows = {
        f"{name}, {kind}, {'kept' if keep else 'gone'}": Whole(
            lambda x, f=f, d=d, keep=keep: f(x, d, keepdim=keep)
        )
        for name, f in functions.items()
        for kind, d in dims.items()
        for keep in (True, False)
    }
    return wide(rows)


def _pools() -> dict[str, Whole]:
    image = ((1, 3, 9, 7),)
    rows = {
        f"mean of {k}, by {s}, {p} around{', up' * up}{'' if counted else ', not counted'}": Whole(
            lambda x, a=(k, s, p, up, counted): F.avg_pool2d(x, *a), image
        )
        for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0))
        for up in (False, True)
        for counted in (True, False)
    }
    rows |= {
        f"largest of {k}, by {s}, {p} around": Whole(
            lambda x, a=(k, s, p): F.max_pool2d(x, *a), image
        )
        for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 0))
    }
    for name, f in {
        "largest of steps of four": lambda x: F.max_pool2d(x, 4, 4, 1),
        "means of steps of four": lambda x: F.avg_pool2d(x, (2, 5), padding=1),
        "means of steps of four, not counted": lambda x: F.avg_pool2d(
            x, 4, 4, 1, count_include_pad=False
        ),
    }.items():
        rows[name] = Whole(f, ((1, 3, 12, 20),), families=U85)
    rows["more means than elements"] = Whole(
        lambda x: F.adaptive_avg_pool2d(x, (11, 9)), ((1, 2, 8, 6),)
    )
    return wide(rows)


def _layers() -> dict[str, Whole]:
    image = ((1, 4, 7, 6),)

    def conv(kernel: Shape, **options: Any) -> Layer:
        out = (kernel[0],)
        return Layer(lambda x, w, b: F.conv2d(x, w, b, **options), kernel, out)

    return wide(
        {
            "linear": Whole(Layer(F.linear, (5, 6), (5,))),
            "one by one": Whole(conv((6, 4, 1, 1)), image),
            "three by three": Whole(conv((6, 4, 3, 3), padding=1), image),
            "steps of two": Whole(conv((6, 4, 3, 2), stride=2), image),
            "steps of four": Whole(
                conv((6, 4, 7, 7), padding=3, stride=4), ((1, 4, 13, 14),), families=U85
            ),
            "depthwise, steps of four": Whole(
                conv((4, 1, 5, 5), padding=2, stride=4, groups=4), ((2, 4, 16, 16),), families=U85
            ),
            "dilated": Whole(conv((6, 4, 3, 3), dilation=2, padding=2), image),
            "groups": Whole(conv((6, 2, 3, 3), groups=2), image),
            "depthwise": Whole(conv((4, 1, 3, 3), groups=4, padding=1), image),
            "depthwise, multiplied": Whole(conv((8, 1, 3, 3), groups=4), image),
            "sequences": Whole(Layer(lambda x, w: F.conv1d(x, w), (5, 4, 3)), ((1, 4, 9),)),
        }
    )


def _functions_of_layers() -> dict[str, Whole]:
    """Of several images, which Vela makes one operator of: the function's step is the layer's."""

    def of(function: Callable[..., Any], *shapes: Shape) -> Layer:
        return Layer(lambda x, *w: torch.tanh(function(x, *w)), *shapes)

    def pointwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w)

    images, lines = ((2, 6, 5, 4),), ((2, 4, 5, 6),)
    rows = {
        "linear": Whole(of(F.linear, (8, 6)), lines),
        "linear, five dimensions": Whole(of(F.linear, (8, 6)), ((2, 1, 4, 5, 6),)),
        "linear, reshaped": Whole(
            of(lambda x, w: F.linear(x, w).reshape(2, 4, 5, 8), (8, 6)), ((40, 6),)
        ),
        "linear, then moved": Whole(
            Layer(lambda x, w: torch.tanh(F.linear(x, w)).permute(0, 3, 1, 2), (8, 6)), lines
        ),
        "one by one": Whole(of(pointwise, (8, 6, 1, 1)), images),
        "one by one, steps": Whole(of(lambda x, w: F.conv2d(x, w, None, 2), (8, 6, 1, 1)), images),
        "one by one, depthwise": Whole(
            of(lambda x, w: F.conv2d(x, w, groups=6), (6, 1, 1, 1)), images
        ),
        "three by three": Whole(of(pointwise, (8, 6, 3, 3)), images),
        "an even kernel": Whole(
            of(lambda x, w: F.conv2d(x, w, padding="same"), (8, 6, 2, 4)), images
        ),
        "running sums": Whole(lambda x: torch.tanh(x.cumsum(2)), ((8, 4, 8, 5),)),
    }
    return {f"a function of {name}": replace(row, steps=2) for name, row in rows.items()}


def _masks() -> dict[str, Whole]:
    """What a softmax must not choose, said in other ways; and rows of which nothing is kept."""
    words = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]]) > 0
    whole = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]) > 0
    lower = torch.ones(5, 5).tril() > 0
    scores, deep = ((2, 3, 5, 5),), ((2, 2, 3, 5, 5),)
    least = torch.finfo(torch.float32).min

    def added(number: float, **options: Any) -> Whole:
        def masked(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            m = m.reshape(2, *[1] * (x.dim() - 2), 5)
            return (x + torch.where(m, 0.0, number)).softmax(-1)

        return Whole(masked, **{"shapes": scores, "others": (words,), **options})

    def filled(number: float, **options: Any) -> Whole:
        def masked(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(~m[:, None, None], number).softmax(-1)

        return Whole(masked, **{"shapes": scores, "others": (words,), **options})

    rows = {
        "infinities added": added(-torch.inf),
        "largest numbers added": added(least),
        "largest numbers added, 16 bits": added(least, bits=16),
        "nothing kept": added(least, others=(whole,)),
        "nothing kept beside -10000": added(-1e4, others=(whole,)),
        "five dimensions": added(-1e9, shapes=deep),
        "filled": filled(-1e9),
        "filled, nothing kept": filled(-1e4, others=(whole,)),
        "known, filled": Whole(lambda x: x.masked_fill(lower == 0, -torch.inf).softmax(-1), scores),
        "known, added": Whole(
            lambda x: (x + torch.where(lower, 0.0, -1e9)).softmax(-1), deep, bits=16
        ),
        "read in two shapes": Whole(
            lambda x, m: x.masked_fill(~m, -1e9).softmax(-1) * m.reshape(5, 2, 1).float(),
            ((5, 2, 10),),
            others=(words.reshape(10),),
        ),
        "padded, then causal": Whole(
            lambda x, m: (
                (x + torch.where(m, 0.0, -1e9)[:, None, None])
                .masked_fill(lower == 0, -torch.inf)
                .softmax(-1)
            ),
            scores,
            others=(words,),
        ),
        "ones of booleans": Whole(
            lambda x, m: x * m.float()[:, None, None], scores, others=(words,)
        ),
    }
    # Others than U85 have no booleans: the CPU moves these.
    return {
        f"mask: {k}": row if "known" in k else replace(row, families=U85) for k, row in rows.items()
    }


def _attention() -> dict[str, Whole]:
    """Slices of one projection, multiplied: channels lie before places."""

    def packed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.reshape(1, 3, 2, 4, 12).unbind(1)

    def mixed(x: torch.Tensor) -> torch.Tensor:
        q, k, v = packed(x)
        return v @ (k.transpose(-1, -2) @ q)

    def attended(x: torch.Tensor) -> torch.Tensor:
        q, k, v = packed(x)
        scores = torch.softmax(q.transpose(-1, -2) @ k, -1)
        return v @ scores.transpose(-1, -2)

    image = ((1, 24, 4, 3),)
    # A product of products enlarges the step of the inner one.
    return {
        "products of slices": Whole(mixed, image, steps=3),
        "attention over channels": Whole(attended, image, steps=3),
    }


def _moves() -> dict[str, Whole]:
    functions: dict[str, Callable[..., Any]] = {
        "squeeze": lambda x: x[:1].squeeze(0),
        "unsqueeze": lambda x: x.unsqueeze(1),
        "permute": lambda x: x.permute(2, 0, 1),
        "transpose": lambda x: x.transpose(0, 1),
        "slice": lambda x: x[:, 1:3],
        "slice with steps": lambda x: x[:, :, 1::2],
        "select": lambda x: x[:, 2],
        "pad": lambda x: F.pad(x, (1, 2, 0, 1)),
        "cat": lambda x: torch.cat([x, x * 0.5], 1),
        "stack": lambda x: torch.stack([x, x * 0.5], 1),
        "expand": lambda x: x[:, :1].expand(3, 4, 6) * 1.0,
        "repeat": lambda x: x.repeat(2, 1, 2),
        "flip": lambda x: x.flip(0, 2),
        "roll": lambda x: x.roll(2, 1),
        "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2], 1, 2),
        "slice_scatter with steps": lambda x: torch.slice_scatter(x, x[:, :2], 1, 0, 4, 2),
        "slice_scatter from one on": lambda x: torch.slice_scatter(x, x[:, :, :2], 2, 1, 6, 3),
    }
    rows = wide({name: Whole(f) for name, f in functions.items()})
    # More elements side by side than U55 and U65 transpose at once.
    large: dict[str, tuple[Shape, Shape]] = {
        "large, rows last": ((2**16 + 3, 2), (1, 0)),
        "large, channels last": ((2, 2, 257, 257), (0, 2, 3, 1)),
        "large, inner ones": ((2**16 + 1, 2, 3), (0, 2, 1)),
    }
    for name, (shape, order) in large.items():
        rows[name] = Whole(lambda x, o=order: x.permute(o), (shape,))
    # 130,000 commands: 10 s on each
    rows["large, inner ones"] = replace(rows["large, inner ones"], families=("U55",))
    return rows


def _statistics() -> dict[str, Whole]:
    """One operator, of 8 and of 16 bits."""
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: F.softmax(x, -1),
        "softmax, first": lambda x: F.softmax(x, 0),
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "layer_norm": lambda x: F.layer_norm(x, (6,)),
        "layer_norm of two": lambda x: F.layer_norm(x, (4, 6)),
        "layer_norm, weighted": Layer(lambda x, w, b: F.layer_norm(x, (6,), w, b), (6,), (6,)),
        "rms_norm": lambda x: F.rms_norm(x, (6,)),
        "group_norm": lambda x: F.group_norm(x, 2),
        "instance_norm": lambda x: F.instance_norm(x),
        "var": lambda x: x.var(-1),
        "var, kept": lambda x: x.var((0, 2), correction=0, keepdim=True),
        "std": lambda x: x.std(-1),
        "rows of one": lambda x: F.softmax(x[..., :1], -1) + F.layer_norm(x[..., :1], (1,)),
    }
    rows = {name: Whole(f, low=-4, high=4) for name, f in functions.items()}

    five: dict[str, Callable[..., Any]] = {
        "softmax of five dimensions": lambda x: F.softmax(x, -1),
        "softmax in the middle": lambda x: F.softmax(x, 2),
        "log_softmax of five dimensions": lambda x: F.log_softmax(x, -1),
    }
    five["smallest of five dimensions"] = lambda x: x.amin(1, keepdim=True)
    rows |= {name: Whole(f, ((2, 3, 4, 2, 6),), low=-4, high=4) for name, f in five.items()}

    def spike(x: torch.Tensor) -> torch.Tensor:
        """One of 3,000 stands out: small terms must not add up to an error."""
        return x * torch.cat([torch.ones(1), torch.full((2999,), 0.001)])

    long = {
        "softmax, long": lambda x: F.softmax(spike(x), -1),
        "log_softmax, long": lambda x: F.log_softmax(spike(x), -1),
        "layer_norm, long": lambda x: F.layer_norm(spike(x), (3000,)),
        "rms_norm, long": lambda x: F.rms_norm(spike(x), (3000,)),
    }
    rows |= {name: Whole(f, ((2, 3000),), low=8, high=10) for name, f in long.items()}
    return wide(rows)


def _indexed() -> dict[str, Whole]:
    rows, places = torch.tensor([2, 0, 1]), torch.tensor([[1, 3], [0, -1], [2, 2]])
    mask = torch.tensor([True, False, True])

    def put(indices: Callable[..., Any], accumulate: bool = False) -> Callable[..., Any]:
        return lambda x, y, *given: aten.index_put(x, indices(*given), y, accumulate)

    whole = (3, 4, 6)
    return wide(
        {
            "index": Whole(lambda x, i: x[i], others=(rows,)),
            "index of two": Whole(lambda x, i, j: x[i, j], others=(rows[:, None], places)),
            "index apart": Whole(lambda x, i: x[i, :, i], others=(rows,)),
            "index_select": Whole(lambda x, i: x.index_select(0, i), others=(rows,)),
            "gather": Whole(lambda x, i: x.gather(1, i), others=(places.abs()[..., None],)),
            "put rows": Whole(put(lambda i: [i]), (whole, whole), others=(rows,)),
            "put a row": Whole(put(lambda i: [None, i]), (whole, (6,)), others=(rows,)),
            "put of two": Whole(
                put(lambda i, j: [i, j]), (whole, (3, 2, 6)), others=(rows[:, None], places)
            ),
            "put apart": Whole(put(lambda i: [i, None, i]), (whole, (3, 4)), others=(rows,)),
            "put where": Whole(put(lambda m: [m]), (whole, (1,)), others=(mask,)),
            "sums": Whole(put(lambda i: [i], True), (whole, whole), others=(rows * 0 + 1,)),
            "index_copy": Whole(
                lambda x, y, i: x.index_copy(2, i, y), (whole, (3, 4, 3)), others=(rows,)
            ),
        }
    )


def _compared() -> dict[str, Whole]:
    functions = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "ge": torch.ge}
    rows = {
        f"{name} of two": Whole(f, ((3, 4, 6), (6,)), families=U85) for name, f in functions.items()
    }
    rows |= {
        f"{name} of a number": Whole(lambda x, f=f: f(x, 0.5), families=U85)
        for name, f in functions.items()
    }
    rows["where"] = Whole(lambda x, y: torch.where(x > y, x, y * 0.5), ((3, 4, 6), (6,)))
    for size in ((14, 12), (11, 9), (4, 3)):
        rows[f"lines to {size}"] = Whole(
            lambda x, size=size: F.interpolate(x, size, mode="bilinear"), ((1, 3, 7, 6),), bits=16
        )
    return {k: replace(row, families=U85) for k, row in rows.items()}


def _windows_and_moves() -> dict[str, Whole]:
    """Windows before a change of shape or order and what is computed then, and behind slices: Vela
    makes one operator of several, and must not mistake from where it reads. What two operators
    round may be two steps off."""
    image, images = (2, 3, 4, 6), (3, 4, 6, 8)
    one, beside, flat = (5, 3, 1, 1), (4, 2, 3, 3), (6, 2, 3)

    def every_other(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x[::2], -1)

    return wide(
        {
            "global mean, unsqueezed": Whole(
                lambda x: F.adaptive_avg_pool2d(x, 1).unsqueeze(1) * 1.3, (image,)
            ),
            "mean, turned": Whole(
                lambda x: F.avg_pool2d(x, 2).permute(2, 3, 1, 0) * -1.3, (image,), steps=2
            ),
            "maximum, in rows": Whole(
                lambda x: torch.sigmoid(F.max_pool2d(x, 2).reshape(3, -1)), (image,)
            ),
            "1 x 1 of several images, turned": Whole(
                Layer(lambda x, w: F.conv2d(x, w).transpose(1, 2) * -1.3, one), (image,), steps=2
            ),
            "lines, split": Whole(
                Layer(lambda x, w: F.conv1d(x, w[..., 0]).split(2, 1)[1].neg(), one),
                ((2, 3, 6),),
                steps=2,
            ),
            "lines in groups": Whole(
                Layer(lambda x, w: F.conv1d(x, w, None, 2, 1, 1, 2), flat), ((5, 4, 5),)
            ),
            "a filter behind a slice": Whole(
                Layer(lambda x, w: F.conv2d(x.relu()[:, 1:3], w, None, 2, 1), beside), (images,)
            ),
            "filters by channel behind a slice": Whole(
                Layer(
                    lambda x, v, w: F.conv2d(F.conv2d(x, v)[:, :, 1:], w, None, 1, 1, 1, 4),
                    (4, 4, 1, 1),
                    (4, 1, 3, 3),
                ),
                (images,),
                steps=2,
            ),
            "rows that no filter reaches": Whole(
                Layer(lambda x, w: F.conv2d(x, w, None, 3, 1), beside), ((2, 2, 9, 9),)
            ),
            "means behind a slice": Whole(
                lambda x: F.avg_pool2d(F.max_pool2d(x, 1)[..., 2:], 3, 1, 1), (images,)
            ),
            "maxima behind a slice": Whole(
                lambda x: F.max_pool2d(F.max_pool2d(x, 1)[:, :, 1:5], 3, 1, 1), (images,)
            ),
            "softmax of every other row": Whole(every_other, ((1, 25),)),
            "largest of one channel, moved": Whole(
                Layer(lambda x, w: F.conv1d(x, w).squeeze().neg().amax(1), (1, 1, 1)),
                ((2, 1, 8),),
                steps=2,
            ),
            "parts of groups, moved": Whole(
                Layer(
                    lambda x, w: F.conv1d(x, w, None, 2, 0, 1, 2).split(2)[1].unsqueeze(3).exp(),
                    (6, 4, 1),
                ),
                ((4, 8, 1),),
                low=-1,
                high=1,
                steps=2,
            ),
            "sum of one channel, moved": Whole(
                lambda x: F.max_pool2d(x, 1).reshape(4, 6).exp().sum(0), ((1, 1, 4, 6),)
            ),
        }
    ) | {
        "transposed behind a slice": Whole(
            Layer(
                lambda x, v, w: F.conv_transpose2d(F.conv2d(x, v)[:, 1:3, 1:], w, None, 2),
                (4, 4, 1, 1),
                (2, 3, 2, 2),
            ),
            (images,),
            steps=2,
        ),
        "transposed, 16 bits": Whole(
            Layer(lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1), (4, 3, 3, 3)),
            (images,),
            bits=16,
        ),
    }


def _reductions_of_two() -> dict[str, Whole]:
    """Without the reduced dimension, one of them through a function: Vela gives them the shape that
    they had, and must not give them the memory of another."""
    reductions: dict[str, Callable[..., Any]] = {
        "sum": lambda x: x.sum(1),
        "mean": lambda x: x.mean(1),
    }
    pairs: dict[str, Callable[..., Any]] = {
        "tanh added": lambda a, b: a.tanh() + b,
        "number added": lambda a, b: a + 0.7 + b,
        "tanh multiplied": lambda a, b: a.tanh() * b,
    }
    return wide(
        {
            f"{name} of two, {how}": Whole(
                lambda x, y, f=function, g=pair: g(f(x.relu()), f(y)), ((3, 5), (3, 4)), steps=2
            )
            for name, function in reductions.items()
            for how, pair in pairs.items()
        },
        families=("U85",),
        steps=3,
    )


def _joined_reductions() -> dict[str, Whole]:
    """Each must write into its own place of what joins them."""
    pair = (3, 5), (3, 5)
    return {
        "largest, joined": Whole(
            lambda x, y: torch.cat([x.amax(1, True) * -1.3, y.amax(1, True)]), pair, steps=2
        ),
        "smallest, stacked": Whole(
            lambda x, y: torch.stack([x.amin(1) * -1.3, y.amin(1)], 1), pair, steps=2
        ),
        "largest and mean of channels": Whole(
            lambda x: torch.cat([x.amax(1, True), x.mean(1, True)], 1).sigmoid().sum(1, True) * x,
            ((2, 4, 5, 3),),
            steps=2,
        ),
    }


def _sums_of_scales() -> dict[str, Whole]:
    """Whose scales are short fractions of each other: Vela scales then within the sum."""
    one = torch.tensor([[1.0, -1.0, 0.5, -0.25], [1.0, -1.0, -0.5, 0.75]])
    of = {"half": 0.5, "four": 4.0, "three quarters": 0.75, "257 of 512": 257 / 512}
    sums = {"sum": torch.add, "difference": torch.sub}
    return wide(
        {
            f"{name} of scales, {ratio}": Whole(function, (), others=(one * times, one.flip(1)))
            for name, function in sums.items()
            for ratio, times in of.items()
        }
    )


def _branches() -> dict[str, Whole]:
    """Both are computed, and the predicate chooses."""

    def nested(x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.mean() > 0, lambda z: z + 1.0, lambda z: z - torch.ones(1), [y])

        return torch.cond(x.sum() > 0, inner, lambda y: y * 0.5, [x])

    def two_results(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.cond(
            x.sum() > 0, lambda y: (y.sin(), y + y), lambda y: (y.cos(), y - y.sin()), [x]
        )
        return a * b

    def in_a_row(x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, torch.sigmoid, torch.relu, [x])
        return torch.cond(y.mean() > 0.6, torch.sin, torch.cos, [y])

    layer = Layer(
        lambda x, w, v: torch.cond(
            x.sum() > 0, lambda y: F.linear(y, w), lambda y: F.linear(y, v).relu(), [x]
        ),
        (5, 6),
        (5, 6),
    )
    rows = {
        "branches": Whole(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, [x])),
        "branches of constants": Whole(
            lambda x: torch.cond(x.sum() > 0, lambda: torch.zeros(4), lambda: torch.ones(4), [])
        ),
        "branches within branches": Whole(nested),
        "branches of two results": Whole(two_results),
        "branches in a row": Whole(in_a_row),
        "branches with weights": Whole(layer),
        "branches of two operands": Whole(
            lambda x, y: torch.cond((x - y).sum() > 0, torch.add, torch.sub, [x, y]),
            ((3, 4, 6), (3, 4, 6)),
        ),
    }
    return {name: replace(row, negated=True) for name, row in rows.items()}


ROWS = {
    **_functions(),
    **_pairs(),
    **_reductions(),
    **_pools(),
    **_layers(),
    **_functions_of_layers(),
    **_masks(),
    **_attention(),
    **_moves(),
    **_statistics(),
    **{name: replace(row, families=U85) for name, row in {**_indexed(), **_branches()}.items()},
    **_compared(),
    **_windows_and_moves(),
    **_sums_of_scales(),
    **_reductions_of_two(),
    **_joined_reductions(),
}


def quantized_of(row: Whole, inputs: Sequence[Any], family: str) -> tuple[nn.Module, Any]:
    """The converted module, and the program that is exported of it."""
    quantizer = EthosUQuantizer(EthosUCompileSpec(SPECS[family]))
    if row.bits == 16:
        quantizer.set_global(get_symmetric_a16w8_quantization_config())
    module = row.function if isinstance(row.function, nn.Module) else Fn(row.function)
    exported = torch.export.export(module.eval(), tuple(inputs))
    prepared = prepare_pt2e(exported.module(), quantizer)
    with torch.no_grad():
        real = len(row.shapes)
        for _ in range(2):
            prepared(*inputs)
            prepared(*map(like, inputs[:real]), *inputs[real:])
        converted = convert_pt2e(prepared)
        return converted, exported_again(converted, exported, inputs)


def step_of(program: Any) -> float:
    """The result's scale; 1 for integers and booleans."""
    node = next(reversed(program.graph.nodes)).args[0][0]
    while node.op == "call_function":
        if "dequantize_per_tensor" in str(node.target):
            return float(node.args[1])
        if node.meta["val"].dtype == torch.bool:
            break
        node = node.all_input_nodes[0]
    return 1.0


OUTSIDE = (
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.default",
    "aten._to_copy.default",
)


def lowered(program: Any, family: str) -> bytes:
    """The file, all of which is one delegate."""
    spec = EthosUCompileSpec(SPECS[family])
    edge = edgewise.to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])
    calls = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    outside = [op_name(n) for n in calls if not is_delegate_call(n) and "getitem" not in n.name]
    assert [n for n in outside if n not in OUTSIDE] == [], edge.delegation_report()
    assert sum(map(is_delegate_call, calls)) == 1
    return bytes(edge.to_executorch().buffer)


@pytest.mark.parametrize("name", ROWS)
def test_within_its_steps(name: str) -> None:
    row = ROWS[name]
    torch.manual_seed(0)
    inputs = [torch.empty(s).uniform_(row.low, row.high) for s in row.shapes] + list(row.others)
    for group in ([f for f in row.families if f != "U85"], [f for f in row.families if f == "U85"]):
        if not group:
            continue
        converted, program = quantized_of(row, inputs, group[0])
        step = step_of(program)
        for family in group:
            calls = [inputs, [-x for x in inputs]] if row.negated else [inputs]
            results = run_ours(lowered(program, family), *calls)
            for given, (found,) in zip(calls, results, strict=True):
                expected = converted(*given)
                assert found.shape == expected.shape
                off = (found.double() - expected.double()).abs().max() / step
                assert off <= row.steps + 1e-2, f"{family}: {off:.3f} steps off"


@dataclass(frozen=True)
class Integers:
    """function(*tensors): exact."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    families: tuple[str, ...] = ALL


def whole_numbers(low: int, high: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(low, high, shape or (3, 4, 5), generator=generator).to(dtype)


def _integers() -> dict[str, Integers]:
    int32 = whole_numbers(-1000, 1000, torch.int32)
    row = whole_numbers(-50, 50, torch.int32, 5)
    limits = torch.tensor([-(2**31), -(2**31) + 1, -5, -1, 0, 1, 2**31 - 1], dtype=torch.int32)
    found = {
        "add": Integers(torch.add, (int32, row)),
        "add, alpha": Integers(lambda x, y: torch.add(x, y, alpha=-3), (int32, row)),
        "add of a number": Integers(lambda x: x + 7, (int32,)),
        "sub": Integers(torch.sub, (int32, row)),
        "rsub": Integers(lambda x: 9 - x, (int32,)),
        "rsub of five dimensions": Integers(
            lambda x: 9 - x, (whole_numbers(-99, 99, torch.int32, 2, 3, 4, 2, 6),)
        ),
        "mul": Integers(torch.mul, (int32, row)),
        "mul by a number": Integers(lambda x: x * 12, (int32,)),
        "maximum": Integers(torch.maximum, (int32, row)),
        "minimum": Integers(torch.minimum, (int32, row)),
        "maximum of a constant": Integers(lambda x: x.maximum(torch.tensor(-20)), (int32,)),
        "booleans by rows": Integers(
            lambda x, i: x[i], (int32 > 0, torch.tensor([2, 0], dtype=torch.int32)), U85
        ),
        "booleans, gathered": Integers(
            lambda x, i: x.gather(1, i), (int32 > 0, int32[:, :2].abs() % 4), U85
        ),
        "put": Integers(
            lambda x, y, i: aten.index_put(x, [i], y),
            (int32, int32[:2] + 1, torch.tensor([2, 0], dtype=torch.int32)), U85,
        ),
        "sums": Integers(
            lambda x, y, i: aten.index_put(x, [i], y, True),
            (int32, int32[:2] + 1, torch.tensor([2, 2], dtype=torch.int32)), U85,
        ),
        "floor_divide": Integers(
            lambda x, y: torch.div(x, y, rounding_mode="floor"),
            (int32, whole_numbers(-9, 0, torch.int32, 5)), U85,
        ),
        "cut division": Integers(
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            (int32, whole_numbers(-9, 0, torch.int32, 5)), U85,
        ),
        "cut division of two types": Integers(
            lambda x, y: torch.div(x, y, rounding_mode="trunc"),
            (
                whole_numbers(-128, 128, torch.int8, 4, 5),
                whole_numbers(1, 300, torch.int16, 4, 5),
            ), U85,
        ),
        "floor_divide by a number": Integers(
            lambda x: torch.div(x, 7, rounding_mode="floor"),
            (whole_numbers(-128, 128, torch.int8),), U85,
        ),
        "right, of limits": Integers(lambda x: x >> 3, (limits,)),
        "right by none, of limits": Integers(lambda x: x >> 0, (limits,)),
        "right, far, of limits": Integers(lambda x: x >> 31, (limits,)),
        "left, of limits": Integers(lambda x: x << 3, (limits,)),
    }  # fmt: skip
    for dtype in (torch.int8, torch.int16, torch.int32):
        info, kind = torch.iinfo(dtype), str(dtype).removeprefix("torch.")
        numbers = whole_numbers(info.min, info.max + 1, dtype)
        places = whole_numbers(0, info.bits, dtype)
        for way, shift in (
            ("left", torch.bitwise_left_shift),
            ("right", torch.bitwise_right_shift),
        ):
            found[f"{way} by 2, {kind}"] = Integers(lambda x, f=shift: f(x, 2), (numbers,))
            of_32 = way == "right" and dtype == torch.int32
            found[f"{way} by tensors, {kind}"] = Integers(
                shift, (numbers, places), U85 if of_32 else ALL
            )
    return found


INTEGERS = _integers()


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_equal(name: str) -> None:
    case = INTEGERS[name]
    program = torch.export.export(Fn(case.function), case.inputs)
    for family in case.families:
        ((found,),) = run_ours(lowered(program, family), case.inputs)
        torch.testing.assert_close(found, case.function(*case.inputs), rtol=0, atol=0)
