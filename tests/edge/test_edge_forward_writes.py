"""Reads of parts that were just written, against eager PyTorch and by what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import edgewise
from edgewise.edge.graph import calls, op_name
from support import Fn, assert_close, eager, export, run_ours

X = torch.linspace(-2, 3, 24).reshape(4, 6)
A = torch.linspace(5, 7, 24).reshape(4, 6)


def _written(write: Any, read: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """What `read` sees of a copy of x in which `write` is that part of a."""

    def function(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[write] = a[write]
        return y[read] + 1

    return function


S = slice
# What is written | what is read | whether the write is left.
TABLE = {
    "the same slice": (S(1, 3), S(1, 3), False),
    "the same, from the end": (S(1, 3), S(-3, -1), False),
    "the same, with a step": ((S(None), S(0, 6, 2)), (S(None), S(0, 5, 2)), False),
    "disjoint slices": (S(0, 2), S(2, 4), False),
    "between the steps": ((S(None), S(0, 6, 2)), (S(None), S(1, 6, 2)), False),
    "a row": (2, 2, False),
    "a row, from the end": (-1, 3, False),
    "another row": (2, 1, False),
    "a row beside a slice": (S(0, 2), 3, False),
    "slices that overlap": (S(0, 3), S(2, 4), True),
    "a part of the slice": (S(0, 3), S(1, 2), True),
    "a row of the slice": (S(0, 3), 1, True),
    "another dimension": (S(1, 3), (S(None), S(1, 3)), True),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    write, read, left = TABLE[name]
    module = Fn(_written(write, read))
    edge = edgewise.to_edge(export(module, (X, A)))
    names = [op_name(node) for node in calls(edge.exported_program().graph)]
    assert any("_scatter" in one for one in names) == left, names
    got = run_ours(bytes(edge.to_executorch().buffer), (X, A))
    assert_close(got[0], eager(module, (X, A)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-6, 6)] * 2, st.integers(1, 3), st.booleans()), max_size=4))
def test_chains_of_writes(parts: list[tuple[int, int, int, bool]]) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        y = x + 0.5
        found = []
        for start, end, step, reads in parts:
            if reads:
                found.append(y[:, start:end:step] * 2)
            else:
                y[:, start:end:step] = torch.tanh(y[:, start:end:step])
        return [*found, y[:, 1:4], y[0], y[:, 5]]

    module = Fn(function)
    edge = edgewise.to_edge(export(module, (X,)))
    got = run_ours(bytes(edge.to_executorch().buffer), (X,))
    assert_close(got[0], eager(module, (X,)), 1e-6)


def test_values_of_another_type_and_shape_are_read_as_they_were_written() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y, z = x * 1, x * 1
        y[1:3] = n[1:3]  # as floats
        z[1:3] = n[0]  # to each row
        return y[1:3] / 2 + z[1:3]

    module, inputs = Fn(function), (X, torch.arange(24).reshape(4, 6))
    got = run_ours(bytes(edgewise.to_edge(export(module, inputs)).to_executorch().buffer), inputs)
    assert_close(got[0], eager(module, inputs))


def test_writes_into_state_stay_in_place() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(4, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept[1:3] = x[1:3]  # type: ignore[operator]
            return self.kept[1:3] * 2 + self.kept[0]  # type: ignore[index]

    edge = edgewise.to_edge(export(Cache(), (X,)))
    names = [op_name(node) for node in calls(edge.exported_program().graph)]
    assert sum("_scatter" in one for one in names) == 1
    got = run_ours(bytes(edge.to_executorch().buffer), (X,), (X + 1,))
    module = Cache()
    for one, x in zip(got, (X, X + 1), strict=True):
        assert_close(one, eager(module, (x,)))


def test_a_decomposed_lstm_has_no_writes() -> None:
    torch.manual_seed(0)
    module, inputs = torch.nn.LSTM(6, 3).eval(), (X.reshape(4, 1, 6),)
    edge = edgewise.to_edge(export(module, inputs))
    assert not [n for n in calls(edge.exported_program().graph) if "_scatter" in op_name(n)]
    got = run_ours(bytes(edge.to_executorch().buffer), inputs)
    assert_close(got[0], eager(module, inputs))
