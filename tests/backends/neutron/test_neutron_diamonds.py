"""Random quantized graphs in which values meet again: every one lowers for both NPUs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neutron_programs import lowered, partitioner, quantized, steps_off
from torch import nn

from edgewise.backends.ethosu import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.litert

X = torch.randn(1, 8, 4, 4, generator=torch.Generator().manual_seed(5))
STEPS = 6
"""Of the result, by which the operators of one graph may differ together."""

Recipe = list[tuple[str, int, int]]


class Graph(nn.Module):
    """Operators on earlier values; those that nothing reads are added up."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.convolutions = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in recipe)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, unread = [x], {0}
        for index, (kind, i, j) in enumerate(self.recipe):
            a, b = values[i % len(values)], values[j % len(values)]
            unread -= {i % len(values)} | ({j % len(values)} if kind in ("add", "mul") else set())
            values.append(self.value(kind, index, a, b))
            unread.add(len(values) - 1)
        result = values[-1]
        for k in sorted(unread - {len(values) - 1}):
            result = result + values[k]
        return result

    def value(self, kind: str, index: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if kind == "conv":
            return self.convolutions[index](a)
        if kind == "add":
            return a + b
        if kind == "mul":
            return torch.sigmoid(a) * b
        return {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}[kind](a)


class Gated(nn.Module):
    """A value is read before and behind what is computed of it."""

    def __init__(self) -> None:
        super().__init__()
        self.b, self.d = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return x + self.d(torch.sigmoid(self.b(y)) * y)


recipes = st.lists(
    st.tuples(
        st.sampled_from(["conv", "add", "mul", "relu", "sigmoid", "tanh"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=2,
    max_size=7,
)


def on_neutron(model: nn.Module) -> None:
    program = quantized(model, X)
    made = lowered(program, partitioner())
    assert made.delegation_report().delegates
    assert steps_off(program, made, X) <= STEPS


def on_ethosu(model: nn.Module) -> None:
    """Compiled by Vela and run in the simulator."""
    program = quantized(model, X, quantizer=EthosUQuantizer)
    made = lowered(program, EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")))
    assert made.delegation_report().delegates
    assert steps_off(program, made, X) <= STEPS


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(recipes)
def test_random_graphs_on_neutron(recipe: Recipe) -> None:
    on_neutron(Graph([*recipe, ("conv", 0, 0)]))


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(recipes)
def test_random_graphs_on_ethosu(recipe: Recipe) -> None:
    pytest.importorskip("ethosu.vela")
    on_ethosu(Graph([*recipe, ("conv", 0, 0)]))


def test_a_gate() -> None:
    on_neutron(Gated())
    pytest.importorskip("ethosu.vela")
    on_ethosu(Gated())
