"""Float16: the accepted cases of the operator table and the example models as `.half()` of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from xnnpack_bounds import assert_as_promised
from xnnpack_cases import ACCEPTED, Fn

import lesser_cpu
import special_values
from edgewise.emit import ExecutorchBackendConfig
from support import (
    RUNTIMES,
    assert_close,
    eager,
    eager64,
    lower,
    operators,
    payloads,
    run_ours,
)

TO_EAGER, TO_FLOAT64 = 1e-2, 2e-2
"""Allowed differences from eager float16 and from float64, relative to the largest output: some
twenty units of float16's last place, for sums and approximations of another kind."""

CASTS = {
    ("bmm", "baddbmm"),
    ("conv2d", "reflected padding"),
    ("index", "reflected padding"),
    ("index", "replicated padding"),
    ("sum", "product of matrix and vector"),
    ("sum", "product of vectors"),
}
"""PyTorch computes these in float32, by conversions that stay outside of the delegate."""

NOT_IN_FLOAT16 = {
    ("where", "masked_fill"),
    ("linalg_vector_norm", "zeros"),
    *(("avg_pool3d", name) for name in ACCEPTED["avg_pool3d"]),
}
"""The number that is filled in is more than float16 has; the epsilon is less, and eager, too,
divides by zero; PyTorch averages no volumes in float16."""

PEER_DIFFERS = {("sqrt", "zero, negative")}
"""The root of zero is not a number in its float16 kernel for this CPU."""

SMALL = ExecutorchBackendConfig(runtime="edgewise")
"""Earlier releases of ExecuTorch take convolutions' weights in float32 only."""


def half(x: Any) -> Any:
    return x.half() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


CASES = [
    pytest.param(row, name, id=f"{row}: {name}" if name else row)
    for row, cases in ACCEPTED.items()
    for name in cases
    if (row, name) not in NOT_IN_FLOAT16
]


@pytest.fixture(scope="module")
def lowered() -> Callable:
    """Module, inputs and program of a case; each is lowered once for both runtimes."""
    made: dict[tuple[str, str], tuple] = {}

    def once(row: str, name: str) -> tuple:
        if (row, name) not in made:
            module, inputs = ACCEPTED[row][name]
            module, inputs = copy.deepcopy(module).half(), tuple(half(x) for x in inputs)
            made[row, name] = module, inputs, lower(module, inputs)
        return made[row, name]

    return once


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize(("row", "name"), CASES)
def test_accepted(row: str, name: str, runtime: str, lowered: Callable) -> None:
    module, inputs, program = lowered(row, name)
    lesser_cpu.skip_logarithm_of_infinity(row, inputs, runtime)
    found = operators(program.buffer)
    if (row, name) in CASTS:
        found = [o for o in found if not o.endswith("_to_dim_order_copy.out")][:1]
    assert found == ["delegate"], program.delegation_report()
    if runtime == "peer" and (row, name) in PEER_DIFFERS:
        pytest.skip("the peer's XNNPACK computes it differently")
    (outputs,) = RUNTIMES[runtime](program.buffer, inputs)
    rounded = eager(copy.deepcopy(module), inputs)
    assert [y.dtype for y in outputs] == [y.dtype for y in rounded]
    assert_as_promised(program, outputs, module, inputs, runtime=runtime)


def float_constants(pte: bytes) -> list[tuple[int, int]]:
    """Datatype and number of elements of each constant of the payloads; 2 is float16."""
    found = []
    for graph in payloads(pte):
        for value in graph.xvalues:
            member = value.xvalue_union
            tensor = member[1] if isinstance(member, tuple) else member
            if tensor.constant_buffer_idx:
                found.append((tensor.datatype, torch.Size(tensor.dims).numel()))
    return found


def test_weights_are_16_bit_in_the_file() -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(16 * 36, 40), torch.nn.LayerNorm(40),
    )  # fmt: skip
    x = torch.randn(1, 3, 8, 8)
    full = lower(net, (x,))
    small = lower(copy.deepcopy(net).half(), (x.half(),), config=SMALL)
    wide = [count for datatype, count in float_constants(small.buffer) if datatype != 2]
    assert sum(wide) < 100  # 1/N for the means
    assert len(small.buffer) < 0.55 * len(full.buffer)


# --- beside float32 ----------------------------------------------------------------------

WEIGHT, BIAS = torch.linspace(0.5, 2, 8), torch.linspace(-1, 1, 8)

MIXED = {
    "cat": (Fn(lambda x, y: torch.cat([x, y, x * 2], 1) * 2), ["delegate"]),
    "cat with a constant": (
        Fn(lambda x, y, w: torch.cat([x, w[None]]) * 2, w=WEIGHT),
        ["delegate"],
    ),
    "stack": (Fn(lambda x, y: torch.stack([y, x])), ["delegate"]),
    "slice_scatter": (Fn(lambda x, y: torch.slice_scatter(y, x[:, :3], 1, 2, 5)), ["delegate"]),
    "layer_norm": (
        Fn(lambda x, y, w, b: F.layer_norm(x, (8,), w, b), w=WEIGHT, b=BIAS),
        ["delegate"],
    ),
    "group_norm": (
        Fn(lambda x, y, w, b: F.group_norm(x, 2, w, b), w=WEIGHT, b=BIAS),
        ["delegate"],
    ),
    "rms_norm": (Fn(lambda x, y, w: F.rms_norm(x, (8,), w), w=WEIGHT), ["delegate"]),
    "add": (Fn(lambda x, y: x + y), ["aten::add.out"]),
}
"""Functions of float16 and float32, and the file's operators."""


@pytest.mark.parametrize("runtime", ["ours", pytest.param("peer", marks=pytest.mark.peer)])
@pytest.mark.parametrize("name", MIXED)
def test_beside_float32(name: str, runtime: str) -> None:
    module, expected = MIXED[name]
    inputs = (torch.rand(3, 8).half(), torch.rand(3, 8))
    program = lower(module, inputs)
    assert operators(program.buffer) == expected
    (outputs,) = RUNTIMES[runtime](program.buffer, inputs)
    (wanted,) = eager(module, inputs)
    assert outputs[0].dtype == wanted.dtype
    assert_close(outputs, [wanted], 2e-3)


# --- numbers at the edges of float16 -----------------------------------------------------


def test_layer_norm_of_large_numbers_does_not_overflow() -> None:
    """Squares of what float16 holds are more than it holds."""
    norm = torch.nn.LayerNorm(64).half()
    x = (torch.randn(3, 64) * 10000).clamp(-60000, 60000).half()
    (outputs,) = run_ours(lower(norm, (x,)).buffer, (x,))
    assert_close(outputs, eager64(norm, (x,)), 2e-3)


def test_epsilons_below_float16_count() -> None:
    norm = torch.nn.LayerNorm(64, eps=1e-12).half()
    x = (torch.randn(3, 64) * 1e-3).half()
    (outputs,) = run_ours(lower(norm, (x,)).buffer, (x,))
    assert_close(outputs, eager64(norm, (x,)), 2e-3)


@pytest.mark.parametrize("weight", [None, WEIGHT.half(), WEIGHT])
def test_the_epsilon_that_rms_norm_has_by_itself(weight: torch.Tensor | None) -> None:
    """Numbers whose squares are less than float16's own epsilon."""
    norm = Fn(lambda x, w=None: F.rms_norm(x, (8,), w), **({} if weight is None else {"w": weight}))
    x = (torch.rand(3, 8) * 1e-2).half()
    (outputs,) = run_ours(lower(norm, (x,)).buffer, (x,))
    assert_close(outputs, eager(norm, (x,)), 2e-3)


@pytest.mark.parametrize("n", [100, 5000, 100_000])
def test_means_of_many_numbers(n: int) -> None:
    """1/100000 has four binary digits in float16."""

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(-1)

    x = (torch.rand(2, n) + 0.5).half()
    (outputs,) = run_ours(lower(Mean(), (x,)).buffer, (x,))
    assert_close(outputs, eager64(Mean(), (x,)), 1e-3)


def test_softmax_with_infinite_masks() -> None:
    class Masked(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    inputs = tuple(torch.randn(1, 2, 6, 8).half() for _ in range(3))
    program = lower(Masked(), inputs)
    assert operators(program.buffer) == ["delegate"]
    (outputs,) = run_ours(program.buffer, inputs)
    assert not outputs[0].isnan().any()
    assert_close(outputs, eager64(Masked(), inputs), TO_FLOAT64)


# --- what is refused ---------------------------------------------------------------------


def test_float64_is_refused_with_its_reason() -> None:
    linear = torch.nn.Linear(4, 4).double()
    edge = lower(linear, (torch.randn(2, 4).double(),))
    (node,) = [n for n in edge.delegation_report().refused if n.operator.startswith("aten.")][-1:]
    (reasons,) = node.reasons.values()
    assert any("data type must be float32 or float16" in r and "float64" in r for r in reasons)


def test_conversions_between_types_are_refused() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.tanh().float() * 2).half().abs()

    x = torch.randn(3, 4).half()
    program = lower(Mixed(), (x,))
    found = operators(program.buffer)
    assert found.count("delegate") == 3
    reasons = [
        r for n in program.delegation_report().refused for rs in n.reasons.values() for r in rs
    ]
    assert any(r.startswith("no dtype conversion") for r in reasons)
    (outputs,) = run_ours(program.buffer, (x,))
    assert_close(outputs, eager(Mixed(), (x,)), TO_EAGER)


# --- models --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small", "resnet18", "bert_small"])
def test_models(name: str) -> None:
    from examples.models import MODELS

    spec = MODELS[name]
    model = spec.build(seed=0)
    inputs = spec.example_inputs(0)
    full = len(lower(model, inputs).buffer)
    model, inputs = model.half(), tuple(half(x) for x in inputs)
    program = lower(model, inputs, config=SMALL)
    assert len(program.buffer) < 0.55 * full
    assert len(program.delegation_report().delegates) == 1
    (outputs,) = run_ours(program.buffer, inputs)
    exact = eager(
        copy.deepcopy(model).float(), [x.float() if x.is_floating_point() else x for x in inputs]
    )
    # Errors of all layers are in each element, however small it is. Eager's own are larger.
    for got, want, rounded in zip(outputs, exact, eager(model, inputs), strict=True):
        floor = 0.03 * float(want.double().square().mean().sqrt())
        assert_close([got], [want], TO_FLOAT64, floor)
        own = float((rounded - want).abs().max())
        assert_close([got], [rounded], TO_EAGER, floor + own)


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 0.37,
    "add: beyond the type": lambda x: x + 1e5,
    "sub": lambda x: x - 0.37,
    "sub: from a number": lambda x: 0.37 - x,
    "mul": lambda x: x * 0.37,
    "mul: beyond the type": lambda x: x * 1e5,
    "mul: below the type": lambda x: x * 1e-8,
    "div": lambda x: x / 0.37,
    "div: beyond the type": lambda x: x / 1e5,
    "div: below the type": lambda x: x / 1e-8,
    "celu: beyond the type": lambda x: F.celu(x, 1e-5),
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.37),
    "leaky_relu: below the type": lambda x: F.leaky_relu(x, 1e-8),
    "selu": F.selu,
    "softshrink": lambda x: F.softshrink(x, 0.37),
}
"""Numbers that float16 does not hold: eager rounds those of sums first, and no others."""

ON_THE_CPU: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: f for name, f in NUMBERS.items() if name[:3] in ("add", "sub", "mul", "div")},
    "fmod": lambda x: torch.fmod(x, 0.37),
    "remainder": lambda x: torch.remainder(x, 0.37),
    "pow": lambda x: x**2.3,
    "pow: of a number": lambda x: 1.001**x,
    "alpha": lambda x: torch.add(x, x, alpha=0.37),
    "comparisons": lambda x: torch.stack([x < 0.37, x <= 0.37, x > 0.37, x >= 0.37, x == 0.37]),
    "masked_fill": lambda x: x.masked_fill(x > 0.37, 0.73),
    "hardshrink": lambda x: F.hardshrink(x, 0.37),
    "softshrink": lambda x: F.softshrink(x, 0.37),
    "atan2: no dimensions": lambda x: torch.atan2(x, torch.tensor(0.37)),
    "no dimensions": lambda x: x + torch.tensor(0.37),
}


def assert_as_eager(
    function: Callable, type_: torch.dtype, partitioner: str | None, allowed: float = 0
) -> list[str]:
    x = special_values.every(type_)
    made = lower(Fn(function), (x,), partitioner=partitioner)
    got, want = run_ours(made.buffer, (x,))[0][0].double(), function(x).double()
    near = (got - want).abs() <= allowed * torch.finfo(type_).eps * want.abs()
    same = (got == want) | (got.isnan() & want.isnan()) | near
    where = (~same).nonzero()[:3].tolist()
    assert same.all(), [
        (float(x[i[-1]]), float(got[tuple(i)]), float(want[tuple(i)])) for i in where
    ]
    return operators(made.buffer)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_float16_does_not_hold(name: str) -> None:
    """All 65,536 elements are eager's."""
    assert assert_as_eager(NUMBERS[name], torch.float16, "xnnpack") == ["delegate"]


@pytest.mark.parametrize("type_", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ON_THE_CPU)
def test_numbers_that_16_bits_do_not_hold(name: str, type_: torch.dtype) -> None:
    """The runtime's own kernels. Eager's remainders of huge quotients are NaN, and its alpha is
    rounded once more."""
    function = ON_THE_CPU[name]
    if name in ("fmod", "remainder"):
        function = lambda x: ON_THE_CPU[name](x.clamp(-100, 100))  # noqa: E731
    if name == "alpha":
        function = lambda x: torch.add(x, x, alpha=0.37).clamp(-1e3, 1e3)  # noqa: E731
    assert "delegate" not in assert_as_eager(function, type_, None, float(name == "alpha"))
