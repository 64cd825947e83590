"""Reductions, repetitions and choices of dimensions: any shape, any dimensions, any layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support import Fn, assert_close, eager64, lower, operators, run_ours

FUNCTIONS: dict[str, Any] = {
    "mean": lambda x, dims, keep: x.mean(dims, keepdim=keep),
    "sum": lambda x, dims, keep: x.sum(dims, keepdim=keep),
    "amax": lambda x, dims, keep: x.amax(dims, keepdim=keep),
    "amin": lambda x, dims, keep: x.amin(dims, keepdim=keep),
    "var": lambda x, dims, keep: x.var(dims, correction=0, keepdim=keep),
    "repeat": lambda x, dims, keep: x.repeat([3 if d in dims else 1 for d in range(x.dim())]),
    "every": lambda x, dims, keep: x[tuple(slice(int(keep), None, 2) if d in dims and
                                           x.shape[d] > 1 else slice(None)
                                           for d in range(x.dim()))] + 0,
    "softmax": lambda x, dims, keep: x.softmax(dims[0]),
    "roll": lambda x, dims, keep: x.roll([1] * len(dims), dims),
}  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[int], list[int], list[int], bool]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    dims = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return draw(st.sampled_from(list(FUNCTIONS))), shape, order, dims, draw(st.booleans())


@pytest.mark.slow
@example(("mean", [2, 3, 4, 5, 2], [0, 1, 2, 3, 4], [0, 2, 4], False))
@example(("amax", [1, 3, 1, 2], [3, 1, 0, 2], [1], True))
@settings(max_examples=150)
@given(cases())
def test_any_layout(case: tuple[str, list[int], list[int], list[int], bool]) -> None:
    name, shape, order, dims, keep = case
    function = FUNCTIONS[name]
    module = Fn(lambda x: function((x * 2).permute(order), dims, keep) * 0.5)
    x = torch.randn(shape)
    program = lower(module, (x,))
    assert operators(program.buffer) == ["delegate"], program.delegation_report()
    assert_close(run_ours(program.buffer, (x,))[0], eager64(module, (x,)), rel=1e-5)
