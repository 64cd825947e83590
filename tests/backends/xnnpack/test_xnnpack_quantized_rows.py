"""Quantized operators one by one: integers in, integers out, at most a step from PT2E's.

The reference dequantizes, computes in float32, and quantizes. Both get the same integers, so
that no difference comes from the operators before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed
import torch.nn.functional as F
from quantized import float_kinds, kinds_of, lower, output_step, pt2e, reference, trained
from xnnpack_bounds import rows_in

from closeness import assert_bounded
from edgewise.backends.xnnpack import XNNPACKQuantizer
from support import RUNTIMES, Fn, operators

pytestmark = pytest.mark.matrix

qd = torch.ops.quantized_decomposed
I8 = torch.int8
BOTH = ["ours", pytest.param("peer", marks=pytest.mark.peer)]
Scale = tuple[float, int]


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


LINE = torch.linspace(-4, 5, 1024).reshape(4, 256)  # every integer, some of them often
OTHER = t(4, 256)
IMAGE = t(1, 8, 9, 7)


@dataclass(frozen=True)
class Row:
    """kinds: nodes that must be there. floats: those that compute in floating point, because
    XNNPACK has no kernel for integers. same: the result has its operand's scale. fixed: the
    result's scale, where the quantizer sets it."""

    function: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...] = (LINE,)
    kinds: tuple[str, ...] = ()
    floats: frozenset[str] = field(default_factory=frozenset)
    same: bool = False
    fixed: Scale | None = None


def image(function: Callable[..., torch.Tensor], *kinds: str, floats: Any = ()) -> Row:
    return Row(function, (IMAGE,), kinds, frozenset(floats), same=True)


def resize(size: tuple[int, int], mode: str, **options: Any) -> Callable[..., torch.Tensor]:
    return lambda x: F.interpolate(x, size, mode=mode, **options)


# Data movers that torch decomposes, each with something behind it that computes.
MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "detach": lambda x: x.detach(),
    "expand_as": lambda x: x[:1].expand_as(x),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
    "flip": lambda x: x.flip(0),
    "movedim and moveaxis": lambda x: x.movedim(0, 1).moveaxis(1, 0).movedim(1, 0),
    "narrow": lambda x: x.narrow(1, 3, 100),
    "repeat and tile": lambda x: x.repeat(2, 1).tile(1, 3),
    "roll": lambda x: x.roll(5, 1),
    "unfold": lambda x: x.unfold(1, 40, 20),
    "swapaxes and swapdims": lambda x: x.unsqueeze(0).swapaxes(0, 1).swapdims(1, 2),
    "unflatten": lambda x: x.unflatten(1, (8, 32)),
    "view_as and reshape_as": lambda x: x.view_as(x.reshape(8, 128)).reshape_as(x.t()),
}
IMAGE_MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "channel_shuffle": lambda x: F.channel_shuffle(x, 4),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, :, :8, :6], 2),
}

ROWS = {
    "add": Row(torch.add, (LINE, OTHER), ("Add",)),
    "add a number": Row(lambda x: x + 0.7, kinds=("Add",)),
    "sub": Row(torch.sub, (LINE, OTHER), ("Subtract",)),
    "sub a row": Row(torch.sub, (LINE, OTHER[0]), ("Subtract",)),
    "mul": Row(torch.mul, (LINE, OTHER), ("Multiply",)),
    "mul by a number": Row(lambda x: x * -3, kinds=("Multiply",)),
    "add and relu": Row(lambda x, y: (x + y).relu(), (LINE, OTHER), ("Add",)),
    "mul and relu": Row(lambda x, y: (x * y).relu(), (LINE, OTHER), ("Multiply",)),
    "cat": Row(lambda x, y: torch.cat([x, y]), (LINE, OTHER), ("Concatenate2",)),
    "concat and concatenate": Row(
        lambda x: torch.concatenate([torch.concat([x, x]), x]), kinds=("Concatenate2",), same=True
    ),
    "mean of an image": image(lambda x: x.mean([2, 3], keepdim=True)),
    "mean of rows": Row(lambda x: x.mean(-1), same=True),
    "avg_pool1d": Row(
        lambda x: F.avg_pool1d(x, 4), (LINE[:, :64].unsqueeze(0).contiguous(),), same=True
    ),
    "avg_pool1d that does not count padding": Row(
        lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
        (LINE[:, :64].unsqueeze(0).contiguous(),),
        ("FullyConnected",),
        same=True,
    ),
    "avg_pool2d": image(lambda x: F.avg_pool2d(x, 2), "DepthwiseConv2d"),
    "avg_pool2d with padding": image(lambda x: F.avg_pool2d(x, 3, 2, 1), "DepthwiseConv2d"),
    "avg_pool2d that does not count padding": image(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "FullyConnected",
    ),
    "avg_pool2d with ceil_mode": image(
        lambda x: F.avg_pool2d(x, 3, ceil_mode=True), "FullyConnected"
    ),
    "avg_pool2d with ceil_mode and padding": image(
        lambda x: F.avg_pool2d(x, 3, 3, 1, ceil_mode=True), "FullyConnected"
    ),
    "avg_pool2d with ceil_mode, padding that does not count": image(
        lambda x: F.avg_pool2d(x, 3, 3, 1, ceil_mode=True, count_include_pad=False),
        "FullyConnected",
    ),
    "adaptive_avg_pool2d": image(lambda x: F.adaptive_avg_pool2d(x, (3, 7)), "DepthwiseConv2d"),
    "adaptive_avg_pool2d to one": image(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive_avg_pool1d": Row(
        lambda x: F.adaptive_avg_pool1d(x, 4), (LINE[:, :64].unsqueeze(0).contiguous(),), same=True
    ),
    "max_pool1d": Row(
        lambda x: F.max_pool1d(x, 4), (LINE[:, :64].unsqueeze(0).contiguous(),), same=True
    ),
    "max_pool2d": image(lambda x: F.max_pool2d(x, 2), "MaxPooling2d"),
    "bilinear, twice the size": image(resize((18, 14), "bilinear"), "StaticResizeBilinear2D"),
    "bilinear": image(resize((13, 20), "bilinear"), "StaticResizeBilinear2D"),
    "bilinear with corners": image(
        resize((13, 20), "bilinear", align_corners=True), "StaticResizeBilinear2D"
    ),
    "bilinear, with a scale of its own": Row(
        resize((13, 20), "bilinear"), (IMAGE,), ("StaticResizeBilinear2D",)
    ),
    "linear": Row(
        lambda x: F.interpolate(x, 100, mode="linear"),
        (LINE[:, :64].unsqueeze(0).contiguous(),),
        ("StaticResizeBilinear2D",),
        same=True,
    ),
    "nearest": image(resize((18, 14), "nearest"), "Multiply"),
    "relu": Row(F.relu, kinds=("Clamp",), same=True),
    "relu, with a scale of its own": Row(F.relu, kinds=("Clamp",)),
    "relu6": Row(F.relu6, kinds=("Clamp",), same=True),
    "hardtanh": Row(lambda x: F.hardtanh(x, -0.2, 0.3), kinds=("Clamp",), same=True),
    "clamp": Row(lambda x: x.clamp(-1, 2), kinds=("Clamp",)),
    "pad": Row(lambda x: F.pad(x, (1, 2)), kinds=("StaticConstantPad",), same=True),
    "constant_pad_nd": Row(
        lambda x: torch.constant_pad_nd(x, (1, 2), 1.0), kinds=("StaticConstantPad",), same=True
    ),
    "permute": Row(lambda x: x.permute(1, 0), kinds=("StaticTranspose",), same=True),
    "transpose": Row(lambda x: x.transpose(0, 1), kinds=("StaticTranspose",), same=True),
    "t": Row(lambda x: x.t(), kinds=("StaticTranspose",), same=True),
    "slice": Row(lambda x: x[1:3, ::1], kinds=("StaticSlice",), same=True),
    "select": Row(lambda x: x.select(0, 2), same=True),
    "view": Row(lambda x: x.view(2, 512).abs(), same=True),
    "reshape": Row(lambda x: x.reshape(2, 512).abs(), same=True),
    "flatten": Row(lambda x: x.flatten().abs(), same=True),
    "squeeze and unsqueeze": Row(
        lambda x: x.unsqueeze(1).squeeze(1).unsqueeze(0).squeeze((0,)).abs(), same=True
    ),
    "expand": Row(lambda x: x[:1].expand(5, 256).abs(), same=True),
    **{name: Row(lambda x, move=move: move(x).abs(), same=True) for name, move in MOVES.items()},
    **{
        name: Row(lambda x, move=move: move(x).abs(), (IMAGE,), same=True)
        for name, move in IMAGE_MOVES.items()
    },
    "clone, contiguous, dropout": Row(
        lambda x: F.dropout(x.t().contiguous().clone(), training=False).abs(), same=True
    ),
    "sigmoid": Row(torch.sigmoid, kinds=("Sigmoid",), fixed=(1 / 256, -128)),
    "tanh": Row(torch.tanh, kinds=("Tanh",), fixed=(1 / 128, 0)),
    "hardsigmoid": Row(F.hardsigmoid, kinds=("Add",), fixed=(1 / 256, -128)),
    "hardsigmoid, with a scale of its own": Row(F.hardsigmoid, kinds=("Add",)),
    "hardswish": Row(F.hardswish, kinds=("Hardswish",)),
    "gelu": Row(F.gelu, kinds=("Gelu",)),
    "gelu by tanh": Row(lambda x: F.gelu(x, approximate="tanh"), kinds=("Gelu",)),
    "silu": Row(F.silu, kinds=("Sigmoid", "Multiply")),
    "elu": Row(lambda x: F.elu(x, 2.0), kinds=("ELU",)),
    "leaky_relu": Row(lambda x: F.leaky_relu(x, 0.2), kinds=("LeakyReLU",)),
    # What the quantizer leaves alone, and others may not.
    "exp": Row(torch.exp, kinds=("Exp",)),
    "abs": Row(torch.abs, kinds=("Abs",)),
    "neg": Row(torch.neg, kinds=("Negate",)),
    "square": Row(torch.square, kinds=("Square",)),
    "sin": Row(torch.sin, kinds=("Sin",)),
    "cos": Row(torch.cos, kinds=("Cos",)),
    "floor": Row(torch.floor, kinds=("Floor",)),
    "ceil": Row(torch.ceil, kinds=("Ceiling",)),
    "log": Row(torch.log, (LINE.abs() + 0.1,), ("Log",)),
    "sqrt": Row(torch.sqrt, (LINE.abs(),), ("SquareRoot",)),
    "softmax": Row(lambda x: x.softmax(-1), (LINE[:, :16],), ("Softmax",), frozenset({"Softmax"})),
}


def scale_of(low: float, high: float) -> Scale:
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    return scale, min(max(round(-128 - low / scale), -128), 127)


def rounded(x: torch.Tensor, scale: Scale) -> torch.Tensor:
    integers = qd.quantize_per_tensor(x, *scale, -128, 127, I8)
    return qd.dequantize_per_tensor(integers, *scale, -128, 127, I8)


# Inputs, and the share of their range that can be stored: zero points in between and at an end.
VALUES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "both signs": (lambda x: x.contiguous(), 1.0),
    "one sign, saturating": (lambda x: x.abs().contiguous(), 0.6),
}


def alone(row: Row, values: str) -> tuple[torch.export.ExportedProgram, Any, float]:
    """The program, its inputs, and the step of its result."""
    change, share = VALUES[values]
    inputs = tuple(change(x) for x in row.inputs)
    scales = [scale_of(share * float(x.min()), share * float(x.max())) for x in inputs]
    if row.function is ROWS["cat"].function:
        scales = [scales[0]] * 2
    result = row.function(*(rounded(x, s) for x, s in zip(inputs, scales, strict=True)))
    out = row.fixed or scale_of(float(result.min()), float(result.max()))
    if row.same:
        out = scales[0]

    def function(*xs: torch.Tensor) -> torch.Tensor:
        return rounded(row.function(*(rounded(x, s) for x, s in zip(xs, scales, strict=True))), out)

    return torch.export.export(Fn(function), inputs), inputs, out[0]


@pytest.fixture(scope="module")
def made() -> dict[Any, Any]:
    """Each program is lowered once for both runtimes."""
    return {}


def check(
    program: torch.export.ExportedProgram, lowered: Any, inputs: Any, step: float, runtime: str
) -> None:
    """Each element is as many steps from the reference as the rows declare, at most."""
    (got,) = RUNTIMES[runtime](lowered.buffer, inputs)
    (want,) = reference(program, inputs)
    declared = [row.accuracies().get("int8") for row in rows_in(lowered)]
    steps = max(one.steps or 0 for one in declared if one is not None)
    bound = torch.full(want.shape, steps * step * 1.001)  # in float32, with its own rounding
    assert_bounded(got[0], want, bound, inputs=inputs, why=f"{steps} steps of {step:g}")


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, values: str, runtime: str, made: dict[Any, Any]) -> None:
    row = ROWS[name]
    if (name, values) not in made:
        program, inputs, step = alone(row, values)
        made[name, values] = program, inputs, step, lower(program)
    program, inputs, step, lowered = made[name, values]
    pte = lowered.buffer
    assert operators(pte) == ["delegate"]
    assert set(row.kinds) <= set(kinds_of(pte))
    assert set(float_kinds(pte)) - {"StaticTranspose", "StaticReshape"} <= row.floats
    check(program, lowered, inputs, step, runtime)


def zero_channel(module: torch.nn.Module) -> torch.nn.Module:
    """The last output channel has no weights but a bias."""
    with torch.no_grad():
        transposed = isinstance(module, (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d))
        module.weight.select(1 if transposed else 0, -1).zero_()
    return module


WEIGHTED: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor]] = {
    "linear": (lambda: torch.nn.Linear(8, 6), t(3, 8)),
    "conv1d": (lambda: torch.nn.Conv1d(8, 6, 3, padding=1), t(2, 8, 11)),
    "conv2d": (lambda: torch.nn.Conv2d(8, 6, 3, 2, 1), IMAGE),
    "conv2d of groups": (lambda: torch.nn.Conv2d(8, 6, 3, groups=2, dilation=2), IMAGE),
    "depthwise": (lambda: torch.nn.Conv2d(8, 16, 3, groups=8), IMAGE),
    "conv_transpose1d": (lambda: torch.nn.ConvTranspose1d(8, 6, 3, 2), t(2, 8, 11)),
    "conv_transpose2d": (lambda: torch.nn.ConvTranspose2d(8, 6, 3, 2, 1, 1), IMAGE),
    "conv_transpose1d of groups": (
        lambda: torch.nn.ConvTranspose1d(8, 12, 3, 2, groups=4),
        t(2, 8, 11),
    ),
    "conv_transpose2d of groups": (
        lambda: torch.nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2),
        IMAGE,
    ),
    "dilated transposed": (
        lambda: torch.nn.ConvTranspose2d(8, 6, 3, 2, 1, dilation=2),
        IMAGE,
    ),
    "depthwise transposed": (lambda: torch.nn.ConvTranspose2d(8, 16, 3, 2, groups=8), IMAGE),
}
BEHIND: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "": lambda layer: layer,
    "relu": lambda layer: torch.nn.Sequential(layer, torch.nn.ReLU()),
    "hardsigmoid": lambda layer: torch.nn.Sequential(layer, torch.nn.Hardsigmoid()),
}


@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    ("behind", "per_channel"), [("", False), *((name, True) for name in BEHIND)]
)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights(
    name: str, behind: str, per_channel: bool, values: str, runtime: str, made: dict[Any, Any]
) -> None:
    make, x = WEIGHTED[name]
    change, share = VALUES[values]
    key = name, behind, per_channel, values
    if key not in made:
        torch.manual_seed(3)
        module = BEHIND[behind](zero_channel(make()))
        inputs = (change(x),)
        program = pt2e(
            module, inputs, per_channel=per_channel, ours=True, calibration=(inputs[0] * share,)
        )
        made[key] = program, inputs, lower(program)
    program, inputs, lowered = made[key]
    pte = lowered.buffer
    assert operators(pte) == ["delegate"]
    assert set(float_kinds(pte)) <= {"StaticTranspose", "StaticReshape"}
    check(program, lowered, inputs, output_step(program), runtime)


TRAINED = {
    **WEIGHTED,
    "conv2d, norm and relu": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(8, 6, 3, bias=False), torch.nn.BatchNorm2d(6), torch.nn.ReLU()
        ),
        t(4, 8, 9, 7),
    ),
    "linear and relu": (
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU()),
        t(3, 8),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("runtime", BOTH)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", TRAINED)
def test_weights_that_were_trained_with_rounding(
    name: str, per_channel: bool, runtime: str, made: dict[Any, Any]
) -> None:
    make, x = TRAINED[name]
    key = "trained", name, per_channel
    if key not in made:
        torch.manual_seed(3)
        program = trained(make(), (x,), per_channel=per_channel)
        made[key] = program, lower(program)
    program, lowered = made[key]
    pte = lowered.buffer
    assert operators(pte) == ["delegate"]
    assert set(float_kinds(pte)) <= {"StaticTranspose", "StaticReshape"}
    check(program, lowered, (x,), output_step(program), runtime)


def test_everything_that_the_quantizer_knows_has_a_row() -> None:
    known = {name_of(target) for target in XNNPACKQuantizer.table}
    programs = [torch.export.export(Fn(row.function), row.inputs) for row in ROWS.values()]
    programs += [torch.export.export(make(), (x,)) for make, x in WEIGHTED.values()]
    nodes = [n for program in programs for n in program.graph.nodes if n.op == "call_function"]
    shown = {name_of(node.target) for node in nodes}
    assert known - shown == set()


def name_of(target: Any) -> str:
    """Of views, copies are spellings."""
    return str(target).split(".")[1].removesuffix("_copy").strip("_")
