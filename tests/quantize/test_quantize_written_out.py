"""Activations that models write out are one operator before anything is observed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import edgewise
from edgewise.quantize.written_out import recognize_activations
from support import Fn

Function = Callable[[torch.Tensor], torch.Tensor]


def _hidden_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x)))


def _new_gelu(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def _stable(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-x)
    return (1 - e) / (1 + e)


def _both_powers(x: torch.Tensor) -> torch.Tensor:
    a, b = torch.exp(x), torch.exp(-x)
    return (a - b) / (a + b)


# What is written, and the calls that are left.
WRITTEN: dict[str, tuple[Function, str]] = {
    "sigmoid": (lambda x: 1 / (1 + torch.exp(-x)), "sigmoid"),
    "sigmoid, other order": (lambda x: 1.0 / (torch.exp(-x) + 1.0), "sigmoid"),
    "sigmoid, reciprocal": (lambda x: (1 + (-x).exp()).reciprocal(), "sigmoid"),
    "sigmoid of less": (lambda x: 1 / (1 + torch.exp(-1.7 * x)), "mul sigmoid"),
    "sigmoid, powers above and below": (
        lambda x: (e := x.exp()) / (1 + e),
        "sigmoid",
    ),
    "silu": (lambda x: x * torch.sigmoid(x), "silu"),
    "silu, divided": (lambda x: x / (1 + torch.exp(-x)), "silu"),
    "tanh": (_both_powers, "tanh"),
    "tanh, one power": (_stable, "mul tanh"),
    "tanh, of twice": (lambda x: ((e := torch.exp(2 * x)) - 1) / (e + 1), "tanh"),
    "tanh of a sigmoid": (lambda x: 2 * torch.sigmoid(2 * x) - 1, "tanh"),
    "softplus": (lambda x: torch.log(1 + torch.exp(x)), "softplus"),
    "softplus, log1p": (lambda x: torch.log1p(torch.exp(x)), "softplus"),
    "log of a sigmoid": (lambda x: torch.log(torch.sigmoid(x)), "mul softplus neg"),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), "mish"),
    "mish, all of it": (lambda x: x * torch.tanh(torch.log(1 + torch.exp(x))), "mish"),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), "gelu"),
    "gelu, other order": (lambda x: x * 0.5 * (1.0 + torch.erf(x * 0.70710678)), "gelu"),
    "gelu, divided": (lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2, "gelu"),
    "gelu, by tanh": (_new_gelu, "gelu"),
    "gelu, by tanh, factored": (_hidden_gelu, "gelu"),
    "inverse root": (lambda x: 1 / torch.sqrt(x * x + 1), "mul add rsqrt"),
    "power": (lambda x: (x * x + 1) ** -0.5, "mul add rsqrt"),
    "hardsigmoid": (lambda x: F.relu6(x + 3) / 6, "hardsigmoid"),
    "hardsigmoid, clamped": (lambda x: torch.clamp(x / 6 + 0.5, 0, 1), "hardsigmoid"),
    "hardswish": (lambda x: x * F.relu6(x + 3) / 6, "hardswish"),
    "hardswish, other order": (lambda x: x * (F.relu6(x + 3.0) / 6.0), "hardswish"),
    "hardswish, clamped": (lambda x: x * (x + 3).clamp(0, 6) / 6, "hardswish"),
    "hardswish of hardsigmoid": (lambda x: x * F.hardsigmoid(x), "hardswish"),
    "relu": (lambda x: torch.where(x > 0, x, 0.0), "relu"),
    "relu, other order": (lambda x: torch.where(x < 0, torch.zeros_like(x), x), "relu"),
    "leaky relu": (lambda x: torch.where(x > 0, x, 0.1 * x), "leaky_relu"),
    "elu": (lambda x: torch.where(x > 0, x, torch.exp(x) - 1), "elu"),
    "elu with a factor": (lambda x: torch.where(x >= 0, x, 0.5 * (x.exp() - 1)), "elu"),
    "of a product": (lambda x: (y := x * 2.0) / (1 + torch.exp(-y)), "mul silu"),
}


def _calls(program: torch.fx.GraphModule) -> list[str]:
    found = [n for n in program.graph.nodes if n.op == "call_function"]
    return [n.target._opname for n in found if isinstance(n.target, torch._ops.OpOverload)]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_out(name: str) -> None:
    function, left = WRITTEN[name]
    x = torch.linspace(-4, 4, 33).reshape(3, 11)
    program = torch.export.export(Fn(function), (x,)).module()
    assert recognize_activations(program)
    assert [c for c in _calls(program) if not c.startswith("_")] == left.split()
    tolerance = 2e-4 if "tanh" in name else 1e-6  # of numbers with few digits
    torch.testing.assert_close(program(x), function(x), rtol=tolerance, atol=tolerance)
    assert not recognize_activations(program)


OTHERS: dict[str, Function] = {
    "swish with a factor": lambda x: x * torch.sigmoid(1.7 * x),
    "a gate": lambda x: (x + 1) * torch.sigmoid(x),
    "another number": lambda x: 1 / (2 + torch.exp(-x)),
    "another power": lambda x: 1 / (1 + torch.exp(-x)) ** 3,
    "a difference": lambda x: 1 / (1 - torch.exp(-x) * 0.5),
    "another factor": lambda x: torch.log(1 + 0.5 * torch.exp(x)),
    "a gelu with another slope": lambda x: 0.5 * x * (1 + torch.erf(x)),
    "another cubic": lambda x: 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.05 * x**3))),
    "another clamp": lambda x: x * (x + 3).clamp(0, 5) / 6,
    "another sum": lambda x: F.relu6(x + 2) / 6,
    "other powers": lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-2 * x)),
    "another bound": lambda x: torch.where(x > 1, x, 0.1 * x),
    "a choice of another": lambda x: torch.where(x > 0, 2 * x, 0.1 * x),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_another_function(name: str) -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    program = torch.export.export(Fn(OTHERS[name]), (x,)).module()
    expected = program(x)
    recognize_activations(program)
    torch.testing.assert_close(program(x), expected, rtol=1e-6, atol=1e-6)
    named = {"silu", "softplus", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "elu"}
    assert not named.intersection(_calls(program))


@pytest.mark.parametrize(
    "backend", ["xnnpack", "ethos-u55-128", "ethos-u85-256", "neutron-imxrt700-reference"]
)
@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "gelu", "silu, divided"])
def test_integers(name: str, backend: str) -> None:
    """As near as the operator itself is: within 40 dB."""
    pytest.importorskip("ai_edge_litert" if backend.startswith("neutron") else "ethosu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), Fn(WRITTEN[name][0])).eval()
    x = torch.randn(4, 8) * 4
    program = edgewise.compile(
        model, (x,), backend=backend, quantize="int8", calibration=[(x,)], verbose=False
    )
    found = torch.as_tensor(edgewise.load(program.buffer)(x.numpy()))
    with torch.no_grad():
        expected = model(x)
    noise = (found - expected).double().square().sum() / expected.double().square().sum()
    assert 10 * math.log10(noise) < -33
    assert len(program.delegation_report().delegates) == 1
