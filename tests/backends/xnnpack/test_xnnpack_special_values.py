"""Elementwise rows at special values: what eager PyTorch gives, or what the row declares; with
each set of instructions that XNNPACK has kernels for on x86."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from xnnpack_bounds import SMALLEST, bound_of

import lesser_cpu
import special_values
from closeness import allowed, assert_bounded
from edgewise.backends.xnnpack.lowering.accuracy import INVERSE_ROOT, LOGARITHM, ROOT
from edgewise.backends.xnnpack.operators import TABLE
from edgewise.partition.accuracy import Deviation
from edgewise.runtime import _native
from support import Fn, lower, operators, run_ours

F32, F16 = torch.float32, torch.float16
ROWS = {row.name: row for row in TABLE.definitions}

UNARY: dict[str, list[Callable[..., torch.Tensor]]] = {
    "abs": [torch.abs],
    "ceil": [torch.ceil],
    "celu": [lambda x: F.celu(x, 0.7), F.celu],
    "clamp": [lambda x: x.clamp(-1, 2), lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=1e4)],
    "clone": [lambda x: x.clone().abs()],
    "cos": [torch.cos],
    "cosh": [torch.cosh],
    "elu": [F.elu, lambda x: F.elu(x, 0.7)],
    "exp": [torch.exp],
    "exp2": [torch.exp2],
    "expm1": [torch.expm1],
    "floor": [torch.floor],
    "gelu": [F.gelu, lambda x: F.gelu(x, approximate="tanh")],
    "hardsigmoid": [F.hardsigmoid],
    "hardswish": [F.hardswish],
    "hardtanh": [F.hardtanh],
    "leaky_relu": [lambda x: F.leaky_relu(x, 0.25)],
    "log": [torch.log],
    "log10": [torch.log10],
    "log2": [torch.log2],
    "log_sigmoid": [F.logsigmoid],
    "mish": [F.mish],
    "neg": [torch.neg],
    "pow": [lambda x, n=n: x**n for n in (2, 0.5, 3, 4, -0.5, -1, -2)],
    "prelu": [lambda x: F.prelu(x, torch.tensor([0.25], dtype=x.dtype))],
    "reciprocal": [torch.reciprocal],
    "relu": [torch.relu],
    "rsqrt": [torch.rsqrt],
    "selu": [F.selu],
    "sigmoid": [torch.sigmoid],
    "silu": [F.silu],
    "sin": [torch.sin],
    "sinh": [torch.sinh],
    "softplus": [F.softplus, lambda x: F.softplus(x, 2.5), lambda x: F.softplus(x, 0.8, 15)],
    "softshrink": [lambda x: F.softshrink(x, 0.25)],
    "sqrt": [torch.sqrt],
    "tanh": [torch.tanh],
}
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "clamp_tensor": lambda x, y: x.clamp(min=y),
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "sub": torch.sub,
}
CASES = {
    f"{name} {i} {type_}".replace(" 0 ", " "): (name, function, type_)
    for type_ in (F32, F16)
    for name, functions in {**UNARY, **{n: [f] for n, f in BINARY.items()}}.items()
    for i, function in enumerate(functions)
}


OPEN_SIGN = {"gelu", "pow", "relu"}
"""Of -0 eager's vector loops and its scalar ones give zeros of either sign; so do its float32 and
float16 of -0 ** 0.5, and its gelu on CPUs with AVX-512 and on those without."""


def inputs_of(name: str, type_: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Every number of float16. Of float32 special values, others of every magnitude, denormal
    ones too, and those where exponentials turn."""
    if name in BINARY:
        given = special_values.pairs(type_), random_pairs(type_)
        return tuple(map(torch.cat, zip(*given, strict=True)))
    if type_ == F16:
        return (special_values.every(type_),)
    near = [torch.linspace(-end, end, 12001) for end in (4, 12, 150)]
    return (
        torch.cat([special_values.special(type_), special_values.by_bits(type_, 65536), *near]),
    )


def random_pairs(type_: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of every magnitude beside such, and each beside numbers around 1."""
    generator = torch.Generator().manual_seed(1)
    wide = special_values.by_bits(type_, 6000)
    wide = wide[torch.randperm(len(wide), generator=generator)]
    near = (torch.rand(len(wide), generator=generator) * 40 - 20).to(type_)
    return torch.cat([wide, wide, near]), torch.cat([wide.flip(0), near, near.flip(0)])


def without_denormals(x: torch.Tensor) -> torch.Tensor:
    """Zeros for denormal numbers, of the same sign."""
    return torch.where(x.abs() < SMALLEST, x * 0.0, x)


def mended(level: str) -> set[object]:
    """Where XNNPACK's kernels deviate, but ours run instead."""
    level = _native.cpu_level() if level == "this CPU" else level
    roots = {ROOT.at, INVERSE_ROOT.at}
    with_avx2 = {*roots, LOGARITHM.at}
    ours = {"avx2": with_avx2, "avxvnni": with_avx2, "avx512": roots, "avx512vnni": roots}
    return ours.get(level, set())


def deviates(
    name: str,
    function: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    level: str,
) -> torch.Tensor:
    """Where the row declares something else than PyTorch's result, for this exponent or for all."""
    declared: tuple[Deviation, ...] = ROWS[name].deviations
    if name == "pow":
        (exponent,) = function.__defaults__ or ()
        declared = tuple(d for d in declared if d.text.startswith(f"exponent {exponent:g}:"))
    found = torch.zeros(inputs[0].shape, dtype=torch.bool)
    for deviation in declared:
        if deviation.at in mended(level):
            continue
        found |= deviation.at(*(x.double() for x in inputs))
    return found


class Made:
    """Every case's program and inputs, and what they give on a level of instructions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = {}
        for case, (name, function, type_) in CASES.items():
            inputs = inputs_of(name, type_)
            self.programs[case] = lower(Fn(function), inputs), inputs
        self._on: dict[str, dict[str, torch.Tensor]] = {}

    def on(self, level: str) -> dict[str, torch.Tensor]:
        if level not in self._on:
            self._on[level] = dict(zip(CASES, self._run(level), strict=True))
        return self._on[level]

    def _run(self, level: str) -> list[torch.Tensor]:
        if level == "this CPU":
            return [run_ours(made.buffer, inputs)[0][0] for made, inputs in self.programs.values()]
        programs = [
            (made.buffer, [x.numpy() for x in inputs]) for made, inputs in self.programs.values()
        ]
        return list(map(torch.from_numpy, lesser_cpu.run(level, self.folder, programs)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("special"))


@pytest.mark.parametrize("level", ["this CPU", *lesser_cpu.LEVELS])
@pytest.mark.parametrize("case", CASES)
def test_special_values(case: str, level: str, made: Made) -> None:
    name, function, type_ = CASES[case]
    program, inputs = made.programs[case]
    assert operators(program.buffer) == ["delegate"]
    got = made.on(level)[case]
    bound = bound_of(program, str(type_).removeprefix("torch."))
    # NaN, infinities and zeros as in the type itself or in float64, the rest as in the latter.
    held, exact = function(*inputs), function(*(x.double() for x in inputs))
    edge = ~held.isfinite() | (held == 0) | (exact.abs() > torch.finfo(type_).max)
    same = (got == held) | (got.isnan() & held.isnan())
    wanted = torch.where(edge & same, held.double(), exact)
    if type_ == F32:  # a denormal number may be taken for zero, where it is read
        read = tuple(map(without_denormals, inputs))
        flushed = function(*read).double()
        limit = allowed(flushed, bound, type_, _terms(function, inputs))
        wanted = torch.where((got.double() - flushed).abs() <= limit, flushed, wanted)
        same = (got.double() == flushed) | (got.isnan() & flushed.isnan())
        wanted = torch.where(same, flushed, wanted)
    limit = allowed(wanted.nan_to_num(0, 0, 0), bound, type_, _terms(function, inputs))
    free = deviates(name, function, inputs, level)
    wanted = torch.where(free, got.double(), wanted)
    assert_bounded(got, wanted, limit, inputs=inputs, where=name, why=str(bound))
    # Zeros of a wrong sign, where the result is no rounded or flushed one.
    zeros = (held == 0) & (got == 0) & (exact == 0) & ~free
    zeros &= name not in OPEN_SIGN
    zeros &= ~torch.stack([(x != 0) & (x.abs() < SMALLEST) for x in inputs]).any(0)
    wrong = zeros & (held.signbit() != got.signbit())
    places = [tuple(float(x[i]) for x in inputs) for i in wrong.nonzero()[:5, 0]]
    assert not places, f"{name}: a zero of the other sign; inputs {places}"


def _terms(function: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Sum of |x * dy/dx| for each element; zero where it is not finite."""
    points = [x.double().requires_grad_() for x in inputs]
    slopes = torch.autograd.grad(function(*points).sum(), points, allow_unused=True)
    total = torch.zeros(inputs[0].shape, dtype=torch.float64)
    for x, slope in zip(points, slopes, strict=True):
        if slope is not None:
            total += (x.detach() * slope).abs().nan_to_num(0, 0, 0)
    return total
