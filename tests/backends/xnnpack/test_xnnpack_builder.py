"""Lazy layout: chains of shape operators on small integers give exactly torch's elements."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support import Fn, assert_close, eager, lower, operators, run_ours

Step = tuple[str, Any]
MOST = 6


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[Step]]:
    """A shape, and steps that fit it one after the other."""
    start = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shape, steps = list(start), []
    for _ in range(draw(st.integers(1, 7))):
        step = draw(one_step(shape))
        steps.append(step)
        shape = list(apply(step, torch.zeros(shape)).shape)
    return start, steps


@st.composite
def one_step(draw: st.DrawFn, shape: list[int]) -> Step:
    rank = len(shape)
    choices = ["double", "view", "row"]
    if rank:
        choices += ["permute", "slice", "cat", "difference", "add_swapped", "pad"]
        choices += ["select"] if rank > 1 else []
    if rank < MOST:
        choices += ["unsqueeze"]
    kind = draw(st.sampled_from(choices))
    if kind == "view":
        return kind, draw(factors(math.prod(shape)))
    if kind == "permute":
        return kind, draw(st.permutations(range(rank)))
    if kind == "unsqueeze":
        return kind, draw(st.integers(0, rank))
    if kind == "row":
        return kind, shape[-1] if rank else 1
    if kind == "double":
        return kind, None
    dim = draw(st.integers(0, rank - 1))
    if kind == "select":
        return kind, (dim, draw(st.integers(0, shape[dim] - 1)))
    if kind == "slice":
        start = draw(st.integers(0, shape[dim] - 1))
        return kind, (dim, start, draw(st.integers(1, shape[dim] - start)))
    if kind == "cat":
        return kind, (dim, draw(st.booleans()), draw(st.integers(2, 3)))
    if kind == "pad":
        return kind, (rank - 1 - dim, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    return kind, dim


@st.composite
def factors(draw: st.DrawFn, product: int) -> list[int]:
    found = []
    while product > 1 and len(found) < MOST - 2:
        factor = draw(st.sampled_from([d for d in range(1, product + 1) if product % d == 0]))
        found.append(factor)
        product //= factor
    found.append(product)
    return found


def apply(step: Step, x: torch.Tensor) -> torch.Tensor:
    kind, value = step
    if kind == "view":
        return x.reshape(value)
    if kind == "permute":
        return x.permute(value)
    if kind == "unsqueeze":
        return x.unsqueeze(value)
    if kind == "double":
        return x * 2
    if kind == "row":
        return x + torch.arange(value, dtype=x.dtype)
    if kind == "select":
        return x.select(*value)
    if kind == "slice":
        return x.narrow(*value)
    if kind == "cat":
        dim, constant, count = value
        other = torch.ones_like(x) if constant else x + 1
        return torch.cat([x] + [other] * (count - 1), dim)
    if kind == "pad":
        place, before, after = value
        return torch.nn.functional.pad(x, [0, 0] * place + [before, after])
    if kind == "difference":
        return x - x.narrow(value, 0, 1)
    if kind == "add_swapped":
        # Another order of the same shape where two sizes agree.
        same = x.dim() > 1 and x.shape[value] == x.shape[-1]
        return x + (x.transpose(value, -1) if same else x.movedim(value, 0).movedim(0, value))
    raise AssertionError(kind)


@example(([1, 2], [("permute", [1, 0]), ("double", None), ("view", [2, 1])]))
@example(([4], [("select", (0, 2)), ("double", None), ("unsqueeze", 0)]))
@example(([2, 3, 4], [("permute", [2, 0, 1]), ("view", [4, 6]), ("permute", [1, 0])]))
@settings(max_examples=120)
@given(chains())
def test_chain_of_shape_operators(case: tuple[list[int], list[Step]]) -> None:
    shape, steps = case

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 0.0  # never a partition of shape operators alone
        for step in steps:
            x = apply(step, x)
        return x

    module = Fn(function)
    x = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    program = lower(module, (x,))
    assert operators(program.buffer) == ["delegate"], program.delegation_report()
    assert_close(run_ours(program.buffer, (x,))[0], eager(module, (x,)), rel=0)
