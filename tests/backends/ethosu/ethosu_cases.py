"""What the operator table accepts and refuses: functions of quantized tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
QD = torch.ops.quantized_decomposed
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """function(*tensors of the shapes, *constants): constants are weights in int8 with scales
    along an axis (`weights`), or stay in floating point (`floats`)."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    weights: tuple[tuple[Shape, int], ...] = ()
    floats: tuple[Shape, ...] = ()
    positive: bool = False
    same: bool = False
    """Whether all operands and the result have one scale."""
    families: tuple[str, ...] = ("U55", "U65", "U85")
    bits: int = 8
    boolean: bool = False
    """Whether the result is no real number."""
    size: float = 1.0
    """Of the inputs' scales, as a multiple of the usual ones."""
    decayed: bool = False
    """Whether the first channel's weights are next to nothing, unlike its bias."""
    reason: str = ""
    """Of a case that is refused: what the refusal says."""


class Quantized(torch.nn.Module):
    """The case's function between dequantizations and a quantization."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        super().__init__()
        self.case = case
        random = torch.Generator().manual_seed(seed)
        self.dtype = torch.int8 if case.bits == 8 else torch.int16
        self.low, self.high = -(2 ** (case.bits - 1)), 2 ** (case.bits - 1) - 1
        self.scales = [self._number(random, 0.01, 0.03) for _ in case.shapes]
        self.zeros = [self._zero(random, case.positive) for _ in case.shapes]
        if case.same:
            self.scales, self.zeros = self.scales[:1] * 9, self.zeros[:1] * 9
        self.inputs = tuple(
            torch.randint(self.low, self.high + 1, shape, generator=random).to(self.dtype)
            for shape in case.shapes
        )
        for number, (shape, axis) in enumerate(case.weights):
            values = torch.randint(-127, 128, shape, generator=random).to(torch.int8)
            self.register_buffer(f"w{number}", values)
            scales = torch.rand(shape[axis], generator=random) * 0.01 + 0.002
            scales[0] *= 1e-15 if case.decayed else 1
            self.register_buffer(f"s{number}", scales)
            zeros = torch.zeros(shape[axis], dtype=torch.int64)
            self.register_buffer(f"z{number}", zeros)
        for number, shape in enumerate(case.floats):
            self.register_buffer(f"f{number}", torch.randn(shape, generator=random))
        self.result: list[tuple[float, int]] = []
        with torch.no_grad():
            found = torch.utils._pytree.tree_leaves(self._compute(*self.inputs))
        for real in [] if case.boolean else found:
            if case.same:
                self.result.append((self.scales[0], self.zeros[0]))
                continue
            real = real[real.isfinite()]
            low, high = min(float(real.min()), 0.0), max(float(real.max()), 0.0)
            if case.bits == 16:
                self.result.append((max(high, -low) / 32767 or 1.0, 0))
            else:
                scale = (high - low) / 255 or 1.0
                self.result.append((scale, round(-128 - low / scale)))

    def _number(self, random: torch.Generator, low: float, high: float) -> float:
        scale = (float(torch.rand(1, generator=random)) * (high - low) + low) * self.case.size
        return scale if self.case.bits == 8 else scale / 256

    def _zero(self, random: torch.Generator, positive: bool) -> int:
        if self.case.bits == 16:
            return 0
        # So that no stored number stands for a negative one.
        return -128 if positive else int(torch.randint(-20, 20, (1,), generator=random))

    def _compute(self, *stored: torch.Tensor) -> Any:
        args = [
            QD.dequantize_per_tensor.default(x, s, z, self.low, self.high, self.dtype)
            for x, s, z in zip(stored, self.scales, self.zeros, strict=False)
        ]
        for number, (_, axis) in enumerate(self.case.weights):
            w, s, z = (getattr(self, f"{k}{number}") for k in "wsz")
            args.append(QD.dequantize_per_channel.default(w, s, z, axis, -127, 127, torch.int8))
        args += [getattr(self, f"f{number}") for number in range(len(self.case.floats))]
        return self.case.function(*args)

    def forward(self, *stored: torch.Tensor) -> Any:
        found = self._compute(*stored)
        if self.case.boolean:
            return found
        many = isinstance(found, (tuple, list))
        results = [
            QD.quantize_per_tensor.default(y, s, z, self.low, self.high, self.dtype)
            for y, (s, z) in zip(found if many else [found], self.result, strict=True)
        ]
        return tuple(results) if many else results[0]


IMAGE = (1, 6, 9, 8)
U85 = ("U85",)


def both_widths(cases: dict[str, Case]) -> dict[str, Case]:
    """The cases, and the same with 16 bits."""
    wide = {f"{k}, 16 bits".removeprefix(", "): replace(c, bits=16) for k, c in cases.items()}
    return {**cases, **wide}


def unary(function: Callable[..., Any], positive: bool = False) -> Case:
    return Case(function, ((1, 4, 5, 6),), positive=positive)


def pair(function: Callable[..., Any], **options: Any) -> Case:
    return Case(function, (IMAGE, IMAGE), **options)


def _conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w, b=None: F.conv2d(x, w, b, **options)


FUNCTIONS = {
    "abs": torch.abs,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "ceil": torch.ceil,
    "celu": F.celu,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "elu": F.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "gelu": F.gelu,
    "hardshrink": F.hardshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "log_sigmoid": F.logsigmoid,
    "mish": F.mish,
    "neg": torch.neg,
    "round": torch.round,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "silu": F.silu,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "atanh": lambda x: torch.atanh(x * 0.1),
    "acos": lambda x: torch.acos(x * 0.1),
    "asin": lambda x: torch.asin(x * 0.1),
    "erfinv": lambda x: torch.erfinv(x * 0.1),
    "logit": lambda x: torch.logit(x * 0.05 + 0.5),
    "add.Scalar": lambda x: aten.add.Scalar(x, 1.5),
    "mul.Scalar": lambda x: aten.mul.Scalar(x, -2),
    "sub.Scalar": lambda x: aten.sub.Scalar(x, 0.3),
    "div.Scalar": lambda x: aten.div.Scalar(x, 7),
    "rsub.Scalar": lambda x: aten.rsub.Scalar(x, 2),
    "pow.Tensor_Scalar": lambda x: x**3,
    "pow.Scalar": lambda x: aten.pow.Scalar(2.0, x),
    "remainder.Scalar": lambda x: torch.remainder(x, 0.7),
    "fmod.Scalar": lambda x: torch.fmod(x, 0.7),
}
POSITIVE = {
    "acosh": lambda x: torch.acosh(x + 1),
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
}

COMPARISONS = {
    "eq": torch.eq,
    "ge": torch.ge,
    "gt": torch.gt,
    "le": torch.le,
    "lt": torch.lt,
    "ne": torch.ne,
}
LOGICAL = {
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}

BITWISE = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}

ACCEPTED: dict[str, dict[str, Case]] = {
    **{name: {"": unary(f)} for name, f in FUNCTIONS.items()},
    "sigmoid": {"": unary(torch.sigmoid), "16 bits": Case(torch.sigmoid, (IMAGE,), bits=16)},
    **{name: {"": unary(f, True)} for name, f in POSITIVE.items()},
    **{
        name: {"": unary(FUNCTIONS[name]), "16 bits": Case(FUNCTIONS[name], (IMAGE,), bits=16)}
        for name in ("cos", "exp", "gelu", "silu", "tanh")
    },
    "sqrt": {
        "": unary(torch.sqrt, True),
        "16 bits": Case(lambda x: x.abs().sqrt(), (IMAGE,), bits=16),
    },
    "conv2d": {
        "3x3": Case(_conv(padding=1), (IMAGE,), (((8, 6, 3, 3), 0),), ((8,),)),
        "stride, odd size, no bias": Case(_conv(stride=2), (IMAGE,), (((8, 6, 3, 3), 0),)),
        "dilation": Case(_conv(dilation=2), (IMAGE,), (((4, 6, 3, 3), 0),)),
        "groups": Case(_conv(groups=2), (IMAGE,), (((4, 3, 3, 3), 0),), ((4,),)),
        "depthwise": Case(_conv(groups=6, padding=1), (IMAGE,), (((6, 1, 3, 3), 0),), ((6,),)),
        "depthwise, decayed": Case(
            _conv(groups=6), (IMAGE,), (((6, 1, 3, 3), 0),), ((6,),), decayed=True
        ),
        "groups, decayed": Case(
            _conv(groups=2), (IMAGE,), (((4, 3, 3, 3), 0),), ((4,),), decayed=True
        ),
        "transposed, decayed": Case(
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), ((4,),), decayed=True,
        ),
        "depthwise, two of each": Case(
            _conv(groups=6, stride=2), (IMAGE,), (((12, 1, 3, 3), 0),), ((12,),)
        ),
        "relu6": Case(
            lambda x, w, b: F.relu6(F.conv2d(x, w, b)), (IMAGE,), (((8, 6, 1, 1), 0),), ((8,),)
        ),
        "of a sequence": Case(
            lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1),
            ((1, 6, 11),), (((4, 6, 3), 0),), ((4,),),
        ),
        "transposed": Case(
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), ((4,),),
        ),
        "transposed, 16 bits": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, 2),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), bits=16, families=U85,
        ),
        "transposed, stride 3": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, 3),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), families=U85,
        ),
        "transposed, steps of two lengths": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, (1, 2), (0, 1)),
            ((1, 6, 5, 8),), (((6, 4, 1, 4), 1),), families=U85,
        ),
        "transposed, steps of two lengths, one row": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, (1, 2)),
            ((1, 6, 1, 8),), (((6, 4, 1, 4), 1),),
        ),
        "depthwise, stride 5": Case(
            _conv(groups=6, stride=5), ((1, 6, 17, 17),), (((6, 1, 5, 5), 0),), families=U85
        ),
        "patches": Case(_conv(stride=16), ((1, 3, 32, 32),), (((8, 3, 16, 16), 0),)),
        "transposed, of a sequence": Case(
            lambda x, w: F.conv_transpose1d(x, w, stride=2), ((1, 6, 5),), (((6, 4, 2), 1),)
        ),
        "16 bits": Case(_conv(), (IMAGE,), (((8, 6, 3, 3), 0),), ((8,),), bits=16),
    },
    "linear": {
        "": Case(F.linear, ((5, 12),), (((7, 12), 0),), ((7,),)),
        "of three dimensions": Case(F.linear, ((2, 5, 12),), (((7, 12), 0),)),
        "16 bits": Case(F.linear, ((5, 12),), (((7, 12), 0),), ((7,),), bits=16),
        "decayed": Case(F.linear, ((5, 12),), (((7, 12), 0),), ((7,),), decayed=True),
        "decayed, 16 bits": Case(
            F.linear, ((5, 12),), (((7, 12), 0),), ((7,),), bits=16, decayed=True
        ),
    },
    "addmm": {
        "": Case(lambda x, w, b: torch.addmm(b, x, w), ((5, 12),), (((12, 7), 1),), ((7,),)),
        "decayed": Case(
            lambda x, w, b: torch.addmm(b, x, w),
            ((5, 12),),
            (((12, 7), 1),),
            ((7,),),
            decayed=True,
        ),
    },
    "matmul": {
        "bmm": Case(torch.bmm, ((2, 5, 12), (2, 12, 4))),
        "four dimensions": Case(torch.matmul, ((1, 2, 5, 12), (1, 2, 12, 4))),
        "of a constant": Case(torch.matmul, ((5, 12),), (((12, 7), 1),)),
        "mm": Case(torch.mm, ((5, 12), (12, 4))),
        "16 bits": Case(torch.bmm, ((2, 5, 12), (2, 12, 4)), bits=16, families=("U85",)),
        "16 bits, mm": Case(torch.mm, ((5, 12), (12, 4)), bits=16, families=("U85",)),
        "16 bits, of a constant": Case(torch.matmul, ((5, 12),), (((12, 7), 1),), bits=16),
    },
    "add": {
        "": pair(torch.add),
        "broadcast": Case(torch.add, (IMAGE, (6, 1, 1))),
        "alpha": pair(lambda x, y: torch.add(x, y, alpha=-2)),
        "a constant": Case(torch.add, (IMAGE,), (), ((6, 1, 1),)),
        "a number": unary(lambda x: x + 0.7),
        "16 bits": pair(torch.add, bits=16),
    },
    "sub": {"": pair(torch.sub), "a constant": Case(torch.sub, (IMAGE,), (), ((6, 1, 1),))},
    "mul": {
        "": pair(torch.mul),
        "of itself": unary(lambda x: x * torch.sigmoid(x)),
        "a constant": Case(torch.mul, (IMAGE,), (), ((6, 1, 1),)),
        "16 bits": pair(torch.mul, bits=16),
    },
    "div": {"": unary(lambda x: x / 3), "a constant": Case(torch.div, (IMAGE,), (), ((6, 1, 1),))},
    "maximum": {"": pair(torch.maximum), "one scale": pair(torch.maximum, same=True)},
    "minimum": {"": pair(torch.minimum), "one scale": pair(torch.minimum, same=True)},
    "relu": {
        "": Case(F.relu, (IMAGE,)),
        "one scale": Case(F.relu, (IMAGE,), same=True),
        "16 bits": Case(F.relu, (IMAGE,), bits=16),
    },
    "prelu": {
        "": Case(F.prelu, (IMAGE,), floats=((6,),)),
        "one slope": Case(F.prelu, (IMAGE,), floats=((1,),)),
        "large slopes": Case(lambda x, w: F.prelu(x, 3e4 * w.tanh()), (IMAGE,), floats=((6,),)),
        "a vector each": Case(F.prelu, ((5, 7),), floats=((7,),)),
    },
    "cumsum": {
        "": Case(lambda x: x.cumsum(1), ((3, 17, 4),)),
        "last": Case(lambda x: x.cumsum(-1), ((5, 70),)),
        "channels": Case(lambda x: x.cumsum(1), (IMAGE,)),
        "one vector": Case(lambda x: x.cumsum(0), ((33,),)),
        "16 bits": Case(lambda x: x.cumsum(1), ((3, 17, 4),), bits=16),
    },
    "relu6": {"": Case(F.relu6, (IMAGE,))},
    "clamp": {
        "": Case(lambda x: x.clamp(-0.3, 0.7), (IMAGE,)),
        "of a function": unary(lambda x: torch.tanh(x).clamp(-0.3, 0.4)),
    },
    "max_pool2d": {
        "": Case(lambda x: F.max_pool2d(x, 2), (IMAGE,)),
        "padding": Case(lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,), same=True),
        "ceil_mode": Case(lambda x: F.max_pool2d(x, 2, ceil_mode=True), (IMAGE,), same=True),
    },
    "max_pool2d_with_indices": {
        "": Case(lambda x: aten.max_pool2d_with_indices(x, [2, 2])[0], (IMAGE,))
    },
    "avg_pool2d": {
        "": Case(lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
        "one scale": Case(lambda x: F.avg_pool2d(x, 2), (IMAGE,), same=True),
        "padding": Case(lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,), same=True),
        "padding not counted": Case(
            lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,), same=True
        ),
        "divisor": Case(lambda x: F.avg_pool2d(x, 2, divisor_override=3), (IMAGE,)),
        "large steps": Case(lambda x: F.avg_pool2d(x, 4), ((1, 2, 8, 8),), same=True),
        "large, with padding": Case(
            lambda x: F.avg_pool2d(x, (2, 9), 1, 1), ((1, 2, 6, 20),), same=True
        ),
        "past counted padding": Case(
            lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), ((1, 2, 8, 8),)
        ),
        "past counted padding of two lengths": Case(
            lambda x: F.avg_pool2d(x, (3, 4), 3, (1, 2), ceil_mode=True), ((1, 3, 8, 7),), same=True
        ),
        "past counted padding, 16 bits": Case(
            lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), ((1, 2, 8, 8),), bits=16
        ),
    },
    "adaptive_avg_pool2d": {
        "global": Case(lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
        "thirds": Case(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,), same=True),
    },
    "mean": {
        "height and width": Case(lambda x: x.mean((2, 3)), (IMAGE,)),
        "channels": Case(lambda x: x.mean(1, keepdim=True), (IMAGE,)),
        "last": Case(lambda x: x.mean(-1), ((3, 16),)),
        "all": Case(lambda x: x.mean(), ((3, 16),)),
    },
    "sum": {
        "": Case(lambda x: x.sum(1), ((3, 16, 4),)),
        "all": Case(torch.sum, ((3, 16),)),
        "very many": Case(torch.sum, ((65537,),)),
        "very many, of a row each": Case(lambda x: x.sum(1), ((2, 65537),)),
        "16 bits": Case(lambda x: x.sum(1), ((3, 16, 4),), bits=16),
    },
    "amax": {"": Case(lambda x: x.amax(1), ((3, 16, 4),)), "all": Case(torch.max, ((3, 16),))},
    "amin": {"": Case(lambda x: x.amin((0, 1)), ((3, 16, 4),), same=True)},
    "argmax": {
        "": Case(
            lambda x: x.argmax(1).to(torch.int32), ((5, 127),), boolean=True
        ),
        "channels": Case(lambda x: x.argmax(1).int(), (IMAGE,), boolean=True),
        "first of three": Case(
            lambda x: x.argmax(0, keepdim=True).int(), ((6, 4, 3),), boolean=True
        ),
        "many": Case(
            lambda x: x.argmax(-1).int(), ((2, 3, 700),), boolean=True, families=U85
        ),
    },
    "softmax": both_widths(
        {
            "": Case(lambda x: F.softmax(x, -1), ((4, 10),)),
            "channels": Case(lambda x: F.softmax(x, 1), (IMAGE,)),
            "one of many": Case(lambda x: F.softmax(x, -1), ((2, 1000),)),
            "masked": Case(
                lambda x: F.softmax(x + torch.full((7, 7), -torch.inf).triu(1), -1), ((2, 7, 7),)
            ),
        }
    ),
    "log_softmax": both_widths(
        {
            "": Case(lambda x: F.log_softmax(x, -1), ((4, 10),)),
            "one of many": Case(lambda x: F.log_softmax(x, -1), ((2, 1000),)),
        }
    ),
    "layer_norm": both_widths(
        {
            "": Case(
                lambda x, w, b: F.layer_norm(x, (16,), w, b), ((2, 5, 16),), (), ((16,), (16,))
            ),
            "no weights, two dimensions": Case(
                lambda x: F.layer_norm(x, (5, 96)), ((2, 5, 96),)
            ),
        }
    ),
    "native_layer_norm": both_widths(
        {"": Case(lambda x: aten.native_layer_norm(x, [16], None, None, 1e-5)[0], ((2, 16),))}
    ),
    "rms_norm": both_widths(
        {"": Case(lambda x, w: F.rms_norm(x, (16,), w), ((2, 5, 16),), (), ((16,),))}
    ),
    "group_norm": both_widths(
        {"": Case(lambda x, w, b: F.group_norm(x, 3, w, b), (IMAGE,), (), ((6,), (6,)))}
    ),
    "instance_norm": both_widths({"": Case(lambda x: F.instance_norm(x), (IMAGE,))}),
    "cat": {
        "": Case(lambda x, y: torch.cat([x, y], 1), (IMAGE, (1, 2, 9, 8))),
        "one scale": Case(lambda x, y: torch.cat([x, y], 2), (IMAGE, IMAGE), same=True),
    },
    "slice_copy": {
        "": Case(lambda x: x[:, 1:3], (IMAGE,), same=True),
        "steps": Case(lambda x: x[:, :, ::2, 1::3], (IMAGE,), same=True),
    },
    "select_copy": {"": Case(lambda x: x[:, -2], (IMAGE,), same=True)},
    "split_with_sizes_copy": {
        "": Case(lambda x: tuple(aten.split_with_sizes_copy(x, [1, 5], 1)), (IMAGE,), same=True)
    },
    "constant_pad_nd": {
        "": Case(lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), (IMAGE,)),
        "cut": Case(lambda x: F.pad(x, (-1, 2)), (IMAGE,), same=True),
    },
    "permute_copy": {
        "": Case(lambda x: x.permute(0, 2, 3, 1), (IMAGE,), same=True),
        "three dimensions": Case(lambda x: x.permute(2, 0, 1), ((3, 4, 5),), same=True),
    },
    "view_copy": {
        "": Case(lambda x: F.relu(x).view(8, 9, 6), (IMAGE,), same=True),
        "pixel shuffle": Case(lambda x: F.pixel_shuffle(x, 2), ((1, 8, 3, 3),), same=True),
    },
    "squeeze_copy": {"": Case(lambda x: F.relu(x).squeeze(0), (IMAGE,), same=True)},
    "unsqueeze_copy": {
        "": Case(lambda x: F.relu(x).unsqueeze(1), ((3, 4, 5),), same=True)
    },
    "expand_copy": {"": Case(lambda x: x.expand(3, 4, 5), ((1, 4, 1),), same=True)},
    "repeat": {"": Case(lambda x: x.repeat(2, 1, 3), ((1, 4, 5),), same=True)},
    "flip": {
        "": Case(lambda x: x.flip(1), ((3, 4, 5),), same=True),
        "two": Case(lambda x: x.flip(0, -1), ((3, 4, 5),), same=True),
        "images": Case(lambda x: x.flip(3), (IMAGE,), same=True),
    },
    "clone": {
        "": Case(
            lambda x: F.relu(x).clone(memory_format=torch.channels_last), (IMAGE,), same=True
        )
    },
    "_to_copy": {
        "": Case(
            lambda x: F.relu(x).to(memory_format=torch.channels_last), (IMAGE,), same=True
        )
    },
    "embedding": {
        "": Case(
            lambda x: F.embedding(torch.tensor([[2, 0], [1, 2]]), x),
            ((3, 5),),
            same=True,
            families=U85,
        )
    },
    "upsample_nearest2d": {
        "twice": Case(lambda x: F.interpolate(x, scale_factor=2), (IMAGE,), same=True),
        "half as large again": Case(
            lambda x: F.interpolate(x, size=(15, 12)), ((1, 3, 10, 8),), same=True
        ),
    },
    "upsample_bilinear2d": {
        "": Case(
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,), families=U85
        ),
        "corners": Case(
            lambda x: F.interpolate(x, size=(17, 12), mode="bilinear", align_corners=True),
            (IMAGE,), families=U85,
        ),
    },
    **{
        name: {
            "": pair(f, boolean=True, families=U85),
            "a number": Case(
                lambda x, f=f: f(x, 0.25), (IMAGE,), boolean=True,
                families=U85,
            ),
            "one scale": pair(f, boolean=True, families=U85, same=True),
            "constants first": Case(
                lambda x, y, f=f: f(y, x), (IMAGE,), floats=((6, 1, 1),), boolean=True,
                families=U85,
            ),
            "16 bits": Case(
                lambda x, f=f: f(x, 0.25), (IMAGE,), boolean=True, families=U85, bits=16
            ),
        }
        for name, f in COMPARISONS.items()
    },
    **{
        name: {
            "": pair(lambda x, y, f=f: f(x > y, y > 0), boolean=True, families=U85)
        }
        for name, f in LOGICAL.items()
    },
    "logical_not": {
        "": pair(lambda x, y: torch.logical_not(x > y), boolean=True, families=U85)
    },
    **{
        f"bitwise_{name}": {
            "booleans": pair(
                lambda x, y, f=f: f(x > y, y > 0), boolean=True, families=U85
            ),
            "integers": Case(
                lambda x, f=f: f(x.argmax(1).int(), x.argmax(0).int()),
                ((9, 9),), boolean=True, families=U85,
            ),
        }
        for name, f in BITWISE.items()
    },
    "bitwise_not": {
        "booleans": pair(lambda x, y: torch.bitwise_not(x > y), boolean=True, families=U85),
        "integers": Case(lambda x: ~x.argmax(1).int(), ((5, 9),), boolean=True, families=U85),
    },
    "div_mode": {
        "": Case(
            lambda x: torch.div(x.argmax(1).int() - 4, 3, rounding_mode="floor"), ((5, 9),),
            boolean=True, families=U85,
        ),
        "cut": Case(
            lambda x: torch.div(x.argmax(1).int() - 4, 3, rounding_mode="trunc"), ((5, 9),),
            boolean=True, families=U85,
        ),
    },
    "bitwise_left_shift": {
        "": Case(lambda x: x.argmax(1).int() << 3, ((5, 9),), boolean=True, families=U85)
    },
    "bitwise_right_shift": {
        "": Case(lambda x: x.argmax(1).int() >> 1, ((5, 9),), boolean=True, families=U85),
        "of less than nothing": Case(
            lambda x: (~x.argmax(1).int()) >> 2, ((7, 9),), boolean=True, families=U85
        ),
    },
    **{
        name: {
            "": pair(lambda x, y, f=f: f(x > y), boolean=True, families=U85),
            "rows": pair(lambda x, y, f=f: f(x > y, 1), boolean=True, families=U85),
        }
        for name, f in {"any": torch.any, "all": torch.all}.items()
    },
    "slice_scatter": {
        "": Case(
            lambda x, y: torch.slice_scatter(x, y, 1, 2, 4), (IMAGE, (1, 2, 9, 8)), same=True
        ),
        "to the end": Case(
            lambda x, y: torch.slice_scatter(x, y, -1, -3), (IMAGE, (1, 6, 9, 3)), same=True
        ),
    },
    "select_scatter": {
        "": Case(lambda x, y: torch.select_scatter(x, y, 2, -1), (IMAGE, (1, 6, 8)), same=True)
    },
    "pad": {
        mode: Case(lambda x, m=mode: F.pad(x, (2, 1, 3, 0), mode=m), (IMAGE,), same=True)
        for mode in ("reflect", "replicate", "circular")
    },
    "roll": {
        "": Case(lambda x: x.roll((1, -2), (1, 3)), (IMAGE,), same=True),
        "of all": Case(lambda x: x.roll(7), ((5, 6),), same=True),
    },
    "unfold_copy": {
        "": Case(lambda x: x.unfold(1, 3, 2), ((2, 9, 5),), same=True),
        "last": Case(lambda x: x.unfold(-1, 4, 1), ((2, 9),), same=True),
    },
    "var": both_widths(
        {
            "": Case(lambda x: x.var(-1), ((3, 16),)),
            "population": Case(lambda x: x.var(1, correction=0), ((3, 16, 4),)),
            "images": Case(lambda x: x.var((2, 3), keepdim=True), (IMAGE,)),
            "all": Case(lambda x: x.var(), ((3, 16),)),
        }
    ),
    "where": {"": pair(lambda x, y: torch.where(x > y, x, y), families=U85)},
    "index_select": {
        "": Case(
            lambda x: x.index_select(1, torch.tensor([2, 0, 2])), (IMAGE,), same=True
        ),
        "runs": Case(
            lambda x: x.index_select(0, torch.tensor([4, 5, 0, 1, 2])), ((6, 5),), same=True
        ),
    },
    "index": {
        "": Case(lambda x: x[:, torch.tensor([2, 0, -1])], (IMAGE,), same=True),
        "by a matrix": Case(
            lambda x: x[torch.tensor([[2, 0], [1, 1]])], ((3, 5),), same=True
        ),
        "computed": Case(
            lambda x: x[torch.argmax(x, 1).to(torch.int32)], ((5, 5),), same=True, families=U85
        ),
        "two dimensions": Case(
            lambda x: x[:, torch.tensor([0, -1]), torch.tensor([2, 0])], ((3, 5, 4),), same=True,
            families=U85,
        ),
        "apart, broadcast": Case(
            lambda x: x[torch.tensor([[0], [2]]), :, torch.tensor([2, 0, 1])], ((3, 5, 4),),
            same=True, families=U85,
        ),
        "computed, below zero": Case(
            lambda x: x[torch.argmax(x, 1).to(torch.int32) - 5], ((5, 5),), same=True, families=U85
        ),
    },
    "index_put": {
        "": Case(
            lambda x, y: x.index_put((torch.tensor([2, 0]),), y), ((3, 5), (2, 5)), same=True
        ),
        "columns": Case(
            lambda x, y: aten.index_put(x, [None, torch.tensor([0, 4])], y), ((3, 5), (3, 1)),
            same=True,
        ),
        "twice": Case(
            lambda x, y: x.index_put((torch.tensor([2, 2]),), y), ((3, 5), (2, 5)), same=True
        ),
        "two dimensions": Case(
            lambda x, y: x.index_put((torch.tensor([0, -1]), torch.tensor([2, 0])), y),
            ((3, 5, 2), (2, 2)), same=True, families=U85,
        ),
        "apart, broadcast": Case(
            lambda x, y: aten.index_put(x, [torch.tensor([0, 2]), None, torch.tensor([1])], y),
            ((3, 5, 4), (5,)), same=True, families=U85,
        ),
        "computed": Case(
            lambda x, y: aten.index_put(x, [None, torch.argmax(x, 1).to(torch.int32)[:1]], y),
            ((3, 5), (3, 1)), same=True, families=U85,
        ),
        "sums": Case(
            lambda x, y: x.index_put((torch.tensor([2, 0, 2]),), y, True), ((3, 5), (3, 5)),
            same=True, families=U85,
        ),
        "sums of 16 bits": Case(
            lambda x, y: x.index_put((torch.tensor([2, 0, 2]),), y, True), ((3, 5), (3, 5)),
            same=True, families=U85, bits=16,
        ),
    },
    "gather": {
        "": Case(
            lambda x: x.gather(1, torch.tensor([[2, 0], [1, 1], [4, 0]])), ((3, 5),),
            same=True, families=U85,
        ),
        "first of three": Case(
            lambda x: x.gather(0, torch.ones(2, 3, 4, dtype=torch.int64)), ((3, 4, 5),),
            same=True, families=U85,
        ),
    },
}  # fmt: skip


def _float_weight(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w)


NOT_U85 = ("U55", "U65")
REFUSED: dict[str, dict[str, Case]] = {
    "aten.layer_norm.default": {
        "eps": Case(
            lambda x: F.layer_norm(x, (9,), eps=1e8), ((4, 9),), reason="eps is small beside"
        ),
        "eps, 16 bits": Case(
            lambda x: F.layer_norm(x, (9,), eps=1e8), ((4, 9),), bits=16,
            reason="eps is small beside",
        ),
    },
    "quantized_decomposed.quantize_per_tensor.default": {
        "": Case(
            lambda x: torch.sin(x * 200.0), (IMAGE,), bits=16,
            reason="24 tables follow within 1 step",
        )
    },
    "aten.convolution.default": {
        "weights in floating point": Case(
            _float_weight, (IMAGE,), (), ((4, 6, 1, 1),), reason="symmetric int8"
        ),
        "scales by input channel": Case(
            _conv(), (IMAGE,), (((8, 6, 3, 3), 1),), reason="scales by output channel"
        ),
        "three dimensions": Case(
            lambda x, w: F.conv3d(x, w), ((1, 2, 4, 4, 4),), (((3, 2, 2, 2, 2), 0),),
            reason="1-D or 2-D convolution; got 3-D",
        ),
        "depthwise, stride 5": Case(
            _conv(groups=6, stride=5), ((1, 6, 17, 17),), (((6, 1, 5, 5), 0),), families=NOT_U85,
            reason="strides up to 3",
        ),
        "transposed, stride 3": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, 3),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), families=NOT_U85, reason="strides up to 3",
        ),
        "transposed, steps of two lengths": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, (1, 2), (0, 1)),
            ((1, 6, 5, 8),), (((6, 4, 1, 4), 1),), families=NOT_U85,
            reason="equal strides if transposed",
        ),
        "transposed, dilated": Case(
            lambda x, w: F.conv_transpose2d(x, w, dilation=2),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), reason="without dilation",
        ),
        "transposed, 16 bits": Case(
            lambda x, w: F.conv_transpose2d(x, w, None, 2),
            ((1, 6, 5, 4),), (((6, 4, 3, 3), 1),), bits=16, families=NOT_U85, reason="in 8 bits",
        ),
    },
    "aten.div.Tensor": {"": pair(torch.div, reason="a number or constant as divisor")},
    "aten.bmm.default": {
        "16 bits": Case(
            torch.bmm,
            ((2, 5, 12), (2, 12, 4)),
            bits=16,
            families=("U55", "U65"),
            reason="both computed matrices of 8 bits, or of 16 on U85",
        )
    },
    "aten.max_pool2d_with_indices.default": {
        "dilation": Case(
            lambda x: aten.max_pool2d_with_indices(x, [2, 2], dilation=[2, 2])[0], (IMAGE,),
            reason="without dilation",
        )
    },
    "aten.avg_pool2d.default": {
        "large, with padding that is not counted": Case(
            lambda x: F.avg_pool2d(x, (2, 9), 1, 1, count_include_pad=False),
            ((1, 2, 6, 20),), families=NOT_U85, reason="windows of at most 8 x 8 where padding",
        ),
        "large steps, another scale": Case(
            lambda x: F.avg_pool2d(x, 4), ((1, 2, 8, 8),), families=NOT_U85,
            reason="strides up to 3 where scale or divisor change",
        ),
        "large": Case(lambda x: F.avg_pool2d(x, 65), ((1, 1, 65, 65),), reason="at most 64 x 64"),
    },
    "aten.upsample_bilinear2d.vec": {
        "": Case(
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,),
            families=NOT_U85, reason="only on U85",
        ),
        "by another number than its size's": Case(
            lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (IMAGE,),
            families=U85, reason="quotients of the sizes; got",
        ),
    },
    "aten.flip.default": {
        "": Case(
            lambda x: x.flip(1), ((2, 65),), families=NOT_U85, reason="at most 64, except on U85"
        )
    },
    "aten.index_select.default": {
        "computed": Case(
            lambda x: x.index_select(0, x.argmax(1)), ((5, 5),),
            families=NOT_U85, reason="indices of int32",
        ),
        "many": Case(
            lambda x: x.index_select(1, torch.arange(130)[::2]), ((2, 130),),
            families=NOT_U85, reason="at most 64 runs, except on U85; got 65",
        ),
    },
    "aten.index.Tensor": {
        "two dimensions": Case(
            lambda x: x[torch.tensor([0, 1]), :, torch.tensor([2, 0])], ((3, 2, 5),),
            families=NOT_U85, reason="of one dimension, except on U85",
        ),
    },
    "aten.index_put.default": {
        "accumulate": Case(
            lambda x, y: x.index_put((torch.tensor([2, 0]),), y, True), ((3, 5), (2, 5)),
            families=NOT_U85, reason="other indices on ethos-u",
        ),
        "many sums": Case(
            lambda x, y: x.index_put((torch.arange(65),), y, True), ((65, 2), (65, 2)),
            families=U85, reason="at most that many; got 65 sums",
        ),
        "two dimensions": Case(
            lambda x, y: x.index_put((torch.tensor([0, 1]), torch.tensor([2, 0])), y),
            ((3, 5), (2,)), families=NOT_U85, reason="other indices on ethos-u",
        ),
    },
    "aten.upsample_nearest2d.vec": {
        "by another number than its size's": Case(
            lambda x: F.interpolate(x, scale_factor=1.7), (IMAGE,),
            reason="quotients of the sizes; got",
        ),
        "many": Case(
            lambda x: F.interpolate(x, size=(15, 66)), ((1, 3, 10, 8),), families=NOT_U85,
            reason="at most 64 rows and columns, except on U85",
        ),
    },
    "aten.gt.Tensor": {
        "": pair(torch.gt, boolean=True, families=NOT_U85, reason="others have no booleans")
    },
    "aten.cumsum.default": {
        "": Case(lambda x: x.cumsum(1), ((2, 1025),), reason="of at most 1024 elements; got 1025")
    },
    "aten.argmax.default": {
        "int64": Case(lambda x: x.argmax(1), (IMAGE,), boolean=True, reason="read as int32"),
        "of all": Case(
            lambda x: x.argmax().int(), (IMAGE,), boolean=True, reason="a dimension of several"
        ),
        "many": Case(
            lambda x: x.argmax(1).int(), ((2, 128),), boolean=True, families=NOT_U85,
            reason="at most 127 elements, except on U85",
        ),
    },
    "aten.cumprod.default": {
        "": Case(lambda x: x.cumprod(1), (IMAGE,), reason="an operator of the Ethos-U table")
    },
}  # fmt: skip
